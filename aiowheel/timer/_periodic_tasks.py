"""The tasks in which the coroutines of periodic calls run. Rank 1.

They run in one task group, whose task is not the driver task: a restart of the driver task must not
cancel them. This module is interpreted, like every coroutine that suspends; see `_closing.py`.
"""

from __future__ import annotations

from asyncio import (
    AbstractEventLoop,
    CancelledError,
    Event,
    Task,
    current_task,
    get_running_loop,
    iscoroutine,
    wait,
)
from asyncio.events import _get_running_loop
from collections.abc import Awaitable, Coroutine
from contextvars import Context
from typing import TYPE_CHECKING, Protocol

from aiowheel._callbacks import is_coroutine_function

if TYPE_CHECKING:
    from anyio.abc import TaskGroup

_Coroutine = Coroutine[object, object, None]
_Run = tuple[_Coroutine, Awaitable[object], Context]


class Call(Protocol):
    """The methods of a periodic call that the task of its coroutine calls."""

    def ended(self, error: BaseException | None) -> None:
        """Handle the end of the coroutine: it returned, raised *error*, or was cancelled."""
        ...

    def drop(self) -> None:
        """Stop the calls."""
        ...


class PeriodicTasks:
    """The running coroutines of one timer's periodic calls.

    Args:
        outlives_cancelling: Whether a new task group replaces one that was cancelled from outside,
            as by `asyncio.run`, which cancels every task at its end. Otherwise the periodic calls
            with coroutines stop then.
    """

    def __init__(self, *, outlives_cancelling: bool) -> None:
        self._outlives_cancelling = outlives_cancelling
        self._host: Task[None] | None = None
        self._group: TaskGroup | None = None
        # Each coroutine of `_run`, the object that it awaits, and its context. `_on_done` closes a
        # coroutine that never starts.
        self._not_begun: dict[Call, _Run] = {}
        self._waiting: list[Call] = []  # those of `_not_begun` that have no task yet
        self._withdrawn: set[Call] = set()  # calls that were cancelled before they began
        self._running: dict[Call, Task[object] | None] = {}
        self._cut_short: list[Call] = []  # cancelled by the end of the group; continued after it
        self._wanted = Event()  # a call waits for its task, or the group must end
        self._stopping = False
        self._ended = False

    def prepare(self, function: object) -> None:
        """Open the group for a coroutine *function*, so that the import of anyio delays no tick."""
        loop = _get_running_loop()
        if loop is not None and self._host is None and is_coroutine_function(function):
            self._open(loop)

    def start(self, call: Call, awaitable: Awaitable[object], context: Context) -> None:
        """Await *awaitable* in the task group in a copy of *context*, then call `ended`.

        Raises:
            RuntimeError: No loop is running, which is possible only with a `ManualTimer`.
        """
        if self._ended:
            _discard(awaitable)
            call.drop()
            return
        if self._host is None:
            try:
                self._open(get_running_loop())
            except RuntimeError:
                _discard(awaitable)
                raise
        self._not_begun[call] = (self._run(call, awaitable), awaitable, context)
        self._waiting.append(call)
        self._wanted.set()

    def _spawn_waiting(self, group: TaskGroup) -> None:
        """Create the tasks of the waiting calls; in a task, because anyio may look for one."""
        calls, self._waiting = self._waiting, []
        for call in calls:
            self._spawn(group, *self._not_begun[call])

    @staticmethod
    def _spawn(group: TaskGroup, run: _Coroutine, _: object, context: Context) -> None:
        def coroutine() -> _Coroutine:
            return run

        context.run(group.start_soon, coroutine)

    def _is_dying(self) -> bool:
        """Return whether the group is ending; new calls then wait for `_on_done`."""
        host, group = self._host, self._group
        return (
            self._stopping
            or (host is not None and host.cancelling() > 0)
            or (group is not None and group.cancel_scope.cancel_called)
        )

    def _open(self, loop: AbstractEventLoop) -> None:
        if not self._ended:
            self._stopping = False
        self._wanted = Event()  # an event belongs to the loop in which it was awaited
        coroutine = self._serve()
        try:
            # Without options, because a task factory may have none.
            self._host = Context().run(loop.create_task, coroutine)
        except BaseException:
            coroutine.close()  # otherwise Python warns that it was never awaited
            raise
        self._host.set_name("aiowheel-periodic")
        self._host.add_done_callback(self._on_done)

    async def _serve(self) -> None:
        from anyio import create_task_group  # takes 25 ms to import, and only coroutines need it

        cancelled: CancelledError | None = None
        try:
            async with create_task_group() as group:
                self._group = group
                try:
                    while not self._is_dying():
                        self._wanted.clear()
                        if not self._ended:
                            self._spawn_waiting(group)
                        await self._wanted.wait()
                except CancelledError as error:
                    cancelled = error
                self._cancel_running()
        finally:
            self._group = None
        if cancelled is not None:
            raise cancelled

    def _cancel_running(self) -> None:
        """Cancel each coroutine once, so that it can await in its clean-up.

        The group must not do this: its cancel scope interrupts every further `await`. Therefore no
        cancellation is raised inside the group, neither here nor in `_run`.
        """
        # `asyncio.run`, for example, cancels the group and the coroutines.
        is_cancelled = self._host is not None and self._host.cancelling() > 0
        for task in list(self._running.values()):
            if task is not None and not (is_cancelled and task.cancelling()):
                task.cancel()

    def _on_done(self, host: Task[None]) -> None:
        self._host = None
        if host.cancelled():
            self._ended = self._ended or not self._outlives_cancelling
        elif isinstance(error := host.exception(), Exception):
            # KeyboardInterrupt and SystemExit are no Exception; the loop has raised them.
            host.get_loop().call_exception_handler(
                {
                    "message": "Exception in the task group of periodic calls",
                    "exception": error,
                    "task": host,
                }
            )
        for run, awaitable, _ in self._not_begun.values():
            run.close()
            _discard(awaitable)
        calls, self._cut_short = [*self._cut_short, *self._not_begun], []
        self._not_begun, self._waiting = {}, []
        self._withdrawn.clear()
        for call in calls:
            if self._ended:
                call.drop()
            else:
                call.ended(None)

    async def _run(self, call: Call, awaitable: Awaitable[object]) -> None:
        del self._not_begun[call]
        if self._is_dying():
            _discard(awaitable)
            self._cut_short.append(call)
            return
        if call in self._withdrawn:
            self._withdrawn.discard(call)
            _discard(awaitable)
            call.ended(None)
            return
        error: BaseException | None = None
        loop, task = get_running_loop(), current_task()
        self._running[call] = task
        try:
            await awaitable
        except Exception as raised:  # one failing run must end neither the others nor the schedule
            error = raised
        except CancelledError:
            # The cancellation of this call alone is no error; raised, it would cancel the group.
            if self._is_dying():
                self._cut_short.append(call)
                return
        except BaseException as raised:
            # GeneratorExit closes this coroutine if no step of the task raises it.
            is_closed = isinstance(raised, GeneratorExit) and current_task(loop) is not task
            if is_closed or isinstance(raised, (SystemExit, KeyboardInterrupt)):
                if self._is_dying():
                    self._cut_short.append(call)
                else:
                    call.ended(None)
                raise
            error = raised
        finally:
            self._running.pop(call, None)
        call.ended(error)

    def cancel(self, call: Call) -> None:
        """Cancel the running coroutine of *call*, if there is one."""
        if call in self._not_begun:
            self._withdrawn.add(call)
        elif (task := self._running.get(call)) is not None:
            task.cancel()

    def close(self) -> None:
        """Start no more coroutines."""
        self._ended = True

    def abandon(self) -> None:
        """Cancel the running coroutines without waiting; finalizers call this in any thread."""
        host = self._host
        if host is not None and not host.get_loop().is_closed():
            host.get_loop().call_soon_threadsafe(self._end_group, context=Context())

    def stop(self) -> None:
        """Start no more coroutines and cancel the running ones; on the loop's thread."""
        self.close()
        self._end_group()

    def _end_group(self) -> None:
        self._stopping = True
        self._wanted.set()

    async def join(self) -> None:
        """Wait until the running coroutines have ended."""
        if self._host is not None:
            await wait({self._host})


def _discard(awaitable: Awaitable[object]) -> None:
    if iscoroutine(awaitable):
        awaitable.close()
