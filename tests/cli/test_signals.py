"""SIGINT and SIGTERM during a command."""

import asyncio
import os
import signal
import sys
from pathlib import Path

import pytest

from aiowheel.cli import run
from aiowheel.cli._signals import terminated_like_interrupted
from examples.demo import _run

pytestmark = [
    pytest.mark.one_build,
    pytest.mark.skipif(sys.platform == "win32", reason="there is no SIGTERM to catch"),
]


def test_sigterm_unwinds_the_block() -> None:
    """It acts like Ctrl-C; a second SIGTERM does not interrupt the cleanup."""
    left: list[str] = []
    before = signal.getsignal(signal.SIGTERM)

    with pytest.raises(KeyboardInterrupt), terminated_like_interrupted():
        try:
            os.kill(os.getpid(), signal.SIGTERM)
            signal.pause()
        finally:
            os.kill(os.getpid(), signal.SIGTERM)
            left.append("cleaned")

    assert left == ["cleaned"]
    assert signal.getsignal(signal.SIGTERM) is before


def test_sigterm_ends_a_command_that_ignores_ctrl_c() -> None:
    """Background jobs of a shell ignore SIGINT."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with pytest.raises(KeyboardInterrupt), terminated_like_interrupted():
            os.kill(os.getpid(), signal.SIGTERM)
            signal.pause()
    finally:
        signal.signal(signal.SIGINT, before)


def test_sigterm_unwinds_the_tasks_of_a_loop() -> None:
    """As at Ctrl-C, asyncio cancels its main task, which then closes its resources."""
    left: list[str] = []

    async def work() -> None:
        try:
            os.kill(os.getpid(), signal.SIGTERM)
            await asyncio.Event().wait()
        finally:
            left.append("cleaned")

    with pytest.raises(KeyboardInterrupt), terminated_like_interrupted():
        asyncio.run(work())

    assert left == ["cleaned"]


def test_a_command_that_is_terminated_exits_with_130(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """This holds also for commands without Spark; nothing is printed."""
    monkeypatch.setattr(_run, "run_crowd", lambda *_: os.kill(os.getpid(), signal.SIGTERM))

    assert run(["demo", "--no-spark", "--json", "--out", str(tmp_path)]) == 130
    assert "Error" not in capsys.readouterr().err
