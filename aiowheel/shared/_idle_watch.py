"""The keys of the partitions that this process owns, and their expiry. Rank 4.

Each key has a timer on the wheel. When the timer fires, the process reads the key's counter from
the store, calls `on_idle` if the key is idle, and removes the counter if it still has the value
that was read. If the process dies between the call and the removal, the counter stays, and the next
owner of the partition calls `on_idle` again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping
from contextvars import copy_context
from itertools import islice

from aiowheel._callbacks import START_A_TASK, refuse_coroutine
from aiowheel.shared._backoff import Backoff
from aiowheel.shared._idle_names import IdleNames, is_discard, time_of
from aiowheel.shared._idle_statistics import IdleCounts
from aiowheel.shared._store import CounterStore
from aiowheel.shared._store_clock import StoreClock
from aiowheel.timer import Timer, TimerHandle

_PAGE = 1_000  # keys that are listed or expire in one call of the store


class _Watched:
    """A key of a partition that is held."""

    __slots__ = ("called", "counter", "handle", "value")

    def __init__(self, counter: str, value: int) -> None:
        self.counter = counter
        self.value = value
        self.called = -1  # the value for which `on_idle` was called
        self.handle: TimerHandle | None = None  # None while the key is due


class IdleWatch:
    """The watched keys of one process.

    Args:
        timer: Holds a deadline for each key.
        store: The store that holds the counters.
        names: The names of the counters.
        clock: The estimate of the store's clock.
        counts: Counts the calls of `on_idle`.
        wait_ms: Milliseconds after its last touch at which a key is idle.
        on_idle: Called with each idle key.
        valid: Returns whether this process still owns its partitions.
        saw: Called with the epoch of each answer; returns whether it is the known one.
        failed: Called with the name and the error of each call that failed.
    """

    def __init__(
        self,
        timer: Timer,
        store: CounterStore,
        names: IdleNames,
        clock: StoreClock,
        counts: IdleCounts,
        *,
        wait_ms: int,
        on_idle: Callable[[str], object],
        valid: Callable[[], bool],
        saw: Callable[[str], bool],
        failed: Callable[[str, Exception], object],
    ) -> None:
        self._timer = timer
        self._store = store
        self._names = names
        self._clock = clock
        self._counts = counts
        self._wait_ms = wait_ms
        self._on_idle = on_idle
        self._valid = valid
        self._saw = saw
        self._failed = failed
        self._context = copy_context()
        self._parts: dict[str, dict[str, _Watched]] = {}  # by partition, then by counter
        self._due: dict[str, _Watched] = {}  # by counter, the first due first
        self._after: str | None = None  # start of the next page; None after the last page
        self._listings = 0  # listings that were started
        self._hold: TimerHandle | None = None  # no key expires before it fires
        self._carried: dict[str, int] = {}  # values that the store may have lost
        self._wanted = asyncio.Event()

    def __len__(self) -> int:
        return sum(map(len, self._parts.values()))

    def carry(self, values: Mapping[str, int]) -> Mapping[str, int]:
        """Return *values* and those of the watched counters, to be written to the store again.

        They are carried until no key is held back and all counters are listed: the store may lose
        its history again before that.
        """
        watched = (part.values() for part in self._parts.values())
        known = [(each.counter, each.value) for part in watched for each in part]
        for counter, value in (*values.items(), *known):
            if self._carried.get(counter, -1) < value:
                self._carried[counter] = value
        return self._carried

    def note(self, counter: str, value: int) -> None:
        """Record the value of a counter; counters of other processes' partitions are ignored."""
        part = self._parts.get(self._names.part(counter))
        if part is None:
            return
        watched = part.get(counter)
        if watched is None:
            watched = part[counter] = _Watched(counter, value)
            self._arm(watched)
        elif watched.value < value:
            watched.value = value
            if watched.handle is not None:
                watched.handle.reschedule(self._deadline(value))

    def change(self, gained: Collection[str], lost: Collection[str]) -> None:
        """Start to watch the partitions in *gained*, and stop watching those in *lost*."""
        for name in lost:
            for watched in self._parts.pop(name, {}).values():
                self._stop(watched)
        for name in gained:
            self._parts.setdefault(name, {})
        if gained:
            self.list_again()

    def list_again(self) -> None:
        """List the counters of the store again: some may be unknown."""
        self._listings += 1
        self._after = ""
        self._wanted.set()

    def arm_again(self) -> None:
        """Compute all deadlines again, after the store's clock was set."""
        for part in self._parts.values():
            for watched in part.values():
                if watched.handle is not None:
                    watched.handle.reschedule(self._deadline(watched.value))

    def hold(self, seconds: float) -> None:
        """Let no key expire for *seconds*, because touches of other processes may be late."""
        until = self._timer.time() + seconds
        if self._hold is None:
            self._hold = self._timer.call_at(until, self._go_on)
        else:
            self._hold.reschedule(until)

    def wake(self) -> None:
        """Continue with the due keys, after the leases became valid again."""
        if self._due:
            self._wanted.set()

    def _go_on(self) -> None:
        self._hold = None
        self._end_carrying()
        self.wake()

    def _end_carrying(self) -> None:
        if self._hold is None and self._after is None:
            self._carried = {}

    def close(self) -> None:
        """Stop watching all partitions."""
        self.change((), list(self._parts))
        if self._hold is not None:
            self._hold.cancel()

    def _deadline(self, value: int) -> float:
        # One millisecond later, because `StoreClock.now_ms` rounds down.
        return self._clock.on_timer(time_of(value) + self._wait_ms + 1)

    def _arm(self, watched: _Watched) -> None:
        watched.handle = self._timer.call_at(self._deadline(watched.value), self._note_due, watched)

    def _note_due(self, watched: _Watched) -> None:
        watched.handle = None
        self._due[watched.counter] = watched
        self._wanted.set()

    def _stop(self, watched: _Watched) -> None:
        self._due.pop(watched.counter, None)
        if watched.handle is not None:
            watched.handle.cancel()

    # --- the task -----------------------------------------------------------------------------

    async def run(self) -> None:
        """List counters and expire keys until cancelled."""
        backoff = Backoff()
        while True:
            await self._wanted.wait()
            self._wanted.clear()
            try:
                if self._after is not None:
                    await self._list_page(self._after)
                if self._may_expire():
                    await self._expire_some()
            except asyncio.CancelledError:
                self._wanted.set()  # the task may start again
                raise
            except Exception as error:
                self._failed("watch", error)
                await self._timer.sleep(backoff.next())
            else:
                backoff.reset()
            if self._after is not None or self._may_expire():
                self._wanted.set()

    def _may_expire(self) -> bool:
        return bool(self._due) and self._valid() and self._hold is None

    async def _list_page(self, after: str) -> None:
        listing = self._listings
        page = await self._store.scan(self._names.prefix, after, _PAGE)
        if not self._saw(page.epoch):
            return
        for counter, value in page.values.items():
            self.note(counter, value)
        if self._listings == listing:  # no partition was gained meanwhile
            self._after = page.after
            self._end_carrying()

    async def _expire_some(self) -> None:
        """Call `on_idle` for due keys without a later touch, and remove their counters."""
        known = {counter: each.value for counter, each in islice(self._due.items(), _PAGE)}
        epoch, values = await self._store.read(known)
        if not self._saw(epoch):
            return
        ended: dict[str, int] = {}
        now = self._clock.now_ms()
        for counter, before in known.items():
            watched, value = self._due.get(counter), values.get(counter)
            if watched is None:  # its partition was lost
                continue
            if value is None:  # an owner removed it, and the answer to that write was lost
                self._drop_at(counter, before)
            elif time_of(value) + self._wait_ms > now:
                del self._due[counter]
                watched.value = value
                self._arm(watched)
            elif not self._valid():
                break
            else:
                ended[counter] = value
                if value != watched.called and not is_discard(value):
                    watched.called = value
                    self._call(self._names.key(counter))
        if not ended:
            return
        changes = {counter: (value, None) for counter, value in ended.items()}
        epoch, removed = await self._store.compare_and_raise(changes)
        if not self._saw(epoch):
            return
        for counter in removed:
            self._carried.pop(counter, None)
            self._drop_at(counter, ended[counter])

    def _drop_at(self, counter: str, value: int) -> None:
        """Stop watching a counter that was removed at *value*, unless it was raised since."""
        watched = self._due.get(counter)
        # The hint of a later touch may overtake the answer; the counter is then read again.
        if watched is not None and watched.value <= value:
            del self._due[counter]
            del self._parts[self._names.part(counter)][counter]

    def _call(self, key: str) -> None:
        self._counts.idle += 1
        try:
            result = self._context.copy().run(self._on_idle, key)
            if result is not None:
                refuse_coroutine("on_idle", result, START_A_TASK)
        except (SystemExit, KeyboardInterrupt):
            raise
        except BaseException as error:  # CancelledError as well, which would end the task
            asyncio.get_running_loop().call_exception_handler(
                {"message": f"on_idle failed for the key {key!r}", "exception": error}
            )
