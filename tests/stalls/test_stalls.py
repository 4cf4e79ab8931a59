"""The program that stops others can stop them, and reports how they ended."""

from __future__ import annotations

import sys

import pytest

from .stalls import run

pytestmark = [pytest.mark.one_build, pytest.mark.posix, pytest.mark.realtime, pytest.mark.slow]

# Reads the clock until it was stopped twice, for at least 10 ms each time.
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
    """It goes on each time, and its exit code is that of the run."""
    assert run(1, [sys.executable, "-c", STOPPED_TWICE]) == 7
