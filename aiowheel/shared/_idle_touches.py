"""The keys that one process has touched lately, and the task that writes them. Rank 4.

A touch is written at once if the process has not written the key within the key's rest. Touches
within the rest are written together when it ends. Touches that arrive during a write share the next
write.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from itertools import islice

from aiowheel._background import end_task
from aiowheel.recipes import IdleDetector
from aiowheel.shared._backoff import Backoff
from aiowheel.shared._idle_names import IdleNames, value_at
from aiowheel.shared._idle_statistics import IdleCounts
from aiowheel.shared._store import CounterStore
from aiowheel.shared._store_clock import StoreClock
from aiowheel.timer import Timer, TimerHandle

_MOST = 10_000  # counters in one write
_SLICE = 1_000  # keys whose rest ends in one turn of the loop


class _Touched:
    """A key that this process has touched or discarded."""

    __slots__ = ("counter", "rests", "value", "written")

    def __init__(self, counter: str) -> None:
        self.counter = counter
        self.value = 0  # the last touch or discard
        self.written = -1  # the last value that was passed to the writer
        self.rests = False  # the rest after the last write has not ended


class Touches:
    """The keys that this process has touched, for as long as they may matter to other processes.

    Args:
        timer: Runs all delays.
        store: The store to write to.
        names: The names of the counters.
        clock: The estimate of the store's clock.
        counts: Counts touches and writes.
        kept: Seconds for which a key is remembered after its last touch.
        rest: Least number of seconds between two writes of one key.
        pause: Least number of seconds between two writes.
        wrote: Called after each write with its epoch.
        failed: Called with the name and the error of each write that failed.
    """

    def __init__(
        self,
        timer: Timer,
        store: CounterStore,
        names: IdleNames,
        clock: StoreClock,
        counts: IdleCounts,
        *,
        kept: float,
        rest: float,
        pause: float,
        wrote: Callable[[str], object],
        failed: Callable[[str, Exception], object],
    ) -> None:
        self._timer = timer
        self._store = store
        self._names = names
        self._clock = clock
        self._counts = counts
        self._rest = rest
        self._pause = pause
        self._wrote = wrote
        self._failed = failed
        self._touched: dict[str, _Touched] = {}
        self._lasting: IdleDetector[str] = IdleDetector(kept, self._touched.pop, timer=timer)
        self._resting: deque[tuple[float, _Touched]] = deque()  # (end of the rest, key), by time
        self._alarm: TimerHandle | None = None  # for the first end
        self._pending: dict[str, int] = {}
        self._under_way: dict[str, int] = {}  # the write that has begun
        self._closing = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._last_begun = float("-inf")

    def __len__(self) -> int:
        return len(self._touched)

    def note(self, key: str, *, discard: bool) -> None:
        """Record a touch or a discard of *key*, and schedule its write.

        Raises:
            TypeError, ValueError: *key* is not a legal key.
            ForeignLoopError: Called from another loop or thread than the timer's.
        """
        # An object that is not a string may not be hashable.
        if type(key) is not str or key not in self._touched:
            key = self._names.checked(key)
        self._lasting.touch(key)  # first, because it may remove the key from `_touched`
        touched = self._touched.get(key)
        if touched is None:
            touched = self._touched[key] = _Touched(self._names.counter(key))
        touched.value = value_at(self._clock.now_ms(), touched.value, discard=discard)
        self._counts.touches += 1
        if not touched.rests:
            self._write(touched)

    def unwritten(self, key: str) -> int:
        """Return the last touch or discard of *key* that is not written yet, or -1."""
        touched = self._touched.get(key)
        if touched is None:
            return -1
        if touched.value > touched.written:
            return touched.value
        return max(each.get(touched.counter, -1) for each in (self._pending, self._under_way))

    def values(self) -> dict[str, int]:
        """Return the counters of all remembered keys with their last touches or discards."""
        return {touched.counter: touched.value for touched in self._touched.values()}

    def write_again(self, values: Mapping[str, int]) -> None:
        """Write these counters again, which include those of all remembered keys."""
        for touched in self._touched.values():
            touched.written = touched.value
        for counter, value in values.items():
            self._add(counter, value)
        self._start()

    def _write(self, touched: _Touched) -> None:
        touched.written = touched.value
        touched.rests = True
        self._resting.append((self._timer.time() + self._rest, touched))
        if self._alarm is None:
            self._alarm = self._timer.call_at(self._resting[0][0], self._end_rests)
        self._add(touched.counter, touched.value)
        self._start()

    def _end_rests(self) -> None:
        """Write the keys that were touched during their rest."""
        # The first rest has ended, even if the clock is a rounding error behind.
        due = max(self._timer.time(), self._resting[0][0])
        for _ in range(_SLICE):
            if not self._resting or self._resting[0][0] > due:
                break
            _, touched = self._resting.popleft()
            touched.rests = False
            if touched.value > touched.written:
                self._write(touched)
        self._alarm = None
        if self._resting:
            self._alarm = self._timer.call_at(self._resting[0][0], self._end_rests)

    def _add(self, counter: str, value: int) -> None:
        if self._pending.get(counter, -1) < value:
            self._pending[counter] = value

    # --- the writer ---------------------------------------------------------------------------

    def _start(self) -> None:
        if self._task is None and self._pending:
            loop = asyncio.get_running_loop()
            self._task = loop.create_task(self._write_all(), name="aiowheel idle touches")
            self._task.add_done_callback(self._on_done)

    def _on_done(self, _: asyncio.Task[None]) -> None:
        # `asyncio.run` may have cancelled the task, with all others, before this object was closed.
        if not self._closing.is_set():
            self._start()

    async def _write_all(self) -> None:
        backoff = Backoff()
        try:
            while self._pending:
                pause = self._last_begun + self._pause - self._timer.time()
                if pause > 0:
                    async with self._timer.move_on_after(pause):
                        await self._closing.wait()
                self._last_begun = self._timer.time()
                self._under_way, self._pending = self._pending, {}
                try:
                    await self._write_round(self._under_way)
                except BaseException as error:
                    # The write may have been made. It is a maximum, so it can be repeated.
                    for counter, value in self._under_way.items():
                        self._add(counter, value)
                    if not isinstance(error, Exception):  # cancelled
                        raise
                    self._failed("raise_to", error)
                    if self._closing.is_set():
                        return
                    await self._timer.sleep(backoff.next())
                else:
                    backoff.reset()
        finally:
            self._task = None

    async def _write_round(self, values: dict[str, int]) -> None:
        """Write *values*, and remove the written counters from them."""
        while values:
            part = dict(islice(values.items(), _MOST))
            epoch = await self._store.raise_to(part)
            self._counts.writes += 1
            self._counts.values += len(part)
            for counter in part:
                del values[counter]
            self._wrote(epoch)

    async def aclose(self) -> None:
        """Attempt once to write the touches that are not written yet, and end the writer."""
        self._closing.set()
        task: asyncio.Task[None] | None = None
        try:
            if self._alarm is not None:
                self._alarm.cancel()
            for touched in self._touched.values():
                if touched.value > touched.written:
                    self._add(touched.counter, touched.value)
            self._start()
            task = self._task
            if task is not None:
                await asyncio.wait([task])
        finally:
            await end_task(task)
            await self._lasting.aclose()
            self._touched.clear()
