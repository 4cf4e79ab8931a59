"""Compare the timers of wheel loops with those of asyncio and uvloop, as `aiowheel bench loop`.

Run:
    python benchmarks/bench_loop.py [--quick] [--only LINE] [--rounds N] [--out FILE] [--json]
"""

import sys

from aiowheel.cli import run

sys.exit(run(["bench", "loop", *sys.argv[1:]]))
