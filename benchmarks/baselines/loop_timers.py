"""Timers without a library: one loop timer per request."""

import asyncio
from collections.abc import Callable
from typing import cast

from benchmarks.baselines._parking import Parked


class LoopTimers:
    """`Timers` on the running loop."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._expire: Callable[[Parked], None] | None = None  # set by the first turn

    def add(self, request: Parked, deadline: float) -> None:
        """Arm a timer of the loop."""
        request.timer = self._loop.call_at(deadline, self._fire, request)

    def remove(self, request: Parked) -> None:
        """Cancel the timer."""
        cast(asyncio.TimerHandle, request.timer).cancel()  # uvloop's own class has the same methods
        request.timer = None

    def turn(self, now: float, expire: Callable[[Parked], None]) -> None:  # noqa: ARG002
        """Store *expire*; the loop runs the timers itself."""
        self._expire = expire

    def _fire(self, request: Parked) -> None:
        assert self._expire is not None
        self._expire(request)
