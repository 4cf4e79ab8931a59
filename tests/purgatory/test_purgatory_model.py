"""For any order of calls, a purgatory behaves as if it polled every operation.

The oracle is a list of all operations with their conditions and deadlines; it has no watch lists,
no heaps and no wheel. After each step both must agree on the ended operations, their outcomes and
the keys that completed them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import cast

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from aiowheel import DelayedOperation, ManualTimer, Outcome, Purgatory, PurgatoryFullError
from aiowheel._types import Drain

KEYS = st.sampled_from("abcd")
TICK = 1.0
MAX_PENDING = 12


class Probe(DelayedOperation[int]):
    """An operation whose condition the test sets, with an optional action at its end."""

    def __init__(self, number: int, timeout: float, action: Action | None) -> None:
        super().__init__(timeout)
        self.number = number
        self.condition = "closed"  # or "open", "forcing", "raising"
        self.action = action
        self.ends: list[Outcome] = []

    def try_complete(self) -> bool:
        """Return or do what the condition says."""
        if self.condition == "raising":
            raise ZeroDivisionError
        if self.condition == "forcing":
            return self.force_complete()
        return self.condition == "open"

    def on_complete(self) -> int:
        """Count the call and run the action."""
        self.ends.append(self.outcome)
        if self.action is not None:
            self.action(self)
        return self.number


Action = Callable[[Probe], object]


class PurgatoryMatchesPolling(RuleBasedStateMachine):
    """Drive a purgatory and the oracle with the same calls."""

    @initialize(purge_interval=st.sampled_from([None, 0, 1, 3, 1000]))
    def open(self, purge_interval: int | None) -> None:
        """Begin with eager or lazy watch lists."""
        self.timer = ManualTimer(tick=TICK)
        self.purge_interval = purge_interval
        self.purgatory = Purgatory(
            timer=self.timer, max_pending=MAX_PENDING, purge_interval=purge_interval
        )
        self.probes: list[Probe] = []
        self.expected: dict[Probe, Outcome] = {}
        self.now = 0.0
        self.closed = False

    # --- the oracle ---------------------------------------------------------------------------

    def poll(self, key: object, limit: int = 1000) -> int:
        """Try all operations under *key*, oldest first, then the keys that their ends check."""
        queue: list[object] = [key]
        counts: list[int] = []
        while queue:
            current = queue.pop(0)
            asked = [probe for probe in self.waiting() if current in probe.keys]
            counts.append(0)
            for probe in asked:
                if counts[-1] == (limit if len(counts) == 1 else 1000):
                    break
                if self.expected[probe] is not Outcome.PENDING:
                    continue
                if probe.condition == "raising":
                    self.expected[probe] = Outcome.FAILED
                elif probe.condition != "closed":
                    counts[-1] += 1
                    queue += self.end(probe, Outcome.COMPLETED)
        return counts[0]

    def end(self, probe: Probe, outcome: Outcome) -> list[object]:
        """End an operation and those that its action ends at once; return the keys it checks."""
        self.expected[probe] = outcome
        action = probe.action
        if outcome is Outcome.CANCELLED or action is None:
            return []
        if not isinstance(action, CancelAll):
            return [cast(Check, action).key]
        for each in self.waiting():
            if action.key in each.keys:
                self.expected[each] = Outcome.CANCELLED
        return []

    def waiting(self) -> list[Probe]:
        """Return the operations that have not ended."""
        return [probe for probe in self.probes if self.expected[probe] is Outcome.PENDING]

    def follow(self, keys: list[object]) -> None:
        """Poll the keys that an end outside a check has checked."""
        for key in keys:
            self.poll(key)

    def advance(self, seconds: int) -> None:
        """Let time pass; the manual timer raises the errors of operations without awaiters."""
        try:
            self.timer.advance(seconds)
        except ExceptionGroup as group:
            assert group.subgroup(ZeroDivisionError) is not None  # noqa: PT017

    # --- the calls ----------------------------------------------------------------------------

    @rule(
        keys=st.lists(KEYS, min_size=1, max_size=5),
        timeout=st.sampled_from([1.0, 2.0, 5.0, 100.0, float("inf")]),
        act=st.sampled_from(["", "", "check", "cancel"]),
        act_on=KEYS,
    )
    def watch(self, keys: list[str], timeout: float, act: str, act_on: str) -> None:
        """Watch a new operation whose condition is not met."""
        action: Action | None = None
        if act:
            action = (Check if act == "check" else CancelAll)(self.purgatory, act_on)
        probe = Probe(len(self.probes), timeout, action)
        try:
            assert not self.purgatory.try_complete_else_watch(probe, keys)
        except PurgatoryFullError:
            assert len(self.waiting()) == MAX_PENDING
        else:
            self.probes.append(probe)
            self.expected[probe] = Outcome.PENDING

    @precondition(lambda self: self.waiting())
    @rule(data=st.data(), condition=st.sampled_from(["closed", "open", "forcing", "raising"]))
    def flip(self, data: st.DataObject, condition: str) -> None:
        """Change a condition without a check."""
        data.draw(st.sampled_from(self.waiting())).condition = condition

    @rule(key=KEYS)
    def check(self, key: str) -> None:
        """Check a key."""
        assert self.purgatory.check_and_complete(key) == self.poll(key)

    @rule(key=KEYS, limit=st.integers(1, 3))
    def check_some(self, key: str, limit: int) -> None:
        """Check a key with a limit."""
        assert self.purgatory.check_and_complete(key, limit=limit) == self.poll(key, limit)

    @precondition(lambda self: self.probes)
    @rule(data=st.data(), force=st.booleans())
    def end_one(self, data: st.DataObject, *, force: bool) -> None:
        """Force or cancel any operation; the call has an effect only if it has not ended."""
        probe = data.draw(st.sampled_from(self.probes))
        wins = self.expected[probe] is Outcome.PENDING
        if wins:
            self.follow(self.end(probe, Outcome.COMPLETED if force else Outcome.CANCELLED))

        assert (probe.force_complete() if force else probe.cancel()) == wins

    @rule(key=KEYS)
    def cancel_for_key(self, key: str) -> None:
        """Cancel all operations under the key."""
        expected = [probe for probe in self.waiting() if key in probe.keys]
        for probe in expected:
            self.end(probe, Outcome.CANCELLED)

        assert self.purgatory.cancel_for_key(key) == expected

    @rule(seconds=st.integers(1, 4))
    def let_time_pass(self, seconds: int) -> None:
        """Expire due operations, second by second, oldest first."""
        for _ in range(seconds):
            self.now += 1
            self.advance(1)
            for probe in list(self.waiting()):
                if self.expected[probe] is Outcome.PENDING and probe.deadline <= self.now:
                    self.follow(self.end(probe, Outcome.EXPIRED))

    @rule(drain=st.sampled_from(["expire", "cancel"]))
    @precondition(lambda self: len(self.probes) > 15)
    def close_and_open_another(self, drain: Drain) -> None:
        """Close: every pending operation has one end, and new operations are refused."""
        outcome = Outcome.EXPIRED if drain == "expire" else Outcome.CANCELLED
        left = self.waiting()
        asyncio.run(self.purgatory.aclose(drain=drain))
        assert (len(self.purgatory), self.purgatory.watched) == (0, 0)
        for probe in left:
            assert probe.outcome in {outcome, Outcome.CANCELLED, Outcome.COMPLETED, Outcome.FAILED}
            assert len(probe.ends) == (probe.outcome in {Outcome.EXPIRED, Outcome.COMPLETED})
        self.advance(0)
        self.open(self.purge_interval)

    # --- what must always hold ----------------------------------------------------------------

    @invariant()
    def agree(self) -> None:
        """Compare the ends of all operations and recount every number."""
        if not hasattr(self, "probes"):
            return
        self.advance(0)
        for probe, outcome in self.expected.items():
            assert probe.outcome is outcome, probe.number
            assert probe.ends == ([outcome] if outcome.name in {"COMPLETED", "EXPIRED"} else [])
        waiting = self.waiting()
        links = sum(len(set(probe.keys)) for probe in waiting)
        statistics = self.purgatory.statistics()
        counted = list(self.expected.values()).count
        assert len(self.purgatory) == statistics.pending == len(self.timer) == len(waiting)
        assert set(self.purgatory.pending()) == set(waiting)
        assert statistics.completed == counted(Outcome.COMPLETED)
        assert statistics.expired == counted(Outcome.EXPIRED)
        assert statistics.cancelled == counted(Outcome.CANCELLED)
        assert statistics.failed == counted(Outcome.FAILED)
        if self.purge_interval is None:
            assert self.purgatory.watched == statistics.watched == links
            assert statistics.keys == len({key for probe in waiting for key in probe.keys})
            assert statistics.estimated_total == len(waiting)
        else:
            assert self.purgatory.watched == statistics.watched >= links
            assert statistics.estimated_total - len(waiting) <= self.purge_interval
        assert sum(count for _, count in self.purgatory.top_keys()) == statistics.watched
        assert len(self.purgatory.top_keys()) == min(statistics.keys, 10)


class Check:
    """An action that checks a key at the end of its operation."""

    def __init__(self, purgatory: Purgatory, key: str) -> None:
        self.purgatory = purgatory
        self.key = key

    def __call__(self, probe: Probe) -> None:
        """Check the key."""
        self.purgatory.check_and_complete(self.key)


class CancelAll(Check):
    """An action that cancels all operations under a key at the end of its operation."""

    def __call__(self, probe: Probe) -> None:
        """Cancel all operations under the key."""
        self.purgatory.cancel_for_key(self.key)


TestPurgatoryMatchesPolling = PurgatoryMatchesPolling.TestCase
TestPurgatoryMatchesPolling.settings = settings(
    max_examples=3 * settings().max_examples, stateful_step_count=40
)
