"""Measure the cost of closing silent connections; the same as `aiowheel bench idle`.

Run:
    python benchmarks/bench_idle.py [--quick] [--connections N] [--rounds N] [--out FILE] [--json]
"""

import sys

from aiowheel.cli import run

sys.exit(run(["bench", "idle", *sys.argv[1:]]))
