"""Commands of the pages on tables that lie elsewhere: each is accepted, up to the session.

`make test-kafka` runs such commands with a Kafka, an S3 and Delta Lake; these tests need none.
"""

from collections.abc import Generator
from contextlib import contextmanager
from typing import NoReturn

import pytest

from aiowheel.cli import run
from aiowheel.errors import AiowheelError

from .test_snippets import PAGES, command_lines, relative

pytest.importorskip("pyspark")

pytestmark = pytest.mark.one_build

COMMANDS = {
    f"{relative(page)}:{' '.join(line[:2])}": line
    for page in PAGES
    for line in command_lines(page)
    if any("kafka://" in word or "s3a://" in word for word in line)
}


def test_the_pages_show_such_commands() -> None:
    """Of Kafka, object stores and Delta Lake."""
    words = [word for line in COMMANDS.values() for word in line]

    for scheme in ("kafka://", "s3a://", "delta:"):
        assert any(word.startswith(scheme) for word in words)


@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS)
def test_a_command_on_a_page_is_accepted(
    command: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its URIs and options are those of a run, and Spark gets the jars for them."""
    opened: list[dict[str, str]] = []

    @contextmanager
    def no_session(
        *_: object, connectors: dict[str, str], **_options: object
    ) -> Generator[NoReturn]:
        opened.append(connectors)
        raise AiowheelError("no session here")
        yield

    monkeypatch.setattr("aiowheel.jobs.spark.session.open_session", no_session)
    monkeypatch.setattr("importlib.metadata.version", str)  # of delta-spark, which may be absent

    assert run(command) == 1

    assert capsys.readouterr().err == "aiowheel: no session here\n"
    assert all("spark.jars.packages" in connectors for connectors in opened)
    assert len(opened) == 1
