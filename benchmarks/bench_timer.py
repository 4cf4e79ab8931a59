"""Compare the running timer with those of asyncio and uvloop, as `aiowheel bench timer`.

Run:
    python benchmarks/bench_timer.py [--quick] [--only LINE] [--rounds N] [--out FILE] [--json]
"""

import sys

from aiowheel.cli import run

sys.exit(run(["bench", "timer", *sys.argv[1:]]))
