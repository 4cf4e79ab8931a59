"""How a timer ends: closed at once, then its tasks are waited for. Rank 1."""

from __future__ import annotations

from collections.abc import Callable

from aiowheel.timer._driver_task import DriverTask
from aiowheel.timer._jobs import Jobs


async def end(close: Callable[[], None], driver: DriverTask | None, jobs: Jobs | None) -> None:
    """Call *close*, then stop what runs."""
    close()
    if driver is not None:
        await driver.stop()
    if jobs is not None:
        await jobs.aclose()
