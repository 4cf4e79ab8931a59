"""The task that sleeps until the earliest bucket is due. Rank 1."""

from __future__ import annotations

from asyncio import CancelledError, Future, Task, wait
from contextvars import Context

from aiowheel._events import emit
from aiowheel.timer._loop_driver import LoopDriver


class DriverTask:
    """Waits for the driver's alarm and runs one slice for each, until it is stopped.

    Killed from outside (cancelled with everybody else, or by a KeyboardInterrupt that passed
    through a callback), it says so in the log and starts again: no deadline is lost.
    """

    def __init__(self, driver: LoopDriver) -> None:
        self._driver = driver
        self._stopping = False
        driver.ring = self._ring
        self._start()

    def _start(self) -> None:
        loop = self._driver.own_loop
        self._rung: Future[None] = loop.create_future()
        context = Context()
        # Empty: the driver must not keep alive what its creator had in its own.
        self._task: Task[None] = loop.create_task(
            self._drive(), name="aiowheel-driver", context=context
        )
        self._task.add_done_callback(self._on_done, context=context)

    def _ring(self) -> None:
        if not self._rung.done():
            self._rung.set_result(None)

    async def _drive(self) -> None:
        while True:
            await self._rung
            self._rung = self._driver.own_loop.create_future()
            self._driver.run_slice()

    def _on_done(self, task: Task[None]) -> None:
        reason = None if task.cancelled() else task.exception()
        if self._stopping or self._driver.own_loop.is_closed():
            return
        self._start()
        self._driver.wake_again()
        # Last: a log that cannot be written must not cost the deadlines.
        emit("aiowheel.driver_restarted", reason=repr(reason or CancelledError()))

    def abandon(self) -> None:
        """End the task without waiting for it, from any thread: the collector's, say."""
        self._stopping = True
        loop = self._driver.own_loop
        if not loop.is_closed():
            loop.call_soon_threadsafe(self._task.cancel, context=Context())

    async def stop(self) -> None:
        """End the task and wait for its end; must not be called from the task itself."""
        self._stopping = True
        self._task.cancel()
        await wait({self._task})  # not the task itself: its cancellation is not the caller's
