"""Compare the wheel with a heap and the timers of asyncio and uvloop, as `aiowheel bench wheel`.

Run:
    python benchmarks/bench_wheel.py [--quick] [--rounds N] [--out FILE] [--json]
"""

import sys

from aiowheel.cli import run

sys.exit(run(["bench", "wheel", *sys.argv[1:]]))
