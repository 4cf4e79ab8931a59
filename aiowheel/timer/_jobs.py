"""Where the coroutines of periodic jobs run: one task group on a task of its own. Rank 1.

Not the driver's task: killing that one must not cancel what it has started.
"""

from __future__ import annotations

import inspect
from asyncio import AbstractEventLoop, CancelledError, Event, Task, get_running_loop, wait
from asyncio.events import _get_running_loop
from collections.abc import Awaitable, Coroutine
from contextvars import Context
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from anyio.abc import TaskGroup

#: What is to be run, what it awaits, and where: one that never begins must be closed by hand.
_Run = tuple[Coroutine[object, object, None], Awaitable[object], Context]


class Job(Protocol):
    """What has started a coroutine, and wants to know how it ended."""

    def ended(self, error: BaseException | None) -> None:
        """The coroutine has returned, raised *error*, or was cancelled."""
        ...

    def drop(self) -> None:
        """Nothing will run any more."""
        ...


class Jobs:
    """The running coroutines of one timer's periodic jobs.

    Args:
        outlives_cancelling: What to do when the task group is cancelled from outside, as
            `asyncio.run` does to every task when it ends: true goes on with another group, false
            drops the jobs that ran and every one that wants to start.
    """

    def __init__(self, *, outlives_cancelling: bool) -> None:
        self._outlives_cancelling = outlives_cancelling
        self._host: Task[None] | None = None
        self._group: TaskGroup | None = None
        self._not_begun: dict[Job, _Run] = {}
        self._cut_short: list[Job] = []  # by the end of the group, for which they wait
        self._stop = Event()
        self._ended = False

    def prepare(self, function: object) -> None:
        """Open the group for a coroutine *function*: what it has to load must not delay a tick."""
        loop = _get_running_loop()
        if loop is not None and self._host is None and inspect.iscoroutinefunction(function):
            self._open(loop)

    def start(self, job: Job, awaitable: Awaitable[object], context: Context) -> None:
        """Await *awaitable* in the task group and a copy of *context*, then tell *job*.

        Raises:
            RuntimeError: No loop is running, for a timer that needs none otherwise.
        """
        if self._ended:
            _discard(awaitable)
            job.drop()
            return
        if self._host is None:
            try:
                self._open(get_running_loop())
            except RuntimeError:
                _discard(awaitable)
                raise
        self._not_begun[job] = (self._run(job, awaitable), awaitable, context)
        if self._group is not None and not self._is_dying():
            self._spawn(self._group, job)

    def _spawn(self, group: TaskGroup, job: Job) -> None:
        run, _, context = self._not_begun[job]

        def coroutine() -> Coroutine[object, object, None]:
            return run

        context.run(group.start_soon, coroutine)

    def _is_dying(self) -> bool:
        """Whether the group is being cancelled: what starts now waits for `_on_done`."""
        host, group = self._host, self._group
        return (host is not None and host.cancelling() > 0) or (
            group is not None and group.cancel_scope.cancel_called
        )

    def _open(self, loop: AbstractEventLoop) -> None:
        self._host = loop.create_task(self._serve(), name="aiowheel-jobs", context=Context())
        self._host.add_done_callback(self._on_done)

    async def _serve(self) -> None:
        from anyio import create_task_group  # 25 ms to load: not for timers without coroutines

        try:
            async with create_task_group() as group:
                self._group = group
                if not self._ended:
                    for job in list(self._not_begun):  # an eager task begins at once
                        self._spawn(group, job)
                await self._stop.wait()
                group.cancel_scope.cancel()
        finally:
            self._group = None

    def _on_done(self, host: Task[None]) -> None:
        self._host = None
        if host.cancelled():
            self._ended = self._ended or not self._outlives_cancelling
        else:
            host.exception()  # KeyboardInterrupt or SystemExit, which has left the loop by itself
        for run, awaitable, _ in self._not_begun.values():
            run.close()
            _discard(awaitable)
        jobs, self._cut_short = [*self._cut_short, *self._not_begun], []
        self._not_begun = {}
        for job in jobs:
            if self._ended:
                job.drop()
            else:
                job.ended(None)

    async def _run(self, job: Job, awaitable: Awaitable[object]) -> None:
        del self._not_begun[job]
        error: BaseException | None = None
        try:
            await awaitable
        except Exception as raised:  # one bad run must not end the others, nor the job
            error = raised
        except BaseException as raised:
            if self._is_dying():
                self._cut_short.append(job)
                raise
            if isinstance(raised, (SystemExit, KeyboardInterrupt, GeneratorExit)):
                job.ended(None)
                raise
            # A cancellation of its own the group would take for one of all; it is no error.
            error = None if isinstance(raised, CancelledError) else raised
        job.ended(error)

    def close(self) -> None:
        """Begin nothing more."""
        self._ended = True

    def abandon(self) -> None:
        """Cancel what runs without waiting for it, from any thread: the collector's, say."""
        host = self._host
        if host is not None and not host.get_loop().is_closed():
            host.get_loop().call_soon_threadsafe(self._stop.set, context=Context())

    async def aclose(self) -> None:
        """Cancel what runs and wait for its end; idempotent."""
        self.close()
        self._stop.set()
        if self._host is not None:
            await wait({self._host})


def _discard(awaitable: Awaitable[object]) -> None:
    if inspect.iscoroutine(awaitable):
        awaitable.close()
