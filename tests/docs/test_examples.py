"""Every example runs and prints the text in its docstring.

The expected text is the indented end of the docstring, after a line `Prints:`; `...` in it stands
for any text, as in doctest.
"""

import ast
import asyncio
import runpy
import signal
import subprocess
import sys
import textwrap
from doctest import ELLIPSIS, OutputChecker
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import structlog

pytestmark = pytest.mark.one_build

ROOT = Path(__file__).parent.parent.parent
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))


def promise(example: Path) -> str:
    """Return the expected output in the docstring of an example."""
    docstring = ast.get_docstring(ast.parse(example.read_text(encoding="utf-8"))) or ""
    _, found, text = docstring.partition("Prints:\n")
    assert found, f"{example.name}: the docstring has no `Prints:` paragraph"
    return textwrap.dedent(text).strip() + "\n"


def third_parties(example: Path) -> set[str]:
    """Return the imported packages that belong neither to Python nor to aiowheel."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(example.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module)
    return {name.split(".")[0] for name in names} - sys.stdlib_module_names - {"aiowheel"}


@pytest.mark.realtime
@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.stem)
def test_example_prints_its_documented_output(
    example: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """The example raises no error, writes nothing on stderr, and prints the expected lines."""
    for package in third_parties(example):
        pytest.importorskip(package, reason=f"{package} is not installed")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", [str(example)])

    try:
        runpy.run_path(str(example), run_name="__main__")
    finally:
        structlog.reset_defaults()

    printed = capfd.readouterr()
    assert printed.err == ""
    assert OutputChecker().check_output(promise(example), printed.out, ELLIPSIS), printed.out


@pytest.mark.realtime
def test_an_interrupted_subscriber_ends_its_service(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C ends the example with KeyboardInterrupt, and leaves no process."""
    services: list[subprocess.Popen[str]] = []
    sleep = asyncio.sleep

    class Recorded(subprocess.Popen[str]):
        def __init__(self, *arguments: Any, **options: Any) -> None:
            super().__init__(*arguments, **options)
            services.append(self)

    async def interrupted(_: float) -> None:  # the example sleeps while its subscription polls
        signal.raise_signal(signal.SIGINT)
        await sleep(3600)

    monkeypatch.setattr(subprocess, "Popen", Recorded)
    monkeypatch.setattr(asyncio, "sleep", interrupted)

    try:
        with pytest.raises(KeyboardInterrupt):
            runpy.run_path(str(ROOT / "examples/topic_client.py"), run_name="__main__")

        (service,) = services
        assert service.returncode is not None
    finally:
        for left in services:
            with left:
                left.kill()


@pytest.mark.realtime
def test_an_interrupted_heartbeat_does_not_wait_for_the_deaf_peer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The wait of websockets for a close frame has no limit here."""
    client = pytest.importorskip("websockets.asyncio.client", reason="websockets is missing")
    server = pytest.importorskip("websockets.asyncio.server", reason="websockets is missing")

    pings: list[object] = []

    async def interrupted(connection: object) -> None:
        pings.append(connection)
        if len(pings) == 1:
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(client, "connect", partial(client.connect, close_timeout=None))
    monkeypatch.setattr(server.ServerConnection, "ping", interrupted)

    with pytest.raises(KeyboardInterrupt):
        runpy.run_path(str(ROOT / "examples/websocket_heartbeat.py"), run_name="__main__")


def test_the_example_table_lists_every_example() -> None:
    """Readers choose an example in examples/README.md."""
    if not EXAMPLES:
        pytest.skip("there are no examples yet")
    table = (ROOT / "examples/README.md").read_text(encoding="utf-8")

    assert [each.name for each in EXAMPLES if each.name not in table] == []
