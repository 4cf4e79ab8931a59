"""Group commit: operations that arrive while one commit runs form the next one. Rank 4."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from time import perf_counter_ns
from typing import Any, TypeVar

from aiowheel.durable._operations import Operation, Result
from aiowheel.durable._statistics import Counts
from aiowheel.durable._store import Store
from aiowheel.errors import BadRowError, DurableTimersClosedError, StoreError

#: The most operations of one commit; a list of `schedule_many` is cut into pieces of this size.
MOST_OPERATIONS = 1000

T = TypeVar("T")
Done = Callable[[list[Result] | Exception], None]


class Committer:
    """The only task that writes: it executes operations in the order in which they arrive.

    Args:
        store: Where to commit.
        owner: The name of this process.
        counts: Counts commits and errors.
        apply: Gets each operation and its result, in the order of execution, before the caller.
        failed: Is called after a commit that may or may not have happened.
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
        self._jobs: deque[tuple[Sequence[Operation], Done, asyncio.Future[Any] | None]] = deque()
        self._wanted = asyncio.Event()
        self._closed = False
        #: Held while the store is written to and while the results are applied, so that results
        #: are applied in the order in which the store produced them.
        self.lock = asyncio.Lock()

    def submit(
        self, operations: Sequence[Operation], convert: Callable[[list[Result]], T]
    ) -> asyncio.Future[T]:
        """Execute at most `MOST_OPERATIONS` in the next commit.

        The future has what *convert* makes of the results, right after they were applied. A future
        that is cancelled before the commit begins takes its operations along.
        """
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()

        def deliver(results: list[Result] | Exception) -> None:
            if future.done():
                return
            try:
                if isinstance(results, Exception):
                    raise results  # noqa: TRY301 - one way for both kinds of errors
                future.set_result(convert(results))
            except Exception as error:
                future.set_exception(error)

        self._add(operations, deliver, future)
        return future

    def send(self, operation: Operation, done: Done) -> None:
        """Execute one operation in the next commit and call *done* with its result or error."""
        self._add((operation,), done, None)

    def _add(
        self,
        operations: Sequence[Operation],
        done: Done,
        future: asyncio.Future[Any] | None,
    ) -> None:
        if self._closed:
            done(DurableTimersClosedError("the durable timers are closed"))
            return
        self._jobs.append((operations, done, future))
        if not self._wanted.is_set():
            self._wanted.set()

    async def run(self) -> None:
        """Commit until cancelled."""
        while True:
            await self._wanted.wait()
            async with self.lock:
                await self._commit_once()
            if not self._jobs:
                self._wanted.clear()

    async def _commit_once(self) -> None:
        operations, takers = self._take()
        if not operations:
            return
        began = perf_counter_ns()
        outcome: list[Result] | Exception
        try:
            outcome = await self._execute(operations)
        except StoreError as error:
            self._counts.store_errors += 1
            self._failed(error)
            outcome = error
        except asyncio.CancelledError:
            self._deliver(takers, DurableTimersClosedError("closed during the commit"))
            raise
        except Exception as error:
            self._failed(StoreError(f"{type(error).__name__}: {error}"))
            self._deliver(takers, error)
            raise
        else:
            self._counts.commits += 1
            self._counts.committed += len(operations)
            self._counts.commit_times.record(perf_counter_ns() - began)
        self._deliver(takers, outcome, operations)

    def _take(self) -> tuple[list[Operation], list[tuple[int, Done]]]:
        """Return operations for one commit, and whose they are: how many for which caller."""
        operations: list[Operation] = []
        takers: list[tuple[int, Done]] = []
        while self._jobs:
            more, done, future = self._jobs[0]
            if operations and len(operations) + len(more) > MOST_OPERATIONS:
                break
            self._jobs.popleft()
            if future is None or not future.cancelled():
                operations.extend(more)
                takers.append((len(more), done))
        return operations, takers

    def _deliver(
        self,
        takers: list[tuple[int, Done]],
        outcome: list[Result] | Exception,
        operations: Sequence[Operation] = (),
    ) -> None:
        """Apply results and pass them on, caller by caller.

        What a caller does with its results must come before the results of later operations: the
        next occurrence of a timer, for example, before a change of that timer.
        """
        first = 0
        for count, done in takers:
            if isinstance(outcome, StoreError):
                # An error of its own for each caller: a traceback grows where it is raised.
                own = type(outcome)(*outcome.args)
                own.__cause__ = outcome.__cause__
                done(own)
            elif isinstance(outcome, Exception):
                done(outcome)
            else:
                for place in range(first, first + count):
                    self._apply(operations[place], outcome[place])
                done(outcome[first : first + count])
            first += count

    async def _execute(self, operations: list[Operation]) -> list[Result]:
        """Execute in one transaction; if a value is refused, in as many as isolate it."""
        try:
            return await self._store.commit(self._owner, operations)
        except BadRowError as error:
            if len(operations) == 1:
                return [error]
        middle = len(operations) // 2
        first = await self._execute(operations[:middle])
        return first + await self._execute(operations[middle:])

    async def drained(self) -> None:
        """Return when all operations submitted so far were executed."""
        while self._jobs:
            async with self.lock:
                await self._commit_once()
        async with self.lock:
            return

    def close(self) -> None:
        """Refuse further operations and fail the waiting ones."""
        self._closed = True
        while self._jobs:
            _, done, _ = self._jobs.popleft()
            done(DurableTimersClosedError("the durable timers are closed"))
