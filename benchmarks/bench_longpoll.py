"""Measure thousands of clients that long-poll; the same as `aiowheel bench longpoll`.

Run:
    python benchmarks/bench_longpoll.py [--quick] [--clients N] [--topics N] [--keys N] [--rate N]
        [--rounds N] [--out FILE] [--json]
"""

import sys

from aiowheel.cli import run

sys.exit(run(["bench", "longpoll", *sys.argv[1:]]))
