"""pgbench on a PostgreSQL server, alone and during publishes of shared counters."""

import asyncio
import re
import subprocess
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack

from benchmarks._clients import run_clients
from benchmarks._side import Figures
from benchmarks.workloads.shared_process import Part

_CLIENTS, _THREADS, _SCALE = 16, 2, 16
_KEYS = 1_000
_TPS = re.compile(r"^tps = ([0-9.]+) \(without", re.MULTILINE)
_NO_TRANSACTION = "number of transactions actually processed: 0\n"  # pgbench prints no rate then


async def transactions(
    *, program: str, address: str, rate: float, seconds: float
) -> AsyncGenerator[Figures, None]:
    """Measure transactions per second of 16 clients during *rate* publishes per second.

    Args:
        program: The path of pgbench.
        address: The address of the server; pgbench creates its tables in the database.
        rate: Publishes per second; 0 for none.
        seconds: Duration of pgbench's run.
    """
    await _run(program, "--initialize", "--quiet", f"--scale={_SCALE}", address)
    while True:
        async with AsyncExitStack() as stack:
            publishing = None
            if rate:
                part = Part("publishes", "postgres", address, 0, _KEYS, rate, seconds)
                publishing = await stack.enter_async_context(run_clients("shared_process", part))
                await publishing.read_line()  # the process is ready
                publishing.start_stage()
            words = (f"--client={_CLIENTS}", f"--jobs={_THREADS}", "--no-vacuum")
            output = await _run(program, *words, f"--time={max(1, round(seconds))}", address)
            if publishing is not None:
                await publishing.read_line()  # the process has ended
        yield {"per_second": rate_of(output)}


def rate_of(output: str) -> float:
    """Return the transactions per second in pgbench's output; 0 if none ended in time.

    Raises:
        ValueError: *output* contains no rate.
    """
    found = _TPS.search(output)
    if found is not None:
        return float(found[1])
    if _NO_TRANSACTION in output:
        return 0.0
    raise ValueError(f"output must hold the rate of a run of pgbench, got {output!r}")


async def _run(program: str, *words: str) -> str:
    """Run pgbench to completion; return its output."""
    process = await asyncio.create_subprocess_exec(
        program, *words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    output, _ = await process.communicate()
    if process.returncode != 0:
        raise RuntimeError(f"pgbench failed: {output.decode(errors='replace')[-500:]}")
    return output.decode(errors="replace")
