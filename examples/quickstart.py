"""Set timers, cancel one, sleep, and limit the time of a block, all on one wheel.

Prints:
    10 ms have passed
    cancelled in time: True
    too slow
"""

import asyncio

import aiowheel


async def main() -> None:
    """Use one timer for everything."""
    async with aiowheel.Timer() as timer:
        late = timer.call_later(30.0, print, "no answer within 30 s")
        timer.call_later(0.01, print, "10 ms have passed")
        await timer.sleep(0.02)
        print("cancelled in time:", late.cancel())
        try:
            async with timer.timeout(0.01):
                await asyncio.Event().wait()
        except TimeoutError:
            print("too slow")


asyncio.run(main())
