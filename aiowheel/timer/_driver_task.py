"""The task that sleeps until the earliest bucket is due, and the end of a timer's tasks. Rank 1.

This module is interpreted, like every coroutine that suspends: mypyc throws exceptions into an
awaitable by a call that Python 3.12 deprecates. If warnings are errors, the warning would replace
the cancellation.
"""

from __future__ import annotations

from asyncio import Task, wait
from collections.abc import Callable
from contextvars import Context

from aiowheel._events import emit
from aiowheel.timer._driver import Bell, LoopDriver
from aiowheel.timer._periodic_tasks import PeriodicTasks


class DriverTask:
    """The task of a driver: it awaits the alarm and runs one slice for each.

    The task starts again after a cancellation of all tasks, and after a KeyboardInterrupt in a
    callback, so that no deadline is lost.
    """

    def __init__(self, driver: LoopDriver) -> None:
        self._driver = driver
        self._stopping = False
        self._start()

    def _start(self) -> None:
        loop = self._driver.own_loop
        bell = Bell(loop)
        self._driver.on_wake = bell.ring
        # An empty context, because a copy of the creator's context would keep its values alive.
        context = Context()
        self._task: Task[None] = loop.create_task(
            self._drive(bell), name="aiowheel-driver", context=context
        )
        self._task.add_done_callback(self._on_done, context=context)

    async def _drive(self, bell: Bell) -> None:
        while True:
            await bell
            self._driver.run_slice()

    def _on_done(self, task: Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        if self._stopping or self._driver.own_loop.is_closed():
            return
        self._start()
        self._driver.wake_again()
        if error is not None:  # a cancellation is not logged: `asyncio.run` cancels every task
            emit("aiowheel.driver_restarted", reason=repr(error))

    def abandon(self) -> None:
        """End the task without waiting for it; finalizers call this in any thread."""
        self._stopping = True
        loop = self._driver.own_loop
        if not loop.is_closed():
            loop.call_soon_threadsafe(self._task.cancel, context=Context())

    async def stop(self) -> None:
        """End the task and wait for its end; must not be called from the task itself."""
        self._stopping = True
        self._task.cancel()
        await wait({self._task})  # awaiting the task itself would raise its cancellation here


async def close_timer(
    close: Callable[[], None], driver_task: DriverTask | None, tasks: PeriodicTasks | None
) -> None:
    """Call *close*, then stop the driver task and the periodic tasks and wait for their end.

    Both are stopped before the first wait: a cancellation of this coroutine leaves none running.
    """
    close()
    if tasks is not None:
        tasks.stop()
    if driver_task is not None:
        await driver_task.stop()
    if tasks is not None:
        await tasks.join()
