"""Run a command and stop its process half of the time, as on a busy machine.

A program, run by `make test-stalls`:

    python -m tests.stalls.stalls SEED COMMAND...

Only that process is stopped: servers that tests start continue, and so do their clocks. A test that
expects to be faster than a real timeout fails sooner or later.
"""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from collections.abc import Sequence

SHORTEST, LONGEST = 0.01, 0.25  # seconds, of a stop and of a run


def run(seed: int, command: Sequence[str]) -> int:
    """Run *command* to its end; return its exit code.

    Args:
        seed: Determines the lengths of stops and runs; the moments differ nevertheless.
        command: A program and its arguments.
    """
    draw = random.Random(seed)
    with subprocess.Popen(command) as process:
        while True:
            try:
                return process.wait(draw.uniform(SHORTEST, LONGEST))
            except subprocess.TimeoutExpired:
                process.send_signal(signal.SIGSTOP)
                time.sleep(draw.uniform(SHORTEST, LONGEST))
                process.send_signal(signal.SIGCONT)


if __name__ == "__main__":
    sys.exit(run(int(sys.argv[1]), sys.argv[2:]))
