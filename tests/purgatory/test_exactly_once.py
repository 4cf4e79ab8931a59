"""Every operation has exactly one end, in any order of calls and callbacks."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable
from typing import cast

import pytest

from aiowheel import DelayedOperation, ManualTimer, Outcome, Purgatory
from aiowheel._types import Delay
from tests._keys import RenamedKey

UNHASHABLE = cast(Hashable, ["k"])


class Gate(DelayedOperation[int]):
    """An operation that completes once it is opened, and then runs a hook."""

    def __init__(self, timeout: Delay | None = 30.0) -> None:
        super().__init__(timeout)
        self.open = False
        self.ends: list[Outcome] = []
        self.then: Callable[[], object] = int

    def try_complete(self) -> bool:
        """Return whether the gate is open."""
        return self.open

    def on_complete(self) -> int:
        """Count the call, then run the hook."""
        self.ends.append(self.outcome)
        self.then()
        return len(self.ends)


class Faulty(Gate):
    """An operation whose condition raises once it is opened."""

    def __init__(self, error: BaseException) -> None:
        super().__init__()
        self.error = error

    def try_complete(self) -> bool:
        """Raise if open."""
        if self.open:
            raise self.error
        return False


def watched(purgatory: Purgatory, gate: Gate, *keys: object) -> Gate:
    """Watch *gate*, which must stay pending."""
    assert not purgatory.try_complete_else_watch(gate, keys)
    return gate


def let_time_pass(purgatory: Purgatory) -> int:
    """Advance the manual timer of *purgatory* by a minute."""
    return cast(ManualTimer, purgatory._timer).advance(60)


WAYS: dict[str, Callable[[Purgatory, Gate], object]] = {
    "check": lambda purgatory, _: purgatory.check_and_complete("k"),
    "force": lambda _, gate: gate.force_complete(),
    "timeout": lambda purgatory, _: let_time_pass(purgatory),
    "cancel": lambda _, gate: gate.cancel(),
    "cancel for key": lambda purgatory, _: purgatory.cancel_for_key("k"),
}
END = {
    "check": Outcome.COMPLETED,
    "force": Outcome.COMPLETED,
    "timeout": Outcome.EXPIRED,
    "cancel": Outcome.CANCELLED,
    "cancel for key": Outcome.CANCELLED,
}


@pytest.mark.parametrize("later", WAYS)
@pytest.mark.parametrize("first", WAYS)
def test_the_first_end_wins(purgatory: Purgatory, first: str, later: str) -> None:
    """The second call has no effect."""
    gate = watched(purgatory, Gate(), "k")
    gate.open = True

    assert WAYS[first](purgatory, gate)
    assert not WAYS[later](purgatory, gate)

    assert gate.outcome is END[first]
    assert gate.ends == ([] if END[first] is Outcome.CANCELLED else [END[first]])
    assert (len(purgatory), purgatory.watched) == (0, 0)


@pytest.mark.parametrize("later", WAYS)
@pytest.mark.parametrize("first", WAYS)
def test_the_first_end_wins_from_within_on_complete(
    purgatory: Purgatory, first: str, later: str
) -> None:
    """on_complete may call anything; the operation has ended already and nothing runs twice."""
    gate = watched(purgatory, Gate(), "k")
    gate.open = True
    gate.then = lambda: WAYS[later](purgatory, gate)

    WAYS[first](purgatory, gate)

    assert gate.outcome is END[first]
    assert len(gate.ends) == (END[first] is not Outcome.CANCELLED)


@pytest.mark.parametrize("check_first", [True, False])
def test_completion_and_timeout_in_the_same_instant(
    purgatory: Purgatory, timer: ManualTimer, *, check_first: bool
) -> None:
    """Two deadlines in one tick: the order of arming decides, and there is one outcome."""
    gate = Gate(1.0)

    def check() -> None:
        gate.open = True
        purgatory.check_and_complete("k")

    if check_first:
        timer.call_later(1.0, check)
    watched(purgatory, gate, "k")
    if not check_first:
        timer.call_later(1.0, check)
    timer.advance(2)

    winner = Outcome.COMPLETED if check_first else Outcome.EXPIRED
    assert (gate.outcome, gate.ends) == (winner, [winner])


def test_a_condition_may_end_its_own_operation(purgatory: Purgatory) -> None:
    """A condition that forces counts as completed by the check; one that cancels does not."""

    class Own(Gate):
        way = ""

        def try_complete(self) -> bool:
            if self.way:
                WAYS[self.way](purgatory, self)
            return bool(self.way)

    forcing, cancelling = watched(purgatory, Own(), "f"), watched(purgatory, Own(), "c")
    assert isinstance(forcing, Own)
    assert isinstance(cancelling, Own)
    forcing.way, cancelling.way = "force", "cancel"

    assert purgatory.check_and_complete("f") == 1
    assert purgatory.check_and_complete("c") == 0
    assert (forcing.outcome, forcing.completed_by) == (Outcome.COMPLETED, "f")
    assert cancelling.outcome is Outcome.CANCELLED


@pytest.mark.parametrize("position", [0, 2, 4])
@pytest.mark.parametrize(
    "error",
    [
        ZeroDivisionError(),
        RecursionError(),
        StopIteration(3),
        asyncio.CancelledError(),
        GeneratorExit(),
    ],
)
def test_a_condition_that_raises_fails_its_operation_alone(
    purgatory: Purgatory, timer: ManualTimer, position: int, error: BaseException
) -> None:
    """First, in the middle or last: the check continues with the others and reports the error."""
    gates = [Faulty(error) if number == position else Gate() for number in range(5)]
    for gate in gates:
        watched(purgatory, gate, "k")
        gate.open = True

    assert purgatory.check_and_complete("k") == 4

    assert [gate.outcome for gate in gates].count(Outcome.COMPLETED) == 4
    assert gates[position].outcome is Outcome.FAILED
    assert gates[position].ends == []
    assert (len(purgatory), purgatory.watched, len(timer)) == (0, 0, 0)
    with pytest.raises(ExceptionGroup) as caught:
        timer.advance(0)
    (reported,) = caught.value.exceptions
    assert error in {reported, reported.__cause__}


@pytest.mark.parametrize("way", ["check", "force", "timeout"])
@pytest.mark.parametrize(
    "error", [ZeroDivisionError(), StopIteration(), asyncio.CancelledError(), GeneratorExit()]
)
def test_an_on_complete_that_raises_fails_its_operation_alone(
    purgatory: Purgatory, timer: ManualTimer, way: str, error: BaseException
) -> None:
    """The operation has ended as failed; other operations under its key complete."""
    gate, other = watched(purgatory, Gate(), "k"), watched(purgatory, Gate(100), "k")
    gate.open = other.open = True

    def fail() -> None:
        raise error

    gate.then = fail

    with pytest.raises(ExceptionGroup) as caught:
        WAYS[way](purgatory, gate)
        timer.advance(0)
    purgatory.check_and_complete("k")

    (reported,) = caught.value.exceptions
    assert error in {reported, reported.__cause__}
    assert (gate.outcome, other.outcome) == (Outcome.FAILED, Outcome.COMPLETED)
    statistics = purgatory.statistics()
    assert (statistics.failed, statistics.completed, statistics.pending) == (1, 1, 0)


def test_an_on_expiration_that_raises_fails_its_operation(
    purgatory: Purgatory, timer: ManualTimer
) -> None:
    """The operation counts as failed although on_complete has run."""

    class Late(Gate):
        def on_expiration(self) -> None:
            raise ZeroDivisionError

    gate = watched(purgatory, Late(1), "k")

    with pytest.raises(ExceptionGroup):
        timer.advance(2)

    assert (gate.outcome, gate.ends) == (Outcome.FAILED, [Outcome.EXPIRED])


def test_an_error_after_forcing_is_not_swallowed(purgatory: Purgatory, timer: ManualTimer) -> None:
    """The operation keeps its first outcome, and the error is reported."""

    class RaisingAfterForce(Gate):
        def try_complete(self) -> bool:
            if self.open:
                self.force_complete()
                raise ZeroDivisionError
            return False

    gate = watched(purgatory, RaisingAfterForce(), "k")
    gate.open = True

    assert purgatory.check_and_complete("k") == 1

    assert gate.outcome is Outcome.COMPLETED
    with pytest.raises(ExceptionGroup):
        timer.advance(0)


def test_a_keyboard_interrupt_passes_and_leaves_the_purgatory_usable(purgatory: Purgatory) -> None:
    """No cursor stays behind, and later ends are not counted for the interrupted check."""
    first = watched(purgatory, Gate(), "k")
    faulty = watched(purgatory, Faulty(KeyboardInterrupt()), "k")
    last = watched(purgatory, Gate(), "k")
    faulty.open = True

    with pytest.raises(KeyboardInterrupt):
        purgatory.check_and_complete("k")

    watchers = purgatory._lists.get("k")
    assert watchers is not None
    nodes, node = 0, watchers.next
    while node is not watchers:
        assert node is not None
        nodes, node = nodes + 1, node.next
    assert nodes == 3
    faulty.force_complete()
    assert faulty.completed_by is None
    first.open = last.open = True
    assert purgatory.check_and_complete("k") == 2


def test_checks_nest_without_recursion(purgatory: Purgatory) -> None:
    """Each of 10,000 completions checks the next key; a queue replaces the stack."""
    gates = [watched(purgatory, Gate(), number) for number in range(10_000)]
    for number, gate in enumerate(gates):
        gate.open = True
        gate.then = lambda number=number: purgatory.check_and_complete(number + 1)  # type: ignore[misc]

    assert purgatory.check_and_complete(0) == 1  # nested checks count for no caller

    assert {gate.outcome for gate in gates} == {Outcome.COMPLETED}
    assert purgatory.statistics().completed == 10_000


def test_nested_checks_run_in_order_after_the_one_under_way(purgatory: Purgatory) -> None:
    """The running check ends first; then nested checks run in the order of their calls."""
    order: list[str] = []
    names = ["k", "k", "a", "b", "c"]
    gates = [watched(purgatory, Gate(), name) for name in names]
    for gate, name in zip(gates, ("k1", "k2", "a", "b", "c"), strict=True):
        gate.open = True
        gate.then = lambda name=name: order.append(name)  # type: ignore[misc]

    def first() -> None:
        order.append("k1")
        assert purgatory.check_and_complete("a") == 0
        assert purgatory.check_and_complete("b") == 0

    def second() -> None:
        order.append("a")
        purgatory.check_and_complete("c")

    gates[0].then, gates[2].then = first, second
    purgatory.check_and_complete("k")

    assert order == ["k1", "k2", "a", "b", "c"]


@pytest.mark.parametrize("how", ["expiry", "force", "watch"])
def test_a_check_inside_an_end_outside_of_a_check_runs_at_once(
    purgatory: Purgatory, timer: ManualTimer, how: str
) -> None:
    """Only a check or an advance queues the calls inside it."""
    other = watched(purgatory, Gate(None), "other")
    other.open = True
    gate = Gate(1)
    completed: list[int] = []
    gate.then = lambda: completed.append(purgatory.check_and_complete("other"))

    gate.open = how == "watch"
    assert purgatory.try_complete_else_watch(gate, ["k"]) == gate.open
    if how == "expiry":
        timer.advance(1)
    elif how == "force":
        gate.force_complete()

    assert completed == [1]
    assert other.outcome is Outcome.COMPLETED


def test_a_nested_check_keeps_its_limit(purgatory: Purgatory) -> None:
    """A queued check also completes no more than its limit."""
    outer = watched(purgatory, Gate(), "outer")
    inner = [watched(purgatory, Gate(), "inner") for _ in range(4)]
    for gate in (outer, *inner):
        gate.open = True
    outer.then = lambda: purgatory.check_and_complete("inner", limit=2)

    purgatory.check_and_complete("outer")

    assert [gate.is_completed() for gate in inner] == [True, True, False, False]


@pytest.mark.parametrize("call", ["check", "advance"])
def test_a_bad_nested_call_raises_at_the_call(purgatory: Purgatory, call: str) -> None:
    """The call itself raises, not a later check."""
    refused: list[TypeError] = []
    calls: dict[str, Callable[[], object]] = {
        "check": lambda: purgatory.check_and_complete(UNHASHABLE),
        "advance": lambda: purgatory.advance(UNHASHABLE, 1),
    }
    gate, other = watched(purgatory, Gate(), "k"), watched(purgatory, Gate(), "other")
    gate.open = other.open = True

    def nested() -> None:
        with pytest.raises(TypeError, match=r"^key must be hashable, got \['k'\]$") as caught:
            calls[call]()
        refused.append(caught.value)
        purgatory.check_and_complete("other")

    gate.then = nested

    assert purgatory.check_and_complete("k") == 1
    assert len(refused) == 1
    assert other.outcome is Outcome.COMPLETED


def test_a_key_emptied_and_watched_again_during_its_own_walk(purgatory: Purgatory) -> None:
    """A later check serves the new watchers; the running one ends with those it found."""
    newcomers: list[Gate] = []
    gates = [watched(purgatory, Gate(), "k") for _ in range(3)]

    def empty_and_watch() -> None:
        for gate in gates:
            gate.cancel()
        newcomer = Gate()
        newcomer.open = False
        newcomers.append(watched(purgatory, newcomer, "k"))
        newcomer.open = True

    gates[0].open = True
    gates[0].then = empty_and_watch

    assert purgatory.check_and_complete("k") == 1
    assert [gate.checks for gate in gates] == [3, 2, 2]
    assert newcomers[0].checks == 2
    assert purgatory.check_and_complete("k") == 1


def test_a_check_does_not_try_operations_watched_during_it(purgatory: Purgatory) -> None:
    """An operation that watches its successor under the same key does not loop forever."""
    count = 0

    def successor() -> None:
        nonlocal count
        count += 1
        gate = watched(purgatory, Gate(), "k")
        gate.then = successor
        gate.open = True

    successor()
    watched(purgatory, Gate(), "k")

    assert purgatory.check_and_complete("k") == 1
    assert count == 2
    assert (len(purgatory), purgatory.watched) == (2, 2)


def test_an_operation_on_a_thousand_keys_leaves_them_at_once(purgatory: Purgatory) -> None:
    """Completion through any key removes all links."""
    gate = watched(purgatory, Gate(), *range(1000))
    assert (purgatory.watched, purgatory.statistics().keys) == (1000, 1000)

    gate.open = True

    assert purgatory.check_and_complete(567) == 1
    assert (purgatory.watched, purgatory.statistics().keys) == (0, 0)


def test_the_hash_of_a_key_may_end_the_operation(purgatory: Purgatory, timer: ManualTimer) -> None:
    """User code may run between the two tries; nothing of the ended operation stays armed."""
    gate = Gate()

    class EndingKey:
        def __hash__(self) -> int:
            gate.force_complete()
            return 1

    assert purgatory.try_complete_else_watch(gate, [EndingKey(), "b"])

    assert (len(purgatory), purgatory.watched, len(timer)) == (0, 0, 0)
    assert gate.ends == [Outcome.COMPLETED]


def test_forcing_another_operation_during_a_walk(purgatory: Purgatory) -> None:
    """An operation that an earlier one forces is not tried again."""
    first, second = watched(purgatory, Gate(), "k"), watched(purgatory, Gate(), "k")
    first.open = True
    first.then = second.force_complete

    assert purgatory.check_and_complete("k") == 1
    assert (second.outcome, second.checks) == (Outcome.COMPLETED, 2)


class Nameless:
    """A key, or a part of an operation, whose `repr` raises."""

    def __repr__(self) -> str:
        raise LookupError("no name")


def test_an_operation_without_a_repr_fails_alone(purgatory: Purgatory, timer: ManualTimer) -> None:
    """The `repr` is user code; the check continues with the other operations."""
    key = Nameless()
    faulty = Faulty(ValueError("on purpose"))
    watched(purgatory, faulty, key)
    other = watched(purgatory, Gate(), key)
    faulty.open = other.open = True

    assert purgatory.check_and_complete(key) == 1

    assert (faulty.outcome, other.outcome) == (Outcome.FAILED, Outcome.COMPLETED)
    with pytest.raises(ExceptionGroup) as caught:
        timer.advance(0)
    assert [str(error) for error in caught.value.exceptions] == ["on purpose"]


class SpoiltKey:
    """A key that can be found until the test spoils it."""

    def __init__(self, how: str) -> None:
        self.how = how
        self.spoilt = False

    def __hash__(self) -> int:
        return 2 if self.spoilt and self.how == "hashes otherwise" else 1

    def __eq__(self, other: object) -> bool:
        if self.spoilt:
            raise ValueError("not to be compared")
        return self is other


@pytest.mark.parametrize("how", ["hashes otherwise", "cannot be compared"])
@pytest.mark.parametrize("purge_interval", [None, 0])
def test_a_key_that_is_not_found_again_stops_no_operation(
    timer: ManualTimer, purge_interval: int | None, how: str
) -> None:
    """Its operation and later ones end as usual."""
    purgatory = Purgatory("test", timer=timer, purge_interval=purge_interval)
    decoy, key = SpoiltKey(how), SpoiltKey(how)
    gates = [watched(purgatory, Gate(), *keys) for keys in ([decoy], [key, "a"], ["b"])]
    decoy.spoilt = key.spoilt = True
    for gate in gates[1:]:
        gate.open = True

    assert [purgatory.check_and_complete(each) for each in "ab"] == [1, 1]

    assert [gate.ends for gate in gates[1:]] == [[Outcome.COMPLETED]] * 2
    assert (len(purgatory), purgatory.watched, len(timer)) == (1, 1, 1)
    assert purgatory.statistics().keys == 1
    assert gates[0].force_complete()
    assert (len(purgatory), purgatory.watched, len(timer)) == (0, 0, 0)


def test_a_key_that_has_become_another_one_leaves_it_its_operations(timer: ManualTimer) -> None:
    """The end of its own operation does not remove the list of the other key."""
    purgatory = Purgatory("test", timer=timer)
    key, other = RenamedKey("a"), RenamedKey("b")
    first, second = (watched(purgatory, Gate(), each) for each in (key, other))
    key.name = "b"
    assert first.force_complete()

    second.open = True

    assert purgatory.check_and_complete(RenamedKey("b")) == 1
    assert (len(purgatory), len(timer)) == (0, 0)
