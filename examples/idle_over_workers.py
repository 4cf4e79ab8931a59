"""Devices whose messages arrive at either of two workers; one worker detects a silent device.

Runs on virtual time and on counters in memory. In a service each worker is a process, with
`PostgresCounters`, `RedisCounters` or `SqliteCounters` in place of `MemoryCounters`.

Prints:
    8.0 s: device 1 sends to worker 2, device 2 is silent
    12.5 s: device 2 is idle
    16.0 s: worker 1 ends
    20.5 s: device 1 is idle
"""

import asyncio

from aiowheel.shared import SharedIdle
from aiowheel.testing import MemoryCounters, VirtualClockEventLoop


def tell(text: str) -> None:
    """Print with the virtual time."""
    print(f"{asyncio.get_running_loop().time():.1f} s: {text}")


def on_idle(device: str) -> None:
    """Report an idle device; only the worker that owns the device calls this."""
    tell(f"{device} is idle")


async def main() -> None:
    """Touch two devices at two workers, of which one ends."""
    store = MemoryCounters()
    async with (
        SharedIdle(store.beside(), 10, on_idle) as worker_2,
        SharedIdle(store.beside(), 10, on_idle) as worker_1,
    ):
        worker_1.touch("device 1")
        worker_1.touch("device 2")
        await asyncio.sleep(8)
        tell("device 1 sends to worker 2, device 2 is silent")
        worker_2.touch("device 1")
        await asyncio.sleep(8)
        tell("worker 1 ends")
        await worker_1.aclose()
        await asyncio.sleep(8)


with asyncio.Runner(loop_factory=VirtualClockEventLoop) as runner:
    runner.run(main())
