"""Background tasks, their end, and the loop to which they belong. Rank 4."""

from __future__ import annotations

import asyncio
from asyncio.events import _get_running_loop
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from aiowheel._events import emit
from aiowheel._printable import error_repr
from aiowheel.timer._driver import foreign_loop_error

T = TypeVar("T")


def check_loop(what: str, loop: asyncio.AbstractEventLoop) -> None:
    """Check that the caller runs in *loop*.

    Args:
        what: The object and its verb, for the text of the error: "the timers belong".
        loop: The loop of the object's background tasks.

    Raises:
        ForeignLoopError: The caller runs in another loop.
    """
    if _get_running_loop() is not loop:
        raise foreign_loop_error(what, loop, "asyncio.run_coroutine_threadsafe")


class LastingTask:
    """A task that runs until `cancel` or `end`; it starts again after any other cancellation.

    An exception of the task is logged as `aiowheel.background_task_failed`.

    `asyncio.run` cancels all tasks when its main task has ended, and so do some test tools. Tasks
    that are cleaning up then may still call the object to which the background task belongs, and
    without that task they would wait forever.

    Args:
        run: The coroutine function; when it is called again, it must go on where it was cancelled.
        name: The name of the task.
    """

    def __init__(self, run: Callable[[], Coroutine[Any, Any, None]], name: str) -> None:
        self._run = run
        self._name = name
        self._ending = False
        self._start()

    def _start(self) -> None:
        loop = asyncio.get_running_loop()
        self._task = loop.create_task(self._run(), name=self._name)
        self._task.add_done_callback(self._on_done)

    def _on_done(self, task: asyncio.Task[None]) -> None:
        if task.cancelled():
            if not self._ending:
                self._start()
        elif (error := task.exception()) is not None:  # a defect, or an exit of the program
            emit("aiowheel.background_task_failed", task=self._name, error=error_repr(error))

    def cancel(self) -> None:
        """Cancel the task for good."""
        self._ending = True
        self._task.cancel()

    async def end(self) -> None:
        """Cancel the task for good, and wait for its end."""
        self._ending = True
        await end_task(self._task)


async def end_task(task: asyncio.Task[None] | None) -> None:
    """Cancel *task* and wait for its end; its exception is dropped.

    A client of a server may swallow a cancellation that arrives together with a timeout or a lost
    connection, so the task is cancelled until it has ended.
    """
    if task is None:
        return
    while not task.done():
        task.cancel()
        await asyncio.wait([task], timeout=0.1)
    if not task.cancelled():
        task.exception()


def settle(future: asyncio.Future[T], outcome: T | BaseException) -> None:
    """Give *future* its result or its exception, unless the task that awaits it was cancelled."""
    if future.done():
        return
    if isinstance(outcome, BaseException):
        future.set_exception(outcome)
        future.exception()  # marks it as retrieved: asyncio must not log it if no caller waits
    else:
        future.set_result(outcome)
