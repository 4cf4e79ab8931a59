"""The driver of a loop's own timers: it fires and reports as the loop would. Rank 3."""

from __future__ import annotations

from asyncio import AbstractEventLoop, BaseEventLoop
from asyncio.log import logger
from collections.abc import Callable
from typing import Any, Final, cast

from mypy_extensions import i64

from aiowheel._units import FOREVER, ns_to_seconds
from aiowheel.loop._loop_handle import LoopHandle
from aiowheel.loop._watched import Watched
from aiowheel.timer._alarm import Alarm
from aiowheel.timer._loop_driver import LoopDriver
from aiowheel.wheel._entry import TimerEntry

_TICK_NS: Final = 1_000_000  # epoll and uvloop tell no less apart
_WHEEL_SIZE: Final = 256


class SliceTimed(BaseException):
    """Raised into uvloop in debug mode; the loop's exception handler is not told."""


class WheelDriver(LoopDriver):
    """Turns the wheel of a loop.

    Args:
        loop: Whose timers they are.
        call_at: Its own former `call_at`.
    """

    def __init__(self, loop: AbstractEventLoop, call_at: Callable[..., object]) -> None:
        super().__init__(loop, _TICK_NS, _WHEEL_SIZE, call_at)
        self.debug = False
        self.is_asyncios = isinstance(loop, BaseEventLoop)

    def watched(self) -> Watched:
        """New notes for debug mode."""
        return Watched(self.own_loop if self.is_asyncios else None)

    def run_slice(self) -> None:
        if not self.wheel.pass_is_open():
            self._sort_overdue()
        super().run_slice()
        if self.debug and not self.is_asyncios:
            # uvloop would time the slice and name us; it times nothing that raises. Each callback
            # has been timed by itself.
            raise SliceTimed

    def _sort_overdue(self) -> None:
        """What was armed for a time already past goes by its times, as in asyncio's heap."""
        overdue = self.wheel._overdue
        entries: list[TimerEntry] = list(overdue)
        last: i64 = -FOREVER
        for entry in entries:
            if entry._deadline < last:
                break
            last = entry._deadline
        else:
            return
        overdue.unlink_all()
        for entry in sorted(entries, key=_deadline):
            overdue.append(entry)

    def _fire(self, alarm: Alarm, now: i64) -> i64:
        handle = cast(LoopHandle, alarm)
        if self.debug:
            return self._fire_watched(handle, now)
        return self._fire_unwatched(handle, now)

    def _fire_unwatched(self, handle: LoopHandle, now: i64) -> i64:
        try:
            return super()._fire(handle, now)
        except BaseException:  # SystemExit or KeyboardInterrupt, which leave the loop
            handle.forget()
            raise

    def _fire_watched(self, handle: LoopHandle, now: i64) -> i64:
        """Have slow callbacks named: asyncio's loop does that itself, uvloop would name us."""
        if handle._watched is None:  # armed before debug mode was on
            handle._watched = self.watched()
        if self.is_asyncios:
            return self._fire_unwatched(handle, now)
        likeness = handle.likeness()
        after = self._fire_unwatched(handle, now)
        seconds = ns_to_seconds(after - now)
        loop: Any = self.own_loop
        if seconds > loop.slow_callback_duration:
            logger.warning("Executing %r took %.3f seconds", likeness, seconds)
        return after

    def report(self, context: dict[str, object]) -> None:
        handle = cast(LoopHandle, context["handle"])
        context["message"] = f"Exception in callback {handle.words()}"
        watched = handle._watched
        if watched is not None and watched.source_traceback is not None:
            context["source_traceback"] = watched.source_traceback
        try:
            super().report(context)
        finally:
            handle.forget()


def _deadline(entry: TimerEntry) -> int:
    return entry._deadline
