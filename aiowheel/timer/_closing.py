"""The end of a timer's tasks. Rank 1.

This module is interpreted, like every coroutine that suspends: mypyc throws exceptions into an
awaitable by a call that Python 3.12 deprecates. If warnings are errors, the warning would replace
the cancellation.
"""

from __future__ import annotations

from asyncio import wait
from collections.abc import Callable

from aiowheel.timer._driver import DriverTask
from aiowheel.timer._periodic_tasks import PeriodicTasks


async def close_timer(
    close: Callable[[], None], driver_task: DriverTask | None, tasks: PeriodicTasks | None
) -> None:
    """Call *close*, then stop the driver task and the periodic tasks and wait for their end.

    All are stopped before the first wait: a cancellation of this coroutine leaves none running.
    """
    close()
    if tasks is not None:
        tasks.stop()
    if driver_task is not None:
        await wait({driver_task.cancel()})  # awaiting the task would raise its cancellation here
    if tasks is not None:
        await tasks.join()
