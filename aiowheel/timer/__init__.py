"""The wheel made to run: timers, handles, sleeps and timeouts on an event loop. Rank 1."""

from aiowheel.timer._handle import TimerHandle as TimerHandle
from aiowheel.timer._manual import ManualTimer as ManualTimer
from aiowheel.timer._periodic import Periodic as Periodic
from aiowheel.timer._shared import call_at as call_at
from aiowheel.timer._shared import call_later as call_later
from aiowheel.timer._shared import current_timer as current_timer
from aiowheel.timer._shared import every as every
from aiowheel.timer._shared import interval as interval
from aiowheel.timer._shared import move_on_after as move_on_after
from aiowheel.timer._shared import move_on_at as move_on_at
from aiowheel.timer._shared import sleep as sleep
from aiowheel.timer._shared import timeout as timeout
from aiowheel.timer._shared import timeout_at as timeout_at
from aiowheel.timer._shared import wait_for as wait_for
from aiowheel.timer._statistics import Histogram as Histogram
from aiowheel.timer._statistics import TimerStatistics as TimerStatistics
from aiowheel.timer._threads import ThreadsafeHandle as ThreadsafeHandle
from aiowheel.timer._timeout import MoveOn as MoveOn
from aiowheel.timer._timeout import Timeout as Timeout
from aiowheel.timer._timer import Timer as Timer

__all__ = (
    "Histogram",
    "ManualTimer",
    "MoveOn",
    "Periodic",
    "ThreadsafeHandle",
    "Timeout",
    "Timer",
    "TimerHandle",
    "TimerStatistics",
    "call_at",
    "call_later",
    "current_timer",
    "every",
    "interval",
    "move_on_after",
    "move_on_at",
    "sleep",
    "timeout",
    "timeout_at",
    "wait_for",
)
