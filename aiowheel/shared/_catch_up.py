"""The counter values that one process keeps up to date, by hints and by reads. Rank 4.

A hint brings a new value. A read fetches the values that lost hints may have carried. No wake-up is
lost, because of the order: subscribe, then read, then wait. The subscription lasts as long as the
counters are open, so a key needs one read at its first wait, and another after each gap. Values
only grow, so hints and reads may arrive in any order.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping

from aiowheel._background import LastingTask
from aiowheel._events import emit
from aiowheel._printable import error_repr
from aiowheel.errors import EpochChangedError, SharedCountersClosedError, StoreUnavailableError
from aiowheel.purgatory import Purgatory
from aiowheel.shared._backoff import Backoff
from aiowheel.shared._statistics import SharedCounts
from aiowheel.shared._store import CounterStore

MOST_KEYS = 10_000  #: in one read
_SLICE = 1_000  # keys of a review between two turns of the loop


class Kept:
    """A key that this process keeps up to date."""

    __slots__ = ("after_gap", "fresh", "reading", "used")

    def __init__(self) -> None:
        self.after_gap = False  # the next read follows a gap: the store may have lost writes
        self.used = True  # since the last review of the key
        self.fresh = False  # the value was read, and no hint can have been lost since
        self.reading = False  # a read is under way that will make the value fresh


class CatchUp:
    """The store's listener: completes waits, and reads values again when hints may be lost.

    Args:
        purgatory: Holds the values and the waits.
        store: The store to read from.
        counts: Counts hints, gaps and reads.
        linger: Seconds between two reviews of all keys. A review drops a key if it has no wait and
            was not used since the review before, so that a use of a key costs only a flag. A key is
            kept for 1 to 2 times *linger* after its last use. A review costs a look at every key.
        recovered: Called after a gap, once values have been read again, with the known values that
            are above those of the store: a failover has lost their writes.
    """

    def __init__(
        self,
        purgatory: Purgatory,
        store: CounterStore,
        counts: SharedCounts,
        *,
        linger: float,
        recovered: Callable[[Mapping[str, int]], None],
    ) -> None:
        self.epoch = ""
        self.kept: dict[str, Kept] = {}
        self._purgatory = purgatory
        self._store = store
        self._counts = counts
        self._recovered = recovered
        self._linger = linger
        self._may_drop = asyncio.Event()  # set while a key may have no wait
        self._stale: dict[str, None] = {}  # keys to read, oldest first
        self._gap = False  # the next read follows a gap
        self._wanted = asyncio.Event()
        self._read_waiters: dict[asyncio.Future[None], None] = {}  # in their order
        self._tasks: list[LastingTask] = []

    async def start(self) -> None:
        """Read the epoch, and start the tasks that read stale keys and drop unused ones.

        Raises:
            StoreUnavailableError: The store does not answer.
        """
        self.epoch, _ = await self._store.read(())
        self._counts.reads += 1
        self._tasks = [
            LastingTask(self._read_stale, "aiowheel shared counters"),
            LastingTask(self._drop_unused, "aiowheel unused counters"),
        ]

    # --- what the store calls ---------------------------------------------------------------

    def hint(self, epoch: str, values: Mapping[str, int]) -> None:
        """Complete the waits for these values; see `HintListener`."""
        self._counts.hints += len(values)
        if epoch != self.epoch:
            # Only reads decide the epoch: a hint may arrive late, from a lost history.
            if self.epoch:
                self.gap()
            return
        kept, purgatory = self.kept, self._purgatory
        for key, value in values.items():
            if key in kept:
                purgatory.advance(key, value)
            purgatory.check_and_complete(key)

    def gap(self) -> None:
        """Read all kept values again; see `HintListener`."""
        self._counts.gaps += 1
        self._gap = True
        for key, entry in self.kept.items():
            entry.after_gap = True
            self._read_again(key, entry)
        self._wanted.set()

    # --- what the waits call ----------------------------------------------------------------

    def keep(self, key: str) -> Kept:
        """Keep *key* up to date from now on."""
        entry = self.kept.get(key)
        if entry is None:
            entry = self.kept[key] = Kept()
            self._may_drop.set()
        entry.used = True
        if not entry.fresh and not entry.reading:
            self._stale[key] = None
            self._wanted.set()
        return entry

    def drop(self, key: str) -> None:
        """Drop the value of a key unless it has a wait; the next wait reads it again."""
        if key in self.kept and not self._purgatory.counter_waiters(key):
            del self.kept[key]
            self._stale.pop(key, None)
            self._purgatory.forget(key)

    def is_current(self, key: str) -> bool:
        """Return whether the value of *key* is up to date; if so, the key counts as used."""
        entry = self.kept.get(key)
        if entry is None or not entry.fresh:
            return False
        entry.used = True
        return True

    async def read(self, keys: Iterable[str], *, refresh: bool = False) -> None:
        """Return when the values of *keys* are up to date.

        Args:
            keys: The counters to read; they are kept up to date from now on.
            refresh: Whether to read even keys that are kept up to date: a hint may be on its way.
        """
        names = list(keys)
        loop = asyncio.get_running_loop()
        while True:
            entries = [(key, self.keep(key)) for key in names]
            if refresh:
                refresh = False
                for key, entry in entries:
                    self._read_again(key, entry)
                self._wanted.set()
            if all(entry.fresh for _, entry in entries):
                return
            waiter: asyncio.Future[None] = loop.create_future()
            self._read_waiters[waiter] = None
            try:
                await waiter
            finally:  # also if the caller is cancelled
                self._read_waiters.pop(waiter, None)

    def _read_again(self, key: str, entry: Kept) -> None:
        """Schedule a new read of *key*: a read that is under way may be too old."""
        entry.fresh = entry.reading = False
        self._stale[key] = None

    # --- unused keys ------------------------------------------------------------------------

    async def _drop_unused(self) -> None:
        """Review all keys again and again while there are keys without a wait."""
        while True:
            await self._may_drop.wait()
            await asyncio.sleep(self._linger)
            # Taken before the review, because a wait for a reviewed key may end during the review.
            self._may_drop = self._purgatory.next_end()
            keys = list(self.kept)
            while keys:
                for key in keys[-_SLICE:]:
                    self._review(key)
                del keys[-_SLICE:]  # all at once at the end would stop the loop for long
                await asyncio.sleep(0)

    def _review(self, key: str) -> None:
        entry = self.kept.get(key)
        if entry is None:
            return
        is_read = len(self._read_waiters) > 0 and not entry.fresh
        if self._purgatory.counter_waiters(key):
            entry.used = True  # at the end of the wait, at the latest
        elif entry.used or is_read:
            entry.used = is_read  # the caller of the read will use it
            self._may_drop.set()
        else:
            self.drop(key)

    # --- reading ----------------------------------------------------------------------------

    async def _read_stale(self) -> None:
        backoff = Backoff()
        while True:
            await self._wanted.wait()
            after_gap, self._gap = self._gap, False
            keys = list(self._stale)[:MOST_KEYS]
            for key in keys:
                del self._stale[key]
                self.kept[key].reading = True
            if not self._stale:
                self._wanted.clear()
            try:
                epoch, values = await self._store.read(keys)
            except BaseException as error:
                self._gap |= after_gap
                for key in keys:
                    if key in self.kept:
                        self._read_again(key, self.kept[key])
                self._wanted.set()
                if not isinstance(error, Exception):  # cancelled; the task may start again
                    raise
                if not isinstance(error, StoreUnavailableError):
                    emit("aiowheel.shared_read_failed", keys=len(keys), error=error_repr(error))
                self._counts.retries += 1
                await asyncio.sleep(backoff.next())
                continue
            backoff.reset()
            self._counts.reads += 1
            lost = self._take(epoch, keys, values)
            if after_gap:
                self._check_all()
            if after_gap or lost:
                self._recovered(lost)

    def _take(self, epoch: str, keys: list[str], values: Mapping[str, int]) -> dict[str, int]:
        """Apply one read; return the known values that the store has lost."""
        lost: dict[str, int] = {}
        if epoch != self.epoch:
            self._change_epoch(epoch)
        for key in keys:
            entry = self.kept.get(key)
            if entry is not None:
                # `reading` is False after a gap during the read; the key is then stale again.
                entry.fresh, entry.reading = entry.reading, False
                value = values.get(key)
                if value is not None:
                    known = self._purgatory.value(key)
                    if entry.after_gap and known is not None and known > value:
                        lost[key] = int(known)
                    self._purgatory.advance(key, value)
                entry.after_gap &= not entry.fresh
        waiters, self._read_waiters = self._read_waiters, {}
        for waiter in waiters:
            if not waiter.done():  # its task was cancelled in this turn of the loop
                waiter.set_result(None)
        return lost

    def _change_epoch(self, epoch: str) -> None:
        old, self.epoch = self.epoch, epoch
        waits = sum(map(self._purgatory.counter_waiters, self.kept))
        self._counts.epochs += 1
        emit("aiowheel.shared_epoch_changed", old=old, new=epoch, waiting=waits)
        text = (
            f"the store lost its history: epoch {old} has ended, epoch {epoch} has begun; read "
            "the data again and wait with a new token or threshold"
        )
        lost, self.kept = self.kept, {}
        self._stale.clear()
        for key in lost:
            self._purgatory.forget(key, error=lambda: EpochChangedError(text))

    def _check_all(self) -> None:
        """Check all pending operations: the lost hints may have been checks."""
        purgatory = self._purgatory
        # A dict, because the order of a set of strings differs from process to process.
        keys = {key: None for operation in purgatory.pending() for key in operation.keys}
        for key in keys:
            purgatory.check_and_complete(key)

    async def aclose(self) -> None:
        """End the tasks; pending calls of `read` raise an error."""
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task.cancel()
        try:
            for task in tasks:
                await task.end()
        finally:  # also if the caller is cancelled
            for waiter in self._read_waiters:
                if not waiter.done():  # its task was cancelled in this turn of the loop
                    text = "the shared counters were closed"
                    waiter.set_exception(SharedCountersClosedError(text))
            for key in self.kept:
                self._purgatory.forget(key)
            self.kept.clear()
