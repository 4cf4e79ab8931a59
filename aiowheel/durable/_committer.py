"""Group commit: operations that arrive while one commit runs form the next one. Rank 4."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from time import perf_counter_ns
from typing import Any, Generic, TypeAlias, TypeVar

from aiowheel.durable._statistics import Counts
from aiowheel.durable._store import Store
from aiowheel.durable.operations import Operation, Put, Result
from aiowheel.errors import BadRowError, DurableTimersClosedError, StoreError

#: The most operations of one call; `schedule_many` writes pieces of this size.
MOST_OPERATIONS = 1000
#: The bytes of payloads after which a commit takes no more operations: PostgreSQL refuses a message
#: of a gigabyte, and other calls wait for the commit.
MOST_BYTES = 2**25

T = TypeVar("T")
Done = Callable[[Result], None]


class _Write(Generic[T]):
    """The operations of one `submit`, all of which are in one commit.

    *future* gets the results that *convert* has converted, or the error.
    """

    __slots__ = ("convert", "future", "operations")

    def __init__(
        self,
        operations: Sequence[Operation],
        future: asyncio.Future[T],
        convert: Callable[[list[Result]], T],
    ) -> None:
        self.operations = operations
        self.future = future
        self.convert = convert

    def succeed(self, results: list[Result]) -> None:
        """Pass the results to the caller."""
        if not self.future.done():
            try:
                self.future.set_result(self.convert(results))
            except Exception as error:
                self.future.set_exception(error)

    def fail(self, error: Exception) -> None:
        """Pass an error to the caller."""
        if not self.future.done():
            self.future.set_exception(error)


class _Settlement:
    """The one operation of a `send`; *done* is called with its result or with the error."""

    __slots__ = ("done", "operations")

    def __init__(self, operation: Operation, done: Done) -> None:
        self.operations = (operation,)
        self.done = done

    def succeed(self, results: list[Result]) -> None:
        """Pass the only result."""
        self.done(results[0])

    def fail(self, error: Exception) -> None:
        """Pass the error."""
        self.done(error)


_Job: TypeAlias = _Write[Any] | _Settlement


class Committer:
    """The only task that writes: it executes operations in the order in which they arrive.

    Args:
        store: The store to commit to.
        owner: The name of this process.
        counts: Counts commits and errors.
        apply: Called with each operation and its result, in the order of execution, before the
            caller gets the result.
        failed: Called after a commit that may or may not have happened.
    """

    def __init__(
        self,
        store: Store,
        owner: str,
        counts: Counts,
        apply: Callable[[Operation, Result], None],
        failed: Callable[[StoreError], None],
    ) -> None:
        self._store = store
        self._owner = owner
        self._counts = counts
        self._apply = apply
        self._failed = failed
        self._jobs: deque[_Job] = deque()
        self._wanted = asyncio.Event()
        self._draining = False  # the last commits are made
        self._closed = False
        self._undelivered: tuple[list[_Job], list[Result]] | None = None  # of the last commit
        # Held until the results of a write are applied, so that results are applied in the order in
        # which the store produced them.
        self._lock = asyncio.Lock()
        self._others = 0  # tasks in `alone`

    def submit(
        self, operations: Sequence[Operation], convert: Callable[[list[Result]], T]
    ) -> asyncio.Future[T]:
        """Execute at most `MOST_OPERATIONS` in the next commit.

        The future's result is `convert(results)`; it is set right after the results were applied.
        If the future is cancelled before the commit begins, its operations are not executed.
        """
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._add(_Write(operations, future, convert))
        return future

    def send(self, operation: Operation, done: Done) -> None:
        """Execute one operation in the next commit and call *done* with its result or error."""
        self._add(_Settlement(operation, done))

    def _add(self, job: _Job) -> None:
        if self._closed:
            job.fail(DurableTimersClosedError("the durable timers are closed"))
            return
        self._jobs.append(job)
        self._wanted.set()

    @asynccontextmanager
    async def alone(self) -> AsyncGenerator[None]:
        """Run the block while no commit runs and the results of all earlier ones are applied."""
        self._others += 1
        try:
            async with self._lock:
                yield
        finally:
            self._others -= 1

    async def run(self) -> None:
        """Commit until cancelled."""
        while True:
            await self._wanted.wait()
            await self._commit_some()
            if not self._jobs:
                self._wanted.clear()

    async def _commit_some(self) -> None:
        """Commit until no operation is waiting, or another task waits to be `alone`."""
        async with self._lock:
            loop = asyncio.get_running_loop()
            while True:
                await self._commit_once()
                if not self._jobs or self._others:
                    self._deliver()
                    return
                # While the store executes the next commit, this process applies the results of the
                # last one and wakes its callers.
                loop.call_soon(self._deliver)

    async def _commit_once(self) -> None:
        """Make one commit, and leave its results to `_deliver`."""
        jobs, operations = self._take()
        if not operations:
            return
        began = perf_counter_ns()
        try:
            try:
                results = await self._execute(operations)
            finally:
                self._deliver()  # the results of the commit before
        except StoreError as error:
            self._fail(jobs, error)
        except asyncio.CancelledError:
            if self._draining:
                for job in jobs:
                    job.fail(DurableTimersClosedError("closed during the commit"))
            else:  # `asyncio.run` has cancelled all tasks; this one starts again
                text = "cancelled during the commit, which may have been made"
                self._fail(jobs, StoreError(text))
            raise
        except Exception as error:
            self._failed(StoreError(f"{type(error).__name__}: {error}"))
            for job in jobs:
                job.fail(error)
            raise
        else:
            self._counts.commits += 1
            self._counts.committed += len(operations)
            self._counts.commit_times.record(perf_counter_ns() - began)
            self._undelivered = jobs, results

    def _fail(self, jobs: Sequence[_Job], error: StoreError) -> None:
        """Report a commit that may have been made to `DurableTimers` and to the callers."""
        self._counts.store_errors += 1
        self._failed(error)
        for job in jobs:
            job.fail(error)

    def _take(self) -> tuple[list[_Job], list[Operation]]:
        """Return jobs for one commit, and their operations."""
        jobs: list[_Job] = []
        operations: list[Operation] = []
        most, size = self._store.most_operations, 0
        while self._jobs and size < MOST_BYTES:
            job = self._jobs[0]
            if operations and len(operations) + len(job.operations) > most:
                break
            self._jobs.popleft()
            if isinstance(job, _Write):  # a settlement has neither a future nor a payload
                if job.future.cancelled():
                    continue
                size += sum([len(each.payload) for each in job.operations if isinstance(each, Put)])
            operations += job.operations
            jobs.append(job)
        return jobs, operations

    def _deliver(self) -> None:
        """Apply the results of the last commit and pass them to its callers, one after the other.

        A caller must act on its results before the results of later operations are applied. For
        example, the next occurrence of a timer comes before a change of that timer.
        """
        if self._undelivered is None:
            return
        jobs, results = self._undelivered
        self._undelivered = None
        apply = self._apply
        place = 0
        for job in jobs:
            first = place
            for operation in job.operations:
                apply(operation, results[place])
                place += 1
            job.succeed(results[first:place])

    async def _execute(self, operations: list[Operation]) -> list[Result]:
        """Execute in one transaction; if the store refuses a value, in as many as isolate it."""
        try:
            return await self._store.commit(self._owner, operations)
        except BadRowError as error:
            if len(operations) == 1:
                return [error]
        middle = len(operations) // 2
        first = await self._execute(operations[:middle])
        return first + await self._execute(operations[middle:])

    async def drained(self) -> None:
        """Return when all operations submitted so far were executed; called before `close`."""
        self._draining = True
        while self._jobs:
            await self._commit_some()
        async with self.alone():
            return

    def close(self) -> None:
        """Refuse further operations, and fail those that are not executed yet."""
        self._closed = True
        while self._jobs:
            self._jobs.popleft().fail(DurableTimersClosedError("the durable timers are closed"))
