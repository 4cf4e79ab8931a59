"""The world of counters: waits for thresholds, and values that other threads raise. Rank 4.

The oracle compares every wait with the values after every change.
"""

from __future__ import annotations

import asyncio
from collections.abc import Hashable
from typing import Literal

from aiowheel.errors import EpochChangedError
from aiowheel.purgatory import Purgatory
from aiowheel.testing.simulation._faults import ALL_FAULTS
from aiowheel.testing.simulation._world import World, step
from aiowheel.timer import Timer

_KEYS = ("a", "b", "c")
_TIMEOUTS = (0.001, 0.3, 20.0, 4_000.0, None)
_MODES: tuple[Literal["all", "any"], ...] = ("all", "any")


class Wait:
    """One call of `wait_until`."""

    def __init__(
        self, number: int, thresholds: dict[str, int], mode: str, deadline_ns: int | None
    ) -> None:
        self.number = number
        self.missing = dict(thresholds)
        self.needed = len(thresholds) if mode == "all" else 1
        self.deadline_ns = deadline_ns
        self.may_miss = False  # the value that meets it may arrive after its timeout
        self.future: asyncio.Future[bool]

    def see(self, key: str, value: int) -> None:
        """Compare a counter's value with its threshold."""
        if key in self.missing and value >= self.missing[key]:
            del self.missing[key]
            self.needed -= 1

    @property
    def is_met(self) -> bool:
        """Whether the wait must be complete."""
        return self.needed <= 0


class CountersWorld(World):
    """The counters of a purgatory."""

    faults = ALL_FAULTS

    async def setup(self) -> None:
        """Open a purgatory."""
        self.timer = await Timer().__aenter__()
        self.purgatory = Purgatory(timer=self.timer)
        self.values: dict[str, int] = {}
        self.waits: list[Wait] = []
        self.count = 0
        self.is_in_transit = False  # another thread has raised a counter

    @step(weight=6)
    def wait(self) -> None:
        """Wait for thresholds around the present values."""
        keys = self.random.sample(_KEYS, self.random.randint(1, len(_KEYS)))
        thresholds = {key: self.values.get(key, 0) + self.random.randint(-2, 6) for key in keys}
        mode = self.random.choice(_MODES)
        timeout = self.random.choice(_TIMEOUTS)
        deadline = None if timeout is None else self.now_ns + int(timeout * 1e9)
        self.count += 1
        wait = Wait(self.count, thresholds, mode, deadline)
        for key, value in self.values.items():
            wait.see(key, value)
        wait.future = self.purgatory.wait_until(thresholds, timeout, mode)
        if not self.is_in_transit:
            assert wait.future.done() == wait.is_met, "a new wait disagrees with the oracle"
        self.waits.append(wait)
        self.spawn(self.client(wait), f"wait {wait.number}")

    async def client(self, wait: Wait) -> None:
        """Wait for the end."""
        try:
            reached = await wait.future
        except EpochChangedError:
            self.note(f"forgotten {wait.number}")
            return
        self.note(f"wait {wait.number} {reached}")
        if reached:
            assert wait.is_met, "a wait completed before its thresholds were reached"
        else:
            missed = wait.is_met and not wait.may_miss and not self.is_closed()
            assert not missed, "a wait expired although its thresholds were reached"
            deadline = wait.deadline_ns
            on_time = deadline is not None and self.loop.peak_ns >= deadline - 1
            assert on_time or self.is_closed(), "a wait expired early"

    def is_closed(self) -> bool:
        """Return whether the purgatory is closed."""
        return self.purgatory.closed

    def raise_to(self, key: str, value: int) -> None:
        """Raise a counter of the oracle."""
        self.values[key] = max(self.values.get(key, value), value)
        for wait in self.waits:
            if not wait.future.done():
                wait.see(key, self.values[key])
                wait.may_miss |= self.is_in_transit and wait.is_met

    @step(weight=6)
    def advance(self) -> None:
        """Raise a counter, or try a lower value."""
        key = self.random.choice(_KEYS)
        value = self.values.get(key, 0) + self.random.randint(-3, 4)
        before = [wait for wait in self.waits if not wait.future.done()]
        self.raise_to(key, value)
        count = self.purgatory.advance(key, value)
        if self.is_in_transit:
            return
        completed = [wait for wait in before if wait.future.done() and not wait.future.cancelled()]
        assert count == len(completed), f"advance returned {count}, not {len(completed)}"
        left = [wait.number for wait in before if wait.is_met and not wait.future.done()]
        assert not left, f"advance left the waits {left}"
        assert self.purgatory.value(key) == self.values[key]

    @step(weight=2)
    def advance_from_thread(self) -> None:
        """Raise a counter from another thread."""
        key = self.random.choice(_KEYS)
        value = self.values.get(key, 0) + self.random.randint(1, 4)
        self.in_thread(lambda: self.purgatory.advance_threadsafe(key, value))
        self.is_in_transit = True
        self.raise_to(key, value)

    @step
    def forget(self) -> None:
        """Forget a counter, and perhaps end its waits."""
        if self.is_in_transit:
            return
        key = self.random.choice(_KEYS)
        error = (lambda: EpochChangedError("forgotten")) if self.random.random() < 0.5 else None
        had_value = self.purgatory.forget(key, error=error)
        assert had_value == (self.values.pop(key, None) is not None)
        if error is not None:
            left = [w for w in self.waits if not w.future.done() and key in w.missing]
            assert not left, "forget left waits that its error should have ended"

    def idle(self) -> None:
        """Exactly the waits whose thresholds were reached have ended."""
        if not hasattr(self, "waits"):
            return
        self.is_in_transit = False
        self.waits = [wait for wait in self.waits if not wait.future.done()]
        met = [wait.number for wait in self.waits if wait.is_met]
        assert not met, f"the waits {met} were missed"
        assert len(self.purgatory) == len(self.waits)
        assert self.purgatory.watched == sum(len(wait.missing) for wait in self.waits)
        for key in _KEYS:
            assert self.purgatory.value(key) == self.values.get(key)
            assert self.purgatory.waiters(key) == sum(key in wait.missing for wait in self.waits)

    def state(self) -> Hashable:
        """Return the number of waits, and the keys that have values."""
        waiting = [wait for wait in self.waits if not wait.future.done()]
        return (min(len(waiting), 20), tuple(sorted(self.values)), self.is_in_transit)

    async def finish(self) -> None:
        """Close the purgatory; every wait then has a result."""
        await self.purgatory.aclose()
        await self.settle()
        assert len(self.purgatory) == 0
        await self.timer.aclose()
