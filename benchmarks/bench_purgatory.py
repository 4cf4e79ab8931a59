"""Measure the purgatory beside older and other designs; the same as `aiowheel bench purgatory`.

Run:
    python benchmarks/bench_purgatory.py [--quick] [--micro] [--rounds N] [--out FILE] [--json]
"""

import sys

from aiowheel.cli import run

sys.exit(run(["bench", "purgatory", *sys.argv[1:]]))
