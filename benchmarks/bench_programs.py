"""Measure aiohttp and asyncpg on wheel loops; the same as `aiowheel bench programs`.

Run:
    python benchmarks/bench_programs.py [--quick] [--rounds N] [--out FILE] [--json]
"""

import sys

from aiowheel.cli import run

sys.exit(run(["bench", "programs", *sys.argv[1:]]))
