"""A cache whose values expire by themselves, with a callback that can release resources.

Runs on virtual time, without waiting; `asyncio.run(main())` does the same in real time.

Prints:
    0 s: 3 values
    60 s: users has expired: 4,711
    90 s: prices has expired: [1, 2]
    90 s: 1 value
    timers left: 1
"""

import asyncio
from collections.abc import Callable
from typing import Generic, TypeVar

import aiowheel
from aiowheel.testing import VirtualClockEventLoop

V = TypeVar("V")


class TTLCache(Generic[V]):
    """Forgets a value *ttl* seconds after it was set or touched; one timer a value."""

    def __init__(self, ttl: float, on_expire: Callable[[str, V], object]) -> None:
        self.ttl = ttl
        self.on_expire = on_expire
        self._values: dict[str, tuple[V, aiowheel.TimerHandle]] = {}

    def __setitem__(self, key: str, value: V) -> None:
        self.discard(key)  # its timer must not end the new value
        self._values[key] = value, aiowheel.call_later(self.ttl, self._expire, key)

    def __getitem__(self, key: str) -> V:
        return self._values[key][0]

    def __len__(self) -> int:
        return len(self._values)

    def touch(self, key: str) -> None:
        """Restart the time of the value: one write, no new timer."""
        self._values[key][1].touch()

    def discard(self, key: str) -> None:
        """Remove a value without a callback."""
        if key in self._values:
            self._values.pop(key)[1].cancel()

    def _expire(self, key: str) -> None:
        value, _ = self._values.pop(key)
        self.on_expire(key, value)


def say(text: str) -> None:
    """Print with the time."""
    print(f"{asyncio.get_running_loop().time():.0f} s: {text}")


async def main() -> None:
    """Let one value expire, touch one, and replace one."""
    cache = TTLCache[object](60, lambda key, value: say(f"{key} has expired: {value}"))
    cache["users"], cache["prices"], cache["rates"] = "4,711", [1, 2], "old"
    say(f"{len(cache)} values")
    await asyncio.sleep(30)
    cache.touch("prices")
    await asyncio.sleep(20)
    cache["rates"] = "new"
    await asyncio.sleep(40.5)
    say(f"{len(cache)} value")
    print("timers left:", len(aiowheel.current_timer()))


with asyncio.Runner(loop_factory=VirtualClockEventLoop) as runner:
    runner.run(main())
