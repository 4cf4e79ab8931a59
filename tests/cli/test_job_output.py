"""Results are printed as valid JSON on any stdout."""

from __future__ import annotations

import io
import json
import sys

import pytest

from aiowheel.cli._job_output import print_json

pytestmark = pytest.mark.one_build


@pytest.mark.parametrize(
    ("encoding", "printed"),
    [
        ("utf-8", r'"é \u202e \ud800 😀"'),
        ("latin-1", r'"é \u202e \ud800 \ud83d\ude00"'),
        ("ascii", r'"\u00e9 \u202e \ud800 \ud83d\ude00"'),
    ],
)
def test_what_stdout_cannot_encode_is_escaped_as_in_json(
    encoding: str, printed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The locale decides the encoding; the value that is read back is the same."""
    written = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written, encoding=encoding))
    value = "é \u202e \ud800 😀"

    print_json(value)

    sys.stdout.flush()
    text = written.getvalue().decode(encoding)
    assert text == f"{printed}\n"
    assert json.loads(text) == value
