"""Save a second after the last change, and at least every five during continuous changes.

Runs on virtual time, without waiting; `asyncio.run(main())` does the same in real time.

Prints:
    3.5 s: saved 'hello,'
    10.5 s: saved 'hello, all you w'
    13.0 s: saved 'hello, all you wheels!'
    timers made: 6
"""

import asyncio
from collections.abc import Callable

import aiowheel
from aiowheel.testing import VirtualClockEventLoop


class Debounced:
    """Calls *function* after *wait* seconds without a request, *max_wait* at the latest."""

    def __init__(self, function: Callable[[], object], *, wait: float, max_wait: float) -> None:
        self.function = function
        self.wait = wait
        self.max_wait = max_wait
        self._armed: list[aiowheel.TimerHandle] = []  # for the pause, and for the latest time

    def __call__(self) -> None:
        """Request a call; while one is pending, this only moves its deadline."""
        if self._armed:
            self._armed[0].touch()
        else:
            delays = (self.wait, self.max_wait)
            self._armed = [aiowheel.call_later(delay, self.flush) for delay in delays]

    def cancel(self) -> bool:
        """Cancel a pending call; return whether there was one."""
        armed, self._armed = self._armed, []
        cancelled = [handle.cancel() for handle in armed]
        return any(cancelled)

    def flush(self) -> None:
        """Run a pending call now."""
        if self.cancel():
            self.function()


def say(text: str) -> None:
    """Print with the time."""
    print(f"{asyncio.get_running_loop().time()} s: {text}")


async def main() -> None:
    """Type a text twice a second, with a pause after its first word."""
    text = ""
    save = Debounced(lambda: say(f"saved {text!r}"), wait=1, max_wait=5)
    for character in "hello, all you wheels":
        text += character
        save()
        await asyncio.sleep(3 if character == "," else 0.5)
    text += "!"
    save()
    save.flush()
    print("timers made:", aiowheel.current_timer().statistics().scheduled)


with asyncio.Runner(loop_factory=VirtualClockEventLoop) as runner:
    runner.run(main())
