"""What one process has touched lately, and the writes that tell the store. Rank 4.

A touch is written at once if the key was not written for a while. Later touches are written when
that while is over, all of them as one. Touches that come while a write is under way share the next.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from itertools import islice

from aiowheel.recipes import IdleDetector
from aiowheel.shared._backoff import Backoff
from aiowheel.shared._ending import end_task
from aiowheel.shared._idle_keys import IdleNames, value_at
from aiowheel.shared._idle_statistics import IdleCounts
from aiowheel.shared._store import CounterStore
from aiowheel.shared._store_clock import StoreClock
from aiowheel.timer import Timer, TimerHandle

_MOST = 10_000  # counters in one write
_SLICE = 1_000  # rests that end in one turn of the loop


class _Touched:
    """A key that this process has touched or discarded."""

    __slots__ = ("counter", "rests", "value", "written")

    def __init__(self, counter: str) -> None:
        self.counter = counter
        self.value = 0  # the last touch or discard
        self.written = -1  # the last value that was given to the writer
        self.rests = False  # was given to the writer a moment ago


class Touches:
    """The keys that this process has touched, for as long as they may matter to other processes.

    Args:
        timer: For all times.
        store: Where to write.
        names: Of the counters.
        clock: The store's.
        counts: Counts touches and writes.
        kept: Seconds for which a key is remembered after its last touch.
        rest: Seconds between two writes of one key, at least.
        pause: Seconds between two writes, at least.
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
        self._resting: deque[tuple[float, _Touched]] = deque()  # until when; the first ends first
        self._alarm: TimerHandle | None = None  # for the first of them
        self._pending: dict[str, int] = {}
        self._under_way: dict[str, int] = {}  # the write that has begun
        self._closing = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._last_begun = float("-inf")

    def __len__(self) -> int:
        return len(self._touched)

    def note(self, key: str, *, discard: bool) -> None:
        """Note a touch or a discard of *key*, and have it written.

        Raises:
            TypeError, ValueError: *key* is no legal key.
            ForeignLoopError: Called from another loop or thread than the timer's.
        """
        # An object that is no string may have no hash.
        if type(key) is not str or key not in self._touched:
            self._names.checked(key)
        self._lasting.touch(key)  # first: it may end a key that was remembered long enough
        touched = self._touched.get(key)
        if touched is None:
            touched = self._touched[key] = _Touched(self._names.counter(key))
        touched.value = value_at(self._clock.now_ms(), touched.value, discard=discard)
        self._counts.touches += 1
        if not touched.rests:
            self._write(touched)

    def unwritten(self, key: str) -> int:
        """Return the last touch or discard of *key* that is not written yet; -1 for none."""
        touched = self._touched.get(key)
        if touched is None:
            return -1
        if touched.value > touched.written:
            return touched.value
        return max(each.get(touched.counter, -1) for each in (self._pending, self._under_way))

    def write_again(self, values: Mapping[str, int]) -> None:
        """Have these counters written, and those of all touches that are remembered."""
        for counter, value in values.items():
            self._add(counter, value)
        for touched in self._touched.values():
            touched.written = touched.value
            self._add(touched.counter, touched.value)
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
        """Write the keys that were touched while they rested."""
        # The first one is due, whatever the clock lacks by rounding.
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
                except Exception as error:
                    # Whether the write was made is unknown. It may be repeated: it is a maximum.
                    for counter, value in self._under_way.items():
                        self._add(counter, value)
                    self._failed("raise_to", error)
                    if self._closing.is_set():
                        return
                    await self._timer.sleep(backoff.next())
                else:
                    backoff.reset()
        finally:
            self._task = None

    async def _write_round(self, values: dict[str, int]) -> None:
        """Write *values*, and take out of them what was written."""
        while values:
            part = dict(islice(values.items(), _MOST))
            epoch = await self._store.raise_to(part)
            self._counts.writes += 1
            self._counts.values += len(part)
            for counter in part:
                del values[counter]
            self._wrote(epoch)

    async def aclose(self) -> None:
        """Write what is not written yet, once, and end the writer."""
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
