"""Threads complete operations of the loop and set timers on it; many calls share one wake-up.

Prints:
    10 threads have counted to 1,000
    all watchdogs cancelled: True
    calls from threads: 1,010
"""

import asyncio
import threading

import aiowheel


async def main() -> None:
    """Wait on the loop for the counts of threads."""
    async with (
        aiowheel.Timer() as timer,
        aiowheel.Purgatory("work", timer=timer) as purgatory,
    ):
        lock = threading.Lock()
        counted = 0
        watchdogs: list[aiowheel.ThreadsafeHandle] = []

        def count() -> None:
            nonlocal counted
            watchdogs.append(timer.call_later_threadsafe(60.0, print, "a thread hangs"))
            for _ in range(100):
                with lock:
                    counted += 1
                    purgatory.advance_threadsafe("counted", counted)

        threads = [threading.Thread(target=count) for _ in range(10)]
        for thread in threads:
            thread.start()
        if await purgatory.wait_until({"counted": 1_000}, timeout=30.0):
            print(f"{len(threads)} threads have counted to {counted:,}")
        for thread in threads:
            thread.join()
        print("all watchdogs cancelled:", all(each.cancel() for each in watchdogs))
        print(f"calls from threads: {counted + len(watchdogs):,}")


asyncio.run(main())
