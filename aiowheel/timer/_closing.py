"""The end of a timer and of its tasks. Rank 1.

This module is interpreted. `close_timer` is, like every coroutine that suspends: mypyc throws
exceptions into an awaitable by a call that Python 3.12 deprecates. If warnings are errors, the
warning would replace the cancellation. `in_frame` exists because compiled code has no frame.
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


def in_frame(finalize: Callable[[], None]) -> None:
    """Call *finalize* in a frame of this module; compiled finalizers need it.

    If the last reference was a local of a frame that has just returned, the interpreter's current
    frame belongs to the C stack. uvloop calls `sys._getframe` in debug mode, and CPython 3.12 and
    3.13 then make a frame object that soon points to freed memory.
    """
    finalize()
