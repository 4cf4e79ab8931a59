"""The task that sleeps until the earliest bucket is due, and how a timer's tasks end. Rank 1.

Interpreted, as is every coroutine that suspends: mypyc's would end the wait by a call that Python
3.12 deprecates, and where warnings are errors that hides the cancellation.
"""

from __future__ import annotations

from asyncio import Task, wait
from collections.abc import Callable
from contextvars import Context

from aiowheel._events import emit
from aiowheel.timer._driver import Bell, LoopDriver
from aiowheel.timer._periodic_tasks import PeriodicTasks


class DriverTask:
    """Awaits the driver's alarm and runs one slice for each, until it is stopped.

    Cancelled together with every other task, or ended by a KeyboardInterrupt that passed through a
    callback, it starts again: no deadline is lost.
    """

    def __init__(self, driver: LoopDriver) -> None:
        self._driver = driver
        self._stopping = False
        self._start()

    def _start(self) -> None:
        loop = self._driver.own_loop
        bell = Bell(loop)
        self._driver.on_wake = bell.ring
        # Empty: the driver must not keep alive what its creator had in its own context.
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
        if error is not None:  # a cancellation is ordinary: `asyncio.run` cancels every task
            emit("aiowheel.driver_restarted", reason=repr(error))

    def abandon(self) -> None:
        """End the task without waiting for it, from any thread: a finalizer may run in any."""
        self._stopping = True
        loop = self._driver.own_loop
        if not loop.is_closed():
            loop.call_soon_threadsafe(self._task.cancel, context=Context())

    async def stop(self) -> None:
        """End the task and wait for its end; must not be called from the task itself."""
        self._stopping = True
        self._task.cancel()
        await wait({self._task})  # not the task itself: its cancellation is not the caller's


async def close_timer(
    close: Callable[[], None], driver_task: DriverTask | None, tasks: PeriodicTasks | None
) -> None:
    """Call *close*, then stop both kinds of tasks and wait for their end."""
    close()
    if driver_task is not None:
        await driver_task.stop()
    if tasks is not None:
        await tasks.aclose()
