"""What a timer tells about itself. Rank 1."""

from __future__ import annotations

from dataclasses import dataclass

from aiowheel.timer._driver import Driver
from aiowheel.timer._histogram import Histogram


@dataclass(frozen=True, slots=True)
class TimerStatistics:
    """A snapshot of one timer.

    Attributes:
        pending: Deadlines that wait.
        scheduled: Deadlines ever armed.
        fired: Deadlines ever fired.
        cancelled: Deadlines ever cancelled, those dropped by closing included.
        rescheduled: Deadlines ever moved.
        wakeups: Times the driver woke up.
        cascaded: Times a deadline was filed again, into a finer level or behind a later deadline.
        callback_errors: Callbacks that raised.
        lateness: Fired minus deadline, a histogram in seconds.
    """

    pending: int
    scheduled: int
    fired: int
    cancelled: int
    rescheduled: int
    wakeups: int
    cascaded: int
    callback_errors: int
    lateness: Histogram


def statistics_of(driver: Driver) -> TimerStatistics:
    """Read a driver's counts. O(size of the lateness histogram)."""
    return TimerStatistics(
        pending=driver.pending,
        scheduled=driver.scheduled,
        fired=driver.fired,
        cancelled=driver.cancelled,
        rescheduled=driver.rescheduled,
        wakeups=driver.wakeups,
        cascaded=driver.cascaded,
        callback_errors=driver.callback_errors,
        lateness=driver.lateness.copy(),
    )
