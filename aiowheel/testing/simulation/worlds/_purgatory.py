"""The world of the purgatory: conditions, checks, timeouts, and clients that leave. Rank 4.

The oracle has a list of all operations with their conditions, without watch lists and a wheel.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable
from functools import partial
from typing import Literal

from aiowheel._units import ns_to_seconds
from aiowheel.errors import InjectedError, PurgatoryClosedError, PurgatoryFullError
from aiowheel.purgatory import DelayedOperation, Outcome, Purgatory
from aiowheel.testing.simulation._faults import ALL_FAULTS
from aiowheel.testing.simulation._world import World, step
from aiowheel.timer import Timer

_KEYS = "abcd"
_TICK_NS = 1_000_000
_MOST = (4, 25)  # values of `max_pending`
_CONDITIONS = ("closed", "closed", "open", "open", "forcing", "raising")
_DRAINS: tuple[Literal["expire", "cancel", "wait"], ...] = ("expire", "cancel", "wait")
_TIMEOUTS = (0.0, 0.0005, 0.001, 0.0015, 0.256, 2.0, 60.0, 5_000.0, float("inf"))


class Probe(DelayedOperation[int]):
    """An operation whose condition the world changes, and that may act when it ends."""

    def __init__(
        self,
        number: int,
        timeout: float,
        act: Callable[[], object],
        on_end: Callable[[Probe], object],
    ) -> None:
        super().__init__(timeout)
        self.number = number
        self.act = act
        self.on_end = on_end
        self.condition = "closed"
        self.met_since = 0
        self.forced = False
        self.waiter: asyncio.Future[int] | None = None

    def try_complete(self) -> bool:
        """Complete, refuse or raise, as the condition says."""
        if self.condition == "raising":
            raise InjectedError("a condition failed")
        if self.condition == "forcing":
            return self.force_complete()
        return self.condition == "open"

    def on_complete(self) -> int:
        """Compare the end with the oracle, then act."""
        self.on_end(self)
        self.act()
        return self.number

    @property
    def is_met(self) -> bool:
        """Whether a check would end the operation."""
        return self.condition != "closed"

    @property
    def is_pending(self) -> bool:
        """Whether the operation is pending and its client still waits."""
        abandoned = self.waiter is not None and self.waiter.cancelled()
        return self.outcome is Outcome.PENDING and not abandoned


class PurgatoryWorld(World):
    """A `Purgatory` on its own timer."""

    faults = ALL_FAULTS

    async def setup(self) -> None:
        """Open the timer and the purgatory."""
        self.timer = await Timer(tick=ns_to_seconds(_TICK_NS)).__aenter__()
        self.most = self.random.choice(_MOST)
        self.purge_interval = self.random.choice((None, None, 0, 3, 100))
        self.purgatory = Purgatory(
            timer=self.timer, max_pending=self.most, purge_interval=self.purge_interval
        )
        self.probes: list[Probe] = []
        self.ends: dict[Probe, int] = {}
        self.flips = 0
        #: Checks that another thread or a later turn makes: the key and the number of flips before.
        self.later_checks: list[tuple[str, int]] = []

    # --- the oracle -------------------------------------------------------------------------

    def on_end(self, probe: Probe) -> None:
        """Fail the run for a wrong end, because its exception may go to a client that has left."""
        try:
            self.compare_end(probe)
        except AssertionError as error:
            self.loop.fail(error)

    def compare_end(self, probe: Probe) -> None:
        """Assert that the operation may end now."""
        self.ends[probe] = self.ends.get(probe, 0) + 1
        assert self.ends[probe] == 1, f"operation {probe.number} ended twice"
        outcome = probe.outcome
        left = probe.waiter is not None and probe.waiter.cancelled()
        assert not left, f"operation {probe.number} ended for a client that had left"
        self.note(f"{outcome.value} {probe.number}")
        if outcome is Outcome.EXPIRED:
            early = probe.deadline_ns - self.now_ns
            assert early <= 0 or self.purgatory.closed, f"expired {early} ns early"
        else:
            assert outcome is Outcome.COMPLETED
            assert probe.is_met or probe.forced, "completed although its condition was not met"

    def poll(self, key: str, since: int) -> list[Probe]:
        """Return the operations that a check of *key* must have ended."""
        return [
            probe
            for probe in self.probes
            if probe.is_pending and key in probe.keys and probe.is_met and probe.met_since <= since
        ]

    def pending(self) -> list[Probe]:
        """Return the pending operations."""
        return [probe for probe in self.probes if probe.is_pending]

    # --- steps ------------------------------------------------------------------------------

    def draw_key(self) -> str:
        """Draw a key."""
        return self.random.choice(_KEYS)

    def draw_act(self) -> Callable[[], object]:
        """Draw the action of an operation at its end."""
        kind = self.random.randrange(8)
        if kind == 0:
            return partial(self.purgatory.check_and_complete, self.draw_key())
        if kind == 1:
            return partial(self.purgatory.cancel_for_key, self.draw_key())
        if kind == 2:
            return partial(self.stall, 0.003)
        if kind == 3:
            return _raise
        return _nothing

    @step(weight=6)
    def watch(self) -> None:
        """Watch a new operation."""
        keys = [self.draw_key() for _ in range(self.random.randint(1, 4))]
        timeout = self.random.choice(_TIMEOUTS)
        probe = Probe(len(self.probes), timeout, self.draw_act(), self.on_end)
        was_full = len(self.purgatory) == self.most
        try:
            if self.random.random() < 0.3:
                self.purgatory.try_complete_else_watch(probe, keys)
            else:
                probe.waiter = self.purgatory.watch(probe, keys)
        except PurgatoryFullError:
            assert was_full, "an operation was refused although the purgatory was not full"
            return
        assert not was_full, "an operation was accepted although the purgatory was full"
        self.probes.append(probe)
        if probe.waiter is not None and self.random.random() < 0.8:
            self.spawn(self.client(probe, probe.waiter), f"client {probe.number}")

    async def client(self, probe: Probe, waiter: asyncio.Future[int]) -> None:
        """Wait for the operation, and compare the result with its outcome."""
        try:
            result = await waiter
        except InjectedError:
            return
        except PurgatoryClosedError:
            assert self.purgatory.closed
            return
        assert result == probe.number
        assert probe.outcome in {Outcome.COMPLETED, Outcome.EXPIRED}

    @step(weight=5)
    def flip(self) -> None:
        """Change a condition without a check."""
        pending = self.pending()
        if pending:
            probe = self.random.choice(pending)
            self.flips += 1
            probe.condition = self.random.choice(_CONDITIONS)
            probe.met_since = self.flips

    @step(weight=4)
    def check_key(self) -> None:
        """Check a key."""
        key = self.draw_key()
        before = self.count_checked()
        count = self.purgatory.check_and_complete(key)
        ended = self.count_checked() - before
        assert 0 <= count <= ended, f"a check returned {count}, but {ended} operations ended"
        missed = self.poll(key, self.flips)
        assert not missed, f"a check left {missed}"

    def count_checked(self) -> int:
        """Return the number of operations that a check can have ended."""
        checked = {Outcome.COMPLETED, Outcome.FAILED}
        return sum(probe.outcome in checked for probe in self.probes)

    @step
    def check_some(self) -> None:
        """Check a key with a limit, when more operations could be completed."""
        limit, key = self.random.randint(1, 3), self.draw_key()
        self.flips += 1
        for probe in self.pending():
            if key in probe.keys:
                probe.condition, probe.met_since = "open", self.flips
        assert self.purgatory.check_and_complete(key, limit=limit) <= limit

    @step
    def check_in_slices(self) -> None:
        """Check a key within a budget; the rest follows in later turns."""
        key = self.draw_key()
        self.purgatory.check_and_complete(key, budget=0.001)
        self.later_checks.append((key, self.flips))

    @step(weight=2)
    def check_from_thread(self) -> None:
        """Check a key from another thread."""
        key = self.draw_key()
        self.in_thread(lambda: self.purgatory.check_and_complete_threadsafe(key))
        self.later_checks.append((key, self.flips))

    @step
    def end_one(self) -> None:
        """Force or cancel any operation, also one that has ended."""
        if not self.probes:
            return
        probe = self.random.choice(self.probes)
        wins = probe.is_pending
        if self.random.random() < 0.5:
            probe.forced = wins
            assert probe.force_complete() == wins
        else:
            assert probe.cancel() == (probe.outcome is Outcome.CANCELLED and wins)

    @step
    def leave(self) -> None:
        """Cancel a client in the turn in which its condition is met and checked."""
        waiting = [probe for probe in self.pending() if probe.waiter is not None]
        if waiting:
            probe = self.random.choice(waiting)
            probe.condition = "open"
            assert probe.waiter is not None
            probe.waiter.cancel()
            self.purgatory.check_and_complete(probe.keys[0])
            assert probe.outcome is Outcome.CANCELLED, f"{probe} ended for a client that left"

    @step
    def cancel_key(self) -> None:
        """Cancel the operations that watch a key."""
        key = self.draw_key()
        self.purgatory.cancel_for_key(key)
        left = [probe for probe in self.pending() if key in probe.keys]
        assert not left, f"cancel_for_key did not cancel {left}"

    # --- rules ------------------------------------------------------------------------------

    def idle(self) -> None:
        """Assert that all due operations have ended, and that the counts are right."""
        if not hasattr(self, "probes"):
            return
        for key, since in self.later_checks:
            missed = self.poll(key, since)
            assert not missed, f"a check in slices or from a thread left {missed}"
        self.later_checks.clear()
        pending = self.pending()
        assert len(self.purgatory) == len(pending), "the number of pending operations is wrong"
        assert len(self.timer) == len(pending), "the timer has another number of deadlines"
        if self.now_ns == self.loop.peak_ns and not self.timer.closed:
            for probe in pending:
                due_ns = -(-probe.deadline_ns // _TICK_NS) * _TICK_NS
                assert self.now_ns < due_ns, f"{probe} is late"
        self.check_links(pending)

    def check_links(self, pending: list[Probe]) -> None:
        """Count the links between operations and keys."""
        links = sum(len(set(probe.keys)) for probe in pending)
        statistics = self.purgatory.statistics()
        if self.purge_interval is None:
            assert self.purgatory.watched == links, f"{self.purgatory.watched} links, not {links}"
            assert statistics.keys == len({key for probe in pending for key in probe.keys})
        else:
            assert self.purgatory.watched >= links
            assert statistics.estimated_total - len(pending) <= self.purge_interval
        assert set(self.purgatory.pending()) == set(pending)
        outcomes = [probe.outcome for probe in self.probes]
        for outcome, count in (
            (Outcome.COMPLETED, statistics.completed),
            (Outcome.EXPIRED, statistics.expired),
            (Outcome.CANCELLED, statistics.cancelled),
            (Outcome.FAILED, statistics.failed),
        ):
            assert outcomes.count(outcome) == count, f"{count} are {outcome.value}"

    def state(self) -> Hashable:
        """Return the numbers of pending and met operations, and of their keys."""
        pending = self.pending()
        met = sum(probe.is_met for probe in pending)
        return (self.purge_interval, len(pending), met, len({*"".join(map(_keys_of, pending))}))

    async def finish(self) -> None:
        """Close in a drawn way; assert that every operation and every client has ended."""
        await asyncio.sleep(self.random.choice((0.0, 3.0)))
        drain = self.random.choice(_DRAINS)
        if drain == "wait":
            for probe in self.pending():
                if probe.deadline == float("inf"):
                    probe.cancel()
        self.note(f"close {drain}")
        await self.purgatory.aclose(drain=drain)
        await self.settle()
        assert len(self.purgatory) == 0
        assert self.purgatory.watched == 0
        for probe in self.probes:
            ended = probe.outcome in {Outcome.COMPLETED, Outcome.EXPIRED}
            assert probe.is_completed(), f"{probe} has not ended"
            assert self.ends.get(probe, 0) >= ended
            assert probe.waiter is None or probe.waiter.done(), f"the client of {probe} waits"
            if probe.waiter is not None and not probe.waiter.cancelled():
                probe.waiter.exception()
        await self.timer.aclose()


def _keys_of(probe: Probe) -> str:
    return "".join(map(str, probe.keys))


def _nothing() -> None:
    return


def _raise() -> None:
    raise InjectedError("on_complete failed")
