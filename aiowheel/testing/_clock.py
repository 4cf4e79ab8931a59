"""The handle by which a test reads and moves the virtual clock. Rank 4."""

from __future__ import annotations

import asyncio
from contextlib import AbstractContextManager

from aiowheel._arguments import checked_bool
from aiowheel._types import Delay
from aiowheel.errors import NotVirtualError
from aiowheel.testing._loop import VirtualClockEventLoop

_REMEDY = (
    "run the test on aiowheel.testing.VirtualClockEventLoop: mark it "
    "@pytest.mark.virtual_time, with pytest-asyncio 1.4 or later or with anyio's plugin; without "
    "them, use asyncio.Runner(loop_factory=VirtualClockEventLoop)"
)


class VirtualClock:
    """The clock of the `VirtualClockEventLoop` that is running at the time of a call.

    Raises:
        NotVirtualError: At every use, if no loop or a loop of another class is running.
    """

    @property
    def loop(self) -> VirtualClockEventLoop:
        """The running loop."""
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            raise NotVirtualError(
                "no event loop is running; use the clock in a coroutine, which may be that of an "
                f"async fixture, and {_REMEDY}"
            ) from None
        if isinstance(loop, VirtualClockEventLoop):
            return loop
        if type(loop).__module__.partition(".")[0] in {"uvloop", "winloop"}:
            raise NotVirtualError(
                f"{loop!r} cannot be virtual: uvloop reads the time inside libuv; {_REMEDY}"
            )
        raise NotVirtualError(f"{loop!r} runs on the real clock; {_REMEDY}")

    def time(self) -> float:
        """Return the reading of the clock, in seconds."""
        return self.loop.time()

    async def advance(self, seconds: Delay) -> None:
        """See `VirtualClockEventLoop.advance`."""
        await self.loop.advance(seconds)

    def freeze(self) -> AbstractContextManager[None]:
        """See `VirtualClockEventLoop.freeze`."""
        return self.loop.freeze()

    @property
    def autojump(self) -> bool:
        """Whether time passes by itself; writable."""
        return self.loop.autojump

    @autojump.setter
    def autojump(self, on: bool) -> None:
        self.loop.autojump = checked_bool("autojump", on)
