"""Commands on pages about remote tables: each is accepted, up to the start of a session.

`make test-kafka` runs such commands with Kafka, S3 and Delta Lake; these tests need none of them.
"""

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
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


def test_the_pages_show_commands_for_every_place() -> None:
    """The pages show commands for Kafka, object stores and Delta Lake."""
    words = [word for line in COMMANDS.values() for word in line]

    for scheme in ("kafka://", "s3a://", "delta:"):
        assert any(word.startswith(scheme) for word in words)


@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS)
def test_a_command_on_a_page_is_accepted(
    command: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """URIs and options are valid, and Spark gets the required jars."""
    opened: list[dict[str, str]] = []

    @contextmanager
    def no_session(
        *_: object, connectors: dict[str, str], **_options: object
    ) -> Generator[NoReturn]:
        opened.append(connectors)
        raise AiowheelError("no session here")
        yield

    monkeypatch.chdir(tmp_path)  # some commands write into the current folder
    Path("client.properties").write_text("security.protocol=SSL\n")
    monkeypatch.setattr("aiowheel.jobs.spark.session.open_session", no_session)
    monkeypatch.setattr("aiowheel.jobs.spark.brokers.check_brokers", list)  # no connection
    monkeypatch.setattr("importlib.metadata.version", str)  # delta-spark may not be installed

    assert run(command) == 1

    assert capsys.readouterr().err == "aiowheel: no session here\n"
    assert all("spark.jars.packages" in connectors for connectors in opened)
    assert len(opened) == 1
