"""Group commit: the publishes that arrive while a write is under way share the next write. Rank 4.

Source: the group commit of databases. A publish on an idle connection is written at once; under
load the batches grow by themselves.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from aiowheel._background import end_task, settle
from aiowheel._events import emit
from aiowheel._printable import error_repr
from aiowheel.errors import SharedCountersClosedError, StoreUnavailableError
from aiowheel.shared._backoff import Backoff
from aiowheel.shared._statistics import SharedCounts
from aiowheel.shared._store import CounterStore

_MOST = 10_000  # publishes in one write


class _Batch:
    """The publishes of one write, and the futures of their callers."""

    __slots__ = ("begun", "checkers", "checks", "raisers", "values")

    def __init__(self, begun: float) -> None:
        self.begun = begun
        self.values: dict[str, int] = {}
        self.raisers: list[asyncio.Future[str]] = []  # the callers that wait for `values`
        self.checks: dict[str, None] = {}
        self.checkers: list[asyncio.Future[str]] = []  # the callers that wait for `checks`

    def fail(self, error: Exception) -> None:
        """Raise *error* in the callers that still wait."""
        for caller in (*self.raisers, *self.checkers):
            settle(caller, error)


class GroupCommit:
    """The writer of one process: at most one write is under way.

    Args:
        store: The store to write to.
        counts: Counts the writes.
        committed: Called after each write with its epoch and values.
        min_interval: Least number of seconds between the starts of two writes.
        patience: Seconds for which a write is repeated while the store does not answer.
    """

    def __init__(
        self,
        store: CounterStore,
        counts: SharedCounts,
        committed: Callable[[str, Mapping[str, int]], None],
        *,
        min_interval: float,
        patience: float,
    ) -> None:
        self._store = store
        self._counts = counts
        self._committed = committed
        self._min_interval = min_interval
        self._patience = patience
        self._loop = asyncio.get_running_loop()
        self._waiting: list[_Batch] = []  # the last one is still open
        self._task: asyncio.Task[None] | None = None
        self._last_begun = -min_interval
        self._closed = False

    def raise_to(self, key: str, value: int) -> asyncio.Future[str]:
        """Add a counter to the next write; the future's result is the epoch of that write."""
        batch = self._open_batch()
        values = batch.values
        if values.get(key, -1) < value:
            values[key] = value
        return self._join(batch.raisers)

    def add_one(self, key: str) -> asyncio.Future[str]:
        """Add one to a counter in the next write; several calls before that write add one."""
        batch = self._open_batch()
        batch.checks[key] = None
        return self._join(batch.checkers)

    def _open_batch(self) -> _Batch:
        last = self._waiting[-1] if self._waiting else None
        if last is None or len(last.raisers) + len(last.checkers) >= _MOST:
            last = _Batch(self._loop.time())
            self._waiting.append(last)
        return last

    def _join(self, callers: list[asyncio.Future[str]]) -> asyncio.Future[str]:
        self._counts.publishes += 1
        caller: asyncio.Future[str] = self._loop.create_future()
        callers.append(caller)
        if self._task is None:
            self._start()
        return caller

    def _start(self) -> None:
        self._task = self._loop.create_task(self._write_all(), name="aiowheel group commit")
        self._task.add_done_callback(self._on_done)

    def _on_done(self, _: asyncio.Task[None]) -> None:
        self._task = None
        # `asyncio.run` may have cancelled the task, with all others, before the callers' end.
        if self._waiting and not self._closed:
            self._start()

    async def _write_all(self) -> None:
        while self._waiting:
            pause = self._last_begun + self._min_interval - self._loop.time()
            if pause > 0:
                await asyncio.sleep(pause)
            batch = self._waiting.pop(0)
            try:
                await self._write(batch)
            except asyncio.CancelledError:  # the write may have been made; it can be repeated
                self._waiting.insert(0, batch)
                raise

    async def _write(self, batch: _Batch) -> None:
        """Write a batch, and again if it fails; a part that was written is not written again."""
        backoff = Backoff()
        while batch.values or batch.checks:
            self._last_begun = self._loop.time()
            try:
                if batch.values:
                    epoch = await self._store.raise_to(batch.values)
                    self._counts.writes += 1
                    self._committed(epoch, batch.values)
                    for caller in batch.raisers:
                        settle(caller, epoch)
                    batch.values = {}
                if batch.checks:
                    epoch = await self._store.add_one(batch.checks)
                    self._counts.writes += 1
                    for caller in batch.checkers:
                        settle(caller, epoch)
                    batch.checks = {}
            except StoreUnavailableError as error:
                # The write may have been made. A repeated maximum changes nothing, and a repeated
                # addition makes every process check once more.
                self._counts.retries += 1
                if self._loop.time() - batch.begun >= self._patience:
                    self._give_up(batch, error)
                    return
                await asyncio.sleep(backoff.next())
            except Exception as error:
                self._give_up(batch, error)
                return

    def _give_up(self, batch: _Batch, error: Exception) -> None:
        keys = len(batch.values) + len(batch.checks)
        emit("aiowheel.shared_write_failed", keys=keys, error=error_repr(error))
        batch.fail(error)

    async def aclose(self) -> None:
        """End the writer; publishes that are not written yet raise an error in their callers."""
        self._closed = True
        try:
            await end_task(self._task)
        finally:  # also if this call is cancelled
            for batch in self._waiting:
                batch.fail(SharedCountersClosedError("the shared counters were closed"))
            self._waiting.clear()
