"""The output of job commands on stdout."""

import io
import json
import sys

import pytest

from aiowheel.cli._job_output import print_json, print_lines, print_table

pytestmark = pytest.mark.one_build


def test_columns_are_aligned_and_common_values_printed_once(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Text is aligned left, numbers right, and no cell is cut off."""
    print_table(["name", "rate", "count"], [["a", "5/s", "1"], ["longer", "5/s", "1,000"]], texts=1)

    assert capsys.readouterr().out.splitlines() == [
        "name    count",
        "a           1",
        "longer  1,000",
        "the same in all rows: rate 5/s",
    ]


def test_one_row_is_printed_as_pairs(capsys: pytest.CaptureFixture[str]) -> None:
    """A table of one row is printed as pairs."""
    print_table(["tick", "wake-ups"], [["1 ms", "7"]])

    assert capsys.readouterr().out.splitlines() == ["tick      1 ms", "wake-ups  7"]


def test_a_long_value_is_one_line_on_a_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A checksum can be copied from a narrow window."""
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "40")

    print_lines([("sha256", "a1" * 32), ("[b]", "[c]")])

    assert capsys.readouterr().out.splitlines() == [f"sha256  {'a1' * 32}", "[b]     [c]"]


def test_cells_and_json_are_escaped_for_terminals(capsys: pytest.CaptureFixture[str]) -> None:
    """Control characters are escaped as in Python, and in JSON as in JSON."""
    evil = "a\x1b[2J\x9b31m\u202e"

    print_table(["id", "n"], [[evil, "1"], ["b", "2"]], texts=1)
    print_lines([("id", evil)])
    print_json({evil: evil})

    printed = capsys.readouterr().out
    assert printed.replace("\n", "").isprintable()
    assert printed.count(r"a\x1b[2J\x9b31m\u202e") == 2
    assert json.loads(printed[printed.index("{") :]) == {evil: evil}


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
