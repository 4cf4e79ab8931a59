"""The program that stops other processes does stop them, and returns their exit codes."""

from __future__ import annotations

import sys

import pytest

from .stalls import run

pytestmark = [pytest.mark.one_build, pytest.mark.posix, pytest.mark.realtime, pytest.mark.slow]

# Reads the clock until the process was stopped twice, for at least 10 ms each time.
STOPPED_TWICE = """
import time

stops, last = 0, time.monotonic()
while stops < 2:
    now = time.monotonic()
    stops += now - last >= 0.01
    last = now
raise SystemExit(7)
"""


def test_a_process_is_stopped_again_and_again() -> None:
    """The process continues each time, and the exit code is its own."""
    assert run(1, [sys.executable, "-c", STOPPED_TWICE]) == 7
