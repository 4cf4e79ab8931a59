"""Watching keys without a loop: which conditions are tried, in which order, and the errors."""

from __future__ import annotations

import asyncio
import copy
import math
import pickle
import time
from collections.abc import Callable, Hashable
from contextlib import nullcontext
from datetime import timedelta
from typing import Any, cast

import pytest

from aiowheel import (
    AiowheelError,
    DelayedOperation,
    ManualTimer,
    Outcome,
    Purgatory,
    PurgatoryFullError,
    Timer,
    TimerClosedError,
)
from aiowheel._types import Delay
from tests._keys import HookedKey

UNHASHABLE = cast(Hashable, ["k"])


class Gate(DelayedOperation[str]):
    """An operation that completes once it is opened, and records its calls."""

    def __init__(self, timeout: Delay | None = 30.0, name: str = "") -> None:
        super().__init__(timeout)
        self.name = name
        self.open = False
        self.calls: list[str] = []

    def try_complete(self) -> bool:
        """Force the operation if the condition is met, as in Kafka."""
        self.calls.append("try")
        return self.open and self.force_complete()

    def on_complete(self) -> str:
        """Record the present outcome."""
        self.calls.append(self.outcome.name)
        return self.name

    def on_expiration(self) -> None:
        """Record the call; only the timeout makes it."""
        self.calls.append("expiration")


def watched(purgatory: Purgatory, gate: Gate, *keys: Hashable) -> Gate:
    """Watch *gate*, which must stay pending."""
    assert not purgatory.try_complete_else_watch(gate, keys)
    return gate


def test_an_unknown_key_completes_nothing(purgatory: Purgatory) -> None:
    """A check of a key without watchers raises no error."""
    assert purgatory.check_and_complete("nobody") == 0
    assert purgatory.cancel_for_key("nobody") == []
    assert list(purgatory.pending("nobody")) == []


def test_operations_under_different_keys_do_not_see_each_other(purgatory: Purgatory) -> None:
    """A check tries only the watchers of its key and completes each once."""
    first = watched(purgatory, Gate(name="1"), "k1")
    second = watched(purgatory, Gate(name="2"), "k2")

    first.open = second.open = True

    assert purgatory.check_and_complete("k1") == 1
    assert purgatory.check_and_complete("k1") == 0
    assert (first.outcome, second.outcome) == (Outcome.COMPLETED, Outcome.PENDING)
    assert purgatory.check_and_complete("k2") == 1


def test_a_met_condition_is_not_watched(purgatory: Purgatory, timer: ManualTimer) -> None:
    """An operation that completes at its first try leaves no trace in the wheel or in a list."""
    gate = Gate()
    gate.open = True

    assert purgatory.try_complete_else_watch(gate, ["k"])

    assert (len(purgatory), purgatory.watched, len(timer)) == (0, 0, 0)
    assert (gate.checks, gate.completed_by) == (1, None)
    assert gate.calls == ["try", "COMPLETED"]


def test_the_condition_is_tried_before_and_after_the_keys_are_watched(
    purgatory: Purgatory,
) -> None:
    """A condition met between the two tries is not missed; the second result is returned."""
    watched_at_try: list[int] = []

    class SecondTry(DelayedOperation[None]):
        def try_complete(self) -> bool:
            watched_at_try.append(purgatory.watched)
            return len(watched_at_try) == 2

    assert purgatory.try_complete_else_watch(SecondTry(30), ["a", "b"])
    assert watched_at_try == [0, 2]
    assert (len(purgatory), purgatory.watched) == (0, 0)


def test_finished_operations_leave_all_their_lists_at_once(purgatory: Purgatory) -> None:
    """Six links become four and then one, without a check or a purge."""
    first = watched(purgatory, Gate(), 1)
    second = watched(purgatory, Gate(), 1, 2)
    third = watched(purgatory, Gate(), 1, 2, 3)
    assert (len(purgatory), purgatory.watched) == (3, 6)

    second.force_complete()
    assert (len(purgatory), purgatory.watched) == (2, 4)
    third.force_complete()
    assert (len(purgatory), purgatory.watched) == (1, 1)
    assert purgatory.top_keys() == [(1, 1)]

    first.cancel()
    assert (len(purgatory), purgatory.watched, purgatory.top_keys()) == (0, 0, [])


def test_a_timeout_expires_its_operation_and_no_other(
    purgatory: Purgatory, timer: ManualTimer
) -> None:
    """on_expiration runs after on_complete; another operation stays pending."""
    short = watched(purgatory, Gate(0.020), "k")
    long = watched(purgatory, Gate(200.0), "k")

    timer.advance(0.019)
    assert not short.is_completed()
    timer.advance(0.001)

    assert short.outcome is Outcome.EXPIRED
    assert short.calls == ["try", "try", "EXPIRED", "expiration"]
    assert short.finished - short.created >= 0.020
    assert long.outcome is Outcome.PENDING
    assert (len(purgatory), purgatory.watched) == (1, 1)


def test_times_are_on_the_scale_of_the_timer(purgatory: Purgatory, timer: ManualTimer) -> None:
    """`created`, `deadline` and `finished` can be compared with `timer.time()`."""
    timer.advance(5)
    gate = watched(purgatory, Gate(timedelta(seconds=2)), "k")

    assert (gate.created, gate.deadline, gate.finished) == (5.0, 7.0, math.inf)
    timer.advance(1)
    gate.force_complete()
    assert (gate.finished, timer.time()) == (6.0, 6.0)


def test_an_endless_timeout_never_expires(purgatory: Purgatory, timer: ManualTimer) -> None:
    """`inf` is legal; a year later the operation is still pending and can be completed."""
    gate = watched(purgatory, Gate(math.inf), "k")

    timer.advance(365 * 86_400)

    assert (gate.outcome, gate.deadline) == (Outcome.PENDING, math.inf)
    assert gate.force_complete()


@pytest.mark.overdue
@pytest.mark.parametrize("timeout", [0, -1, -math.inf])
def test_a_timeout_that_is_over_expires_with_the_next_advance(
    purgatory: Purgatory, timer: ManualTimer, timeout: float
) -> None:
    """It never expires inside the call that watches it: the condition has its two tries first."""
    gate = watched(purgatory, Gate(timeout), "k")

    timer.advance(0.001)

    assert gate.calls == ["try", "try", "EXPIRED", "expiration"]


def test_completed_by_names_the_key(purgatory: Purgatory) -> None:
    """It is the key whose check completed the operation, and None after force or expiry."""
    by_key = watched(purgatory, Gate(), "a", "b")
    forced = watched(purgatory, Gate(), "a", "b")

    by_key.open = True
    purgatory.check_and_complete("b")
    forced.force_complete()

    assert (by_key.completed_by, forced.completed_by) == ("b", None)
    assert by_key.keys == ("a", "b")


def test_completed_by_is_not_taken_from_a_running_check(purgatory: Purgatory) -> None:
    """An operation forced in another one's condition was completed by no key."""
    victim = watched(purgatory, Gate(), "other")

    class Forcing(Gate):
        def try_complete(self) -> bool:
            if self.open:
                victim.force_complete()
            return self.open

    forcing = watched(purgatory, Forcing(), "k")
    forcing.open = True

    assert purgatory.check_and_complete("k") == 1
    assert (victim.completed_by, forcing.completed_by) == (None, "k")


@pytest.mark.parametrize("how", ["try raises", "complete raises", "interrupt", "cancel"])
def test_completed_by_is_none_for_every_other_outcome(
    purgatory: Purgatory, timer: ManualTimer, how: str
) -> None:
    """A check that fails or cancels its operation does not complete it."""
    seen: list[object] = []

    class Other(Gate):
        def try_complete(self) -> bool:
            if self.open and how == "try raises":
                raise ZeroDivisionError
            if self.open and how == "cancel":
                self.cancel()
            return self.open

        def on_complete(self) -> str:
            seen.append(self.completed_by)
            raise KeyboardInterrupt if how == "interrupt" else ZeroDivisionError

    operation = watched(purgatory, Other(), "k")
    operation.open = True
    with pytest.raises(KeyboardInterrupt) if how == "interrupt" else nullcontext():
        assert purgatory.check_and_complete("k") == 0
    with nullcontext() if how in {"cancel", "interrupt"} else pytest.raises(ExceptionGroup):
        timer.advance(0)

    assert operation.outcome is (Outcome.CANCELLED if how == "cancel" else Outcome.FAILED)
    assert operation.completed_by is None
    assert seen == (["k"] if how in {"complete raises", "interrupt"} else [])


def test_a_check_tries_the_oldest_first(purgatory: Purgatory) -> None:
    """This also holds after operations in the middle have left and others were added."""
    order: list[str] = []

    class Recording(Gate):
        def on_complete(self) -> str:
            order.append(self.name)
            return self.name

    gates = [watched(purgatory, Recording(name=str(number)), "k") for number in range(6)]
    gates[2].cancel()
    gates.append(watched(purgatory, Recording(name="6"), "k"))
    for gate in gates:
        gate.open = True

    assert purgatory.check_and_complete("k") == 6
    assert order == ["0", "1", "3", "4", "5", "6"]


def test_a_limit_completes_that_many_of_the_oldest(purgatory: Purgatory) -> None:
    """Operations whose condition is not met do not count."""
    gates = [watched(purgatory, Gate(name=str(number)), "k") for number in range(6)]
    for number in (1, 2, 4, 5):
        gates[number].open = True

    assert purgatory.check_and_complete("k", limit=3) == 3
    assert [gate.name for gate in gates if not gate.is_completed()] == ["0", "3", "5"]
    assert gates[5].checks == 2  # not tried again after the limit was reached
    assert purgatory.check_and_complete("k", limit=3) == 1


def test_a_key_given_twice_counts_once(purgatory: Purgatory) -> None:
    """Links and checks are not doubled, wherever the second key stands."""
    gate = watched(purgatory, Gate(), "a", "b", "a", "b", "b")
    assert purgatory.watched == 2

    purgatory.check_and_complete("a")
    assert gate.checks == 3


def test_keys_that_are_equal_are_one_key(purgatory: Purgatory) -> None:
    """Keys compare as in a dict: 1, 1.0 and True are equal."""
    watched(purgatory, Gate(), 1, 1.0, True)

    assert purgatory.top_keys() == [(1, 1)]


def test_comparing_keys_may_watch_others(purgatory: Purgatory) -> None:
    """If the comparison of a key watches another operation, each key keeps its own list."""
    nested = Gate()

    class WatchingKey:
        def __hash__(self) -> int:
            return hash("taken")

        def __eq__(self, other: object) -> bool:
            if nested.outcome is Outcome.PENDING and not nested.keys:
                watched(purgatory, nested, "nested")
            return self is other

    taken, watching = watched(purgatory, Gate(), "taken"), WatchingKey()
    outer = watched(purgatory, Gate(), watching)

    assert [list(purgatory.pending(key)) for key in ("taken", "nested", watching)] == [
        [taken],
        [nested],
        [outer],
    ]
    nested.open = outer.open = True
    assert (purgatory.check_and_complete("nested"), purgatory.check_and_complete(watching)) == (
        1,
        1,
    )
    assert purgatory.watched == 1


def test_cancel_for_key_cancels_everywhere(purgatory: Purgatory, timer: ManualTimer) -> None:
    """The call returns them, oldest first; they leave their other keys and the wheel."""
    first = watched(purgatory, Gate(), "a", "b")
    second = watched(purgatory, Gate(), "a")
    other = watched(purgatory, Gate(), "b")

    assert purgatory.cancel_for_key("a") == [first, second]

    assert (first.outcome, other.outcome) == (Outcome.CANCELLED, Outcome.PENDING)
    assert first.calls == ["try", "try"]  # no on_complete
    assert (len(purgatory), purgatory.watched, len(timer)) == (1, 1, 1)


def test_a_condition_may_return_any_true_object(purgatory: Purgatory) -> None:
    """A condition may return any object."""

    class Truthy(DelayedOperation[str]):
        answer: object = ""

        def try_complete(self) -> object:  # type: ignore[override]
            return self.answer

    operation = Truthy(30)
    assert not purgatory.try_complete_else_watch(operation, ["k"])

    operation.answer = "yes"

    assert purgatory.check_and_complete("k") == 1
    assert operation.outcome is Outcome.COMPLETED


def test_forcing_before_watching_ends_it(purgatory: Purgatory) -> None:
    """on_complete runs once; the operation can no longer be watched."""
    gate = Gate()

    assert gate.force_complete()
    assert not gate.force_complete()
    assert not gate.cancel()

    assert gate.calls == ["COMPLETED"]
    with pytest.raises(
        ValueError,
        match=r"operation must be new, for it can be watched once, got <Gate completed keys=\(\)>",
    ):
        purgatory.try_complete_else_watch(gate, ["k"])
    assert len(purgatory) == 0


def test_cancelling_before_watching_ends_it(purgatory: Purgatory) -> None:
    """on_complete does not run."""
    gate = Gate()

    assert gate.cancel()
    assert not gate.force_complete()

    assert gate.calls == []
    with pytest.raises(ValueError, match="watched once, got <Gate cancelled"):
        purgatory.try_complete_else_watch(gate, ["k"])


def test_a_subclass_needs_no_constructor(purgatory: Purgatory) -> None:
    """The timeout is then its only argument, and on_complete returns None."""

    class Plain(DelayedOperation[None]):
        def try_complete(self) -> bool:
            return True

    operation = Plain(5)

    assert purgatory.try_complete_else_watch(operation, ["k"])
    assert operation.outcome is Outcome.COMPLETED


def test_a_condition_must_be_written(purgatory: Purgatory, timer: ManualTimer) -> None:
    """The error names the class, and the operation fails."""
    operation: DelayedOperation[None] = DelayedOperation(5)

    assert purgatory.try_complete_else_watch(operation, ["k"])

    assert operation.outcome is Outcome.FAILED
    with pytest.raises(ExceptionGroup) as caught:
        timer.advance(0)
    assert "DelayedOperation must implement try_complete" in str(caught.value.exceptions[0])


def test_a_subclass_that_forgets_its_base_is_refused(purgatory: Purgatory) -> None:
    """The operation has no timeout; nothing is registered."""

    class Forgetful(DelayedOperation[None]):
        def __init__(self) -> None:
            pass

        def try_complete(self) -> bool:
            return False

    with pytest.raises(TypeError, match=r"call super\(\).__init__\(timeout\).* got a Forgetful"):
        purgatory.try_complete_else_watch(Forgetful(), ["k"])
    assert (len(purgatory), purgatory.watched) == (0, 0)


@pytest.mark.parametrize(
    ("timeout", "error", "text"),
    [
        ([], TypeError, r"timeout must be a number of seconds or a timedelta, got \[\]"),
        (True, TypeError, "got True"),
        ("5", TypeError, "got '5'"),
        (math.nan, ValueError, "timeout must be a number of seconds other than NaN, got nan"),
    ],
)
def test_a_bad_timeout_is_refused(timeout: Any, error: type[Exception], text: str) -> None:
    """The call raises with the value in the text."""
    with pytest.raises(error, match=text):
        Gate(timeout)


@pytest.mark.parametrize(
    ("keys", "error", "text"),
    [
        ([], ValueError, "keys must name at least one key"),
        ("topic", TypeError, "not one string, got 'topic'"),
        (b"topic", TypeError, "not one string, got b'topic'"),
        (["a", ["b"], "c"], TypeError, "keys must be hashable, got"),
        (5, TypeError, "keys must be a collection of keys, got 5"),
    ],
)
def test_bad_keys_are_refused_without_a_trace(
    purgatory: Purgatory,
    timer: ManualTimer,
    keys: list[Hashable],
    error: type[Exception],
    text: str,
) -> None:
    """Nothing is watched or armed, and the operation can be watched with other keys."""
    gate = Gate()

    with pytest.raises(error, match=text):
        purgatory.try_complete_else_watch(gate, keys)

    assert (len(purgatory), purgatory.watched, len(timer)) == (0, 0, 0)
    assert purgatory.statistics().estimated_total == 0
    watched(purgatory, gate, "good")


def test_an_operation_is_watched_once(purgatory: Purgatory, timer: ManualTimer) -> None:
    """A second call, here or in another purgatory, raises and changes nothing."""
    gate = watched(purgatory, Gate(), "a")

    for room in (purgatory, Purgatory(timer=timer)):
        with pytest.raises(ValueError, match=r"watched once, got <Gate pending keys=\('a',\)>"):
            room.try_complete_else_watch(gate, ["b"])

    assert (purgatory.watched, gate.keys, len(timer)) == (1, ("a",), 1)


def test_a_full_purgatory_refuses_and_keeps_no_trace(timer: ManualTimer) -> None:
    """The refused operation can be watched once there is room."""
    purgatory = Purgatory("small", timer=timer, max_pending=2)
    first = watched(purgatory, Gate(), "k")
    watched(purgatory, Gate(), "k")
    third = Gate()

    with pytest.raises(PurgatoryFullError, match="'small' holds its max_pending of 2") as caught:
        purgatory.try_complete_else_watch(third, ["k", "other"])

    assert isinstance(caught.value, AiowheelError)
    assert (caught.value.name, caught.value.max_pending) == ("small", 2)
    assert (len(purgatory), purgatory.watched, len(timer)) == (2, 2, 2)
    assert third.outcome is Outcome.PENDING
    first.cancel()
    watched(purgatory, third, "k")


def test_a_full_purgatory_accepts_operations_that_complete_at_once(timer: ManualTimer) -> None:
    """The limit applies only to pending operations."""
    purgatory = Purgatory(timer=timer, max_pending=1)
    watched(purgatory, Gate(), "k")
    ready = Gate()
    ready.open = True

    assert purgatory.try_complete_else_watch(ready, ["k"])


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"max_pending": 0}, ValueError, "max_pending must be from 1 to .*, got 0"),
        ({"max_pending": -5}, ValueError, "got -5"),
        ({"purge_interval": -1}, ValueError, "purge_interval must be from 0 to .*, got -1"),
        ({"max_pending": 2**70}, ValueError, f"got {2**70}"),
        ({"max_pending": 2.5}, TypeError, "int"),
        ({"purge_interval": "1000"}, TypeError, "int"),
    ],
)
def test_a_bad_limit_of_the_purgatory_is_refused(
    timer: ManualTimer, options: dict[str, Any], error: type[Exception], text: str
) -> None:
    """The constructor raises with value and range."""
    with pytest.raises(error, match=text):
        Purgatory(timer=timer, **options)


def test_the_largest_limits_are_accepted(timer: ManualTimer) -> None:
    """One more stands for no limit inside the package, and is refused."""
    most, least = 2**61 - 2, 1
    purgatory = Purgatory(timer=timer, max_pending=most, purge_interval=most)
    Purgatory(timer=timer, max_pending=least, purge_interval=0)

    assert purgatory.check_and_complete("k", limit=most) == 0
    assert purgatory.check_and_complete("k", limit=least) == 0
    assert purgatory.top_keys(most) == []
    with pytest.raises(ValueError, match=f"got {most + 1}"):
        Purgatory(timer=timer, max_pending=most + 1)
    with pytest.raises(ValueError, match=f"got {most + 1}"):
        Purgatory(timer=timer, purge_interval=most + 1)


@pytest.mark.parametrize("limit", [0, -1, 2**61 - 1, 2**70])
def test_a_bad_limit_of_a_check_is_refused(purgatory: Purgatory, limit: int) -> None:
    """The call raises with value and range, and tries no condition."""
    gate = watched(purgatory, Gate(), "k")

    with pytest.raises(ValueError, match=f"limit must be from 1 to .*, got {limit}"):
        purgatory.check_and_complete("k", limit=limit)
    assert gate.checks == 2


def test_an_unhashable_key_cannot_be_checked(purgatory: Purgatory) -> None:
    """The error text names the type."""
    with pytest.raises(TypeError, match=r"^key must be hashable, got"):
        purgatory.check_and_complete(UNHASHABLE)


def test_nothing_is_watched_on_a_closed_timer(timer: ManualTimer) -> None:
    """The error is clear, and the operation is as new as before."""
    purgatory = Purgatory(timer=timer)
    timer._manual.close()
    gate = Gate()

    with pytest.raises(TimerClosedError):
        purgatory.try_complete_else_watch(gate, ["k"])

    watched(Purgatory(timer=ManualTimer()), gate, "k")


def test_pending_lists_operations_by_key(purgatory: Purgatory) -> None:
    """Each operation, or those of one key, comes once; the result is a snapshot."""
    first = watched(purgatory, Gate(), "a", "b")
    second = watched(purgatory, Gate(), "b")

    assert set(purgatory.pending()) == {first, second}
    assert list(purgatory.pending("b")) == [first, second]
    for operation in purgatory.pending():
        operation.cancel()
    assert list(purgatory.pending()) == []


def test_none_is_a_key_like_any_other(purgatory: Purgatory) -> None:
    """`pending(None)` lists the operations under that key, as `cancel_for_key` cancels them."""
    gate = watched(purgatory, Gate(), None)
    other = watched(purgatory, Gate(), "other")

    assert list(purgatory.pending(None)) == [gate]
    assert purgatory.waiters(None) == 1
    assert purgatory.cancel_for_key(None) == [gate]
    assert list(purgatory.pending()) == [other]


def test_reprs_show_name_state_and_keys(purgatory: Purgatory) -> None:
    """They show name, state and keys."""
    gate = watched(purgatory, Gate(), ("topic", 0))

    assert repr(purgatory) == "<Purgatory 'test' pending=1>"
    assert repr(gate) == "<Gate pending keys=(('topic', 0),)>"


@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy, pickle.dumps])
def test_an_operation_cannot_be_copied(
    purgatory: Purgatory, duplicate: Callable[[object], object]
) -> None:
    """A copy would end in place of the pending original, which would then never end."""
    gate = watched(purgatory, Gate(), "k")

    with pytest.raises(TypeError, match="Gate cannot be copied or pickled"):
        duplicate(gate)


# --- the next end -----------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["completed", "expired", "cancelled", "closed"])
async def test_the_next_end_of_an_operation_sets_an_event(how: str) -> None:
    """All who ask before that end get the same event; later ones get a new event."""
    timer = ManualTimer()
    purgatory = Purgatory("test", timer=timer)
    first = watched(purgatory, Gate(10), "k")
    ended = purgatory.next_end()
    assert purgatory.next_end() is ended
    assert not ended.is_set()

    match how:
        case "completed":
            first.force_complete()
        case "expired":
            timer.advance(11)
        case "cancelled":
            first.cancel()
        case _:
            await purgatory.aclose()

    assert ended.is_set()
    assert not purgatory.next_end().is_set()


def test_an_end_after_the_loop_that_waits_was_closed() -> None:
    """The event cannot call its waiter any more; the operation completes nevertheless."""
    purgatory = Purgatory("test", timer=ManualTimer())
    gate = watched(purgatory, Gate(), "k")
    ended = purgatory.next_end()
    waiting = ended.wait()
    called: list[object] = []

    async def main() -> None:
        waiting.send(None).add_done_callback(called.append)  # as a task would

    loop = asyncio.new_event_loop()
    loop.run_until_complete(main())
    loop.close()

    assert gate.force_complete()

    waiting.close()
    assert (gate.outcome, ended.is_set(), called) == (Outcome.COMPLETED, True, [])


@pytest.mark.parametrize("slow", ["condition", "hash"])
async def test_slow_code_in_watch_does_not_delay_the_timeout(
    monkeypatch: pytest.MonkeyPatch, slow: str
) -> None:
    """An alarm after a delay, as on uvloop, is set for the time that is left after that code."""
    now = [100.0]

    def read(clock: int) -> float:
        return now[0]

    monkeypatch.setattr(time, "CLOCK_BOOTTIME", 7, raising=False)
    monkeypatch.setattr(time, "clock_gettime", read, raising=False)
    loop = asyncio.get_running_loop()
    call_later, delays = loop.call_later, list[float]()

    def record(delay: float, callback: Callable[[], object], **options: Any) -> asyncio.TimerHandle:
        delays.append(delay)
        return call_later(delay, callback, **options)

    monkeypatch.setattr(loop, "call_later", record)

    def let_time_pass() -> None:
        now[0] += 0.2

    class Slow(Gate):
        def try_complete(self) -> bool:
            if self.checks == 1:
                let_time_pass()
            return False

    async with Timer(clock="boottime") as timer, Purgatory(timer=timer) as purgatory:
        key = HookedKey()
        key.hook = let_time_pass if slow == "hash" else None
        operation = Gate(0.5) if slow == "hash" else Slow(0.5)
        purgatory.try_complete_else_watch(operation, [key])
        assert operation.deadline == pytest.approx(100.5)
        operation.cancel()

    assert delays == [pytest.approx(0.3, abs=0.003)]


@pytest.mark.parametrize("look_ups", [0, 1])
def test_the_hash_of_a_key_may_watch_it_while_its_last_operation_leaves(
    purgatory: Purgatory, look_ups: int
) -> None:
    """The new operation is found, whether the look-up of the empty list or its removal runs it."""
    key, second = HookedKey(), Gate()
    first = watched(purgatory, Gate(), key)
    key.after = look_ups
    key.hook = lambda: watched(purgatory, second, key)

    assert first.cancel()

    assert key.hook is None
    assert list(purgatory.pending()) == list(purgatory.pending(key)) == [second]
    assert (purgatory.watched, purgatory.statistics().keys) == (1, 1)
    second.open = True
    assert purgatory.check_and_complete(key) == 1
    assert (len(purgatory), purgatory.watched, purgatory._lists.by_key) == (0, 0, {})
