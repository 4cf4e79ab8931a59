"""The passive wheel against asyncio's timers, uvloop's, and a heap; as `aiowheel bench wheel`.

Run:
    python benchmarks/bench_wheel.py [--quick] [--rounds N] [--out FILE] [--json]
"""

import sys

from aiowheel.cli import run

sys.exit(run(["bench", "wheel", *sys.argv[1:]]))
