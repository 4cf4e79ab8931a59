"""Wrong arguments of the wheel, and the texts of the errors."""

import copy
import pickle
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest

from aiowheel.wheel import TimingWheel

NO_INTEGERS: list[Any] = [1.0, "1", None, Decimal(1), float("nan"), float("inf")]
CALLS: dict[str, Callable[[TimingWheel, Any], object]] = {
    "schedule": TimingWheel.schedule,
    "advance": TimingWheel.advance,
    "reschedule": lambda wheel, value: wheel.reschedule(wheel.schedule(5), value),
    "tick": lambda _, value: TimingWheel(tick=value),
    "wheel_size": lambda _, value: TimingWheel(wheel_size=value),
    "start": lambda _, value: TimingWheel(start=value),
}


@pytest.mark.parametrize("value", NO_INTEGERS, ids=repr)
@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_a_value_that_is_not_an_integer_is_refused(
    call: Callable[[TimingWheel, Any], object], value: Any
) -> None:
    """A float is never truncated to an integer."""
    wheel = TimingWheel()

    with pytest.raises(TypeError):
        call(wheel, value)

    wheel.check_invariants()


def test_a_bool_is_refused() -> None:
    """A bool given as a time is a mistake, in both builds."""
    wheel = TimingWheel()

    with pytest.raises(TypeError, match=r"deadline must be an int within .*, got True"):
        wheel.schedule(True)
    with pytest.raises(TypeError, match=r"now must be an int from the wheel's time 0, got True"):
        wheel.advance(True)

    assert (len(wheel), wheel.now) == (0, 0)


@pytest.mark.parametrize("far", [2**61, -(2**61), 2**64, -(2**100)])
def test_integers_beyond_the_range_are_refused_and_never_wrapped(far: int) -> None:
    """The text has the legal range and the value."""
    wheel = TimingWheel()
    entry = wheel.schedule(5)

    with pytest.raises(OverflowError, match=rf"2\*\*61 - 1 of zero, got {far}"):
        wheel.schedule(far)
    with pytest.raises(OverflowError, match=r"deadline must be"):
        wheel.reschedule(entry, far)

    assert (len(wheel), entry.deadline) == (1, 5)
    wheel.check_invariants()


def test_a_time_beyond_the_range_is_refused() -> None:
    """The wheel's time stays unchanged."""
    wheel = TimingWheel()

    with pytest.raises(OverflowError, match=r"now must be at most 2\*\*61 - 1"):
        wheel.advance(2**61)

    assert wheel.now == 0


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"tick": 0}, "tick must be from 1 to"),
        ({"tick": -1}, "tick must be from 1 to"),
        ({"wheel_size": 1}, "wheel_size must be from 2 to"),
        ({"wheel_size": 2**25}, "wheel_size must be from 2 to"),
        ({"start": 2**61}, "start must be from"),
        ({"tick": 2**70}, "tick must be from 1 to"),
    ],
)
def test_a_wheel_that_cannot_turn_is_refused(arguments: dict[str, Any], text: str) -> None:
    """The constructor raises with a clear text."""
    with pytest.raises(ValueError, match=text):
        TimingWheel(**arguments)


def test_repr_of_an_entry() -> None:
    """The text shows deadline, state and payload, for debugging."""
    wheel = TimingWheel()
    entry = wheel.schedule(5, "payload")

    assert repr(entry) == "<TimerEntry deadline=5 pending payload='payload'>"
    entry.cancel()
    assert repr(entry) == "<TimerEntry deadline=5 finished payload=None>"


@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy, pickle.dumps])
def test_a_wheel_cannot_be_copied(duplicate: Callable[[object], object]) -> None:
    """The end of a copy would unlink the entries of both."""
    wheel = TimingWheel()
    entry = wheel.schedule(5)

    for each in (wheel, entry):
        with pytest.raises(TypeError, match="cannot be copied or pickled"):
            duplicate(each)

    assert wheel.advance(5) == [entry]
