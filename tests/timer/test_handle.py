"""The handle that `call_later` returns: it can be moved, cancelled and kept indefinitely."""

import asyncio
import copy
import pickle
from collections.abc import Callable
from datetime import timedelta
from types import MethodType
from typing import Any

import pytest

from aiowheel import ManualTimer, Timer, TimerHandle

PAST_USE: dict[str, Callable[[TimerHandle], object]] = {
    "cancel": TimerHandle.cancel,
    "touch": TimerHandle.touch,
    "touch to": lambda handle: handle.touch(5),
    "reschedule": lambda handle: handle.reschedule(100),
}


def test_a_handle_has_the_methods_of_asyncios_handle() -> None:
    """The handle has each public method of `asyncio.TimerHandle`, with the same signature."""
    theirs = {name for name in dir(asyncio.TimerHandle) if not name.startswith("_")}
    timer = ManualTimer()
    ours = timer.call_later(1, int)

    assert theirs <= set(dir(ours))
    assert ours.when() == 1.0
    assert ours.cancelled() is False
    assert ours == ours  # noqa: PLR0124 - the test is about identity
    assert ours != timer.call_later(1, int)
    assert len({ours, ours}) == 1


@pytest.mark.both_loops
async def test_a_handle_reports_its_state_as_asyncios_handle_does() -> None:
    """Pending, fired, cancelled: `when` and `cancelled` return what asyncio's handle returns."""
    loop = asyncio.get_running_loop()
    fired: list[str] = []
    async with Timer() as timer:
        ours = [timer.call_later(0, fired.append, "ours"), timer.call_later(60, int)]
        theirs = [loop.call_later(0, fired.append, "theirs"), loop.call_later(60, int)]
        while len(fired) < 2:  # noqa: ASYNC110 - on both loops, in any order
            await asyncio.sleep(0)
        ours[1].cancel()
        theirs[1].cancel()

        assert [handle.cancelled() for handle in ours] == [each.cancelled() for each in theirs]
        assert ours[1].when() == pytest.approx(theirs[1].when(), abs=5)


def test_states() -> None:
    """A handle is pending, then either fired or cancelled."""
    timer = ManualTimer()
    fires, withdrawn = timer.call_later(1, int), timer.call_later(1, int)
    assert not fires.fired()
    assert not fires.cancelled()

    withdrawn.cancel()
    timer.advance(1)

    assert (fires.fired(), fires.cancelled()) == (True, False)
    assert (withdrawn.fired(), withdrawn.cancelled()) == (False, True)


def test_a_handle_has_fired_while_its_callback_runs() -> None:
    """The callback sees its own handle as fired and can no longer cancel it."""
    timer = ManualTimer()
    seen: list[bool] = []
    handles: list[TimerHandle] = []

    def record_state() -> None:
        seen.extend([handles[0].fired(), handles[0].cancel()])

    handles.append(timer.call_later(1, record_state))

    timer.advance(1)

    assert seen == [True, False]
    assert not handles[0].cancelled()


def test_cancel_is_true_once() -> None:
    """Only the call that cancels returns True."""
    timer = ManualTimer()
    handle = timer.call_later(1, int)

    assert [handle.cancel(), handle.cancel()] == [True, False]
    assert timer.advance(10) == 0


@pytest.mark.parametrize("end", ["fire", "cancel", "close"])
@pytest.mark.parametrize("use", PAST_USE.values(), ids=PAST_USE)
async def test_a_finished_handle_is_safe_to_use(
    end: str, use: Callable[[TimerHandle], object]
) -> None:
    """Every method of a finished handle returns False and links nothing into the wheel."""
    timer = ManualTimer()
    handle = timer.call_later(1, int)
    match end:
        case "fire":
            timer.advance(1)
        case "cancel":
            handle.cancel()
        case _:
            await timer.aclose()
    counts = timer.statistics()

    assert use(handle) is False

    assert handle.when() == 1.0
    assert handle.fired() == (end == "fire")
    assert handle.cancelled() == (end != "fire")
    assert handle.get_context() is None
    assert end in repr(handle).replace("fired", "fire") or "cancelled" in repr(handle)
    after = timer.statistics()
    assert (after.pending, after.rescheduled) == (0, counts.rescheduled)


def test_a_handle_of_a_timer_that_is_being_closed_does_not_move() -> None:
    """Another thread may close a dropped timer; its driver goes before its entries do."""
    timer = ManualTimer()
    handle = timer.call_later(1, int)
    timer._manual.counts.driver = None

    assert not handle.touch()
    assert not handle.reschedule(100)

    assert handle.when() == 1.0
    assert handle.cancel()


def test_touch_moves_the_deadline_by_the_original_delay() -> None:
    """Each `touch` moves the deadline to the original delay from now."""
    timer = ManualTimer()
    handle = timer.call_later(30, int)
    for _ in range(100):
        timer.advance(20)
        assert handle.touch()
        assert handle.when() == timer.time() + 30

    assert timer.advance(29.999) == 0
    assert timer.advance(0.001) == 1
    assert timer.statistics().rescheduled == 100


@pytest.mark.parametrize(
    ("delay", "fires_at"), [(100, 110), (1, 11), (timedelta(seconds=2), 12), (0, 10)]
)
def test_touch_takes_another_delay(delay: Any, fires_at: float) -> None:
    """A delay given to `touch` may be longer or shorter, and applies once."""
    timer = ManualTimer()
    seen: list[float] = []
    handle = timer.call_later(30, lambda: seen.append(timer.time()))
    timer.advance(10)

    handle.touch(delay)
    timer.advance(200)

    assert seen == [fires_at]


def test_a_delay_given_to_touch_does_not_stick() -> None:
    """The next `touch` without a delay uses the original delay again."""
    timer = ManualTimer()
    handle = timer.call_later(30, int)

    handle.touch(5)
    handle.touch()

    assert handle.when() == 30.0


def test_the_delay_of_call_at_is_the_remaining_time() -> None:
    """`touch` moves such a handle by the delay that was left when it was created."""
    timer = ManualTimer()
    timer.advance(100)
    handle = timer.call_at(130, int)
    timer.advance(10)

    handle.touch()

    assert handle.when() == 140.0


@pytest.mark.overdue
def test_a_handle_armed_in_the_past_has_a_delay_of_0() -> None:
    """`call_later` counts a negative delay as 0, and `touch` moves the deadline to now."""
    timer = ManualTimer()
    timer.advance(100)
    later, at = timer.call_later(-5, int), timer.call_at(60, int)
    assert (later.when(), at.when()) == (100.0, 60.0)

    later.touch()
    at.touch()

    assert (later.when(), at.when()) == (100.0, 100.0)


@pytest.mark.parametrize("when", [2.0, 17.5, 60.0, 3600.0])
def test_reschedule_moves_to_a_time(when: float) -> None:
    """The new time may be earlier or later."""
    timer = ManualTimer()
    seen: list[float] = []
    handle = timer.call_later(30, lambda: seen.append(timer.time()))

    assert handle.reschedule(when)
    assert handle.when() == when
    timer.advance(4000)

    assert seen == [when]


@pytest.mark.overdue
def test_reschedule_to_the_past_is_due_now_and_not_inside_the_call() -> None:
    """The callback runs when the timer processes time the next time."""
    timer = ManualTimer()
    timer.advance(10)
    fired: list[str] = []
    handle = timer.call_later(30, fired.append, "fired")

    handle.reschedule(1)
    assert fired == []
    timer.advance(0)

    assert fired == ["fired"]


def test_an_infinite_delay_can_be_shortened() -> None:
    """A handle with an infinite delay can be moved like any other."""
    timer = ManualTimer()
    handle = timer.call_later(float("inf"), int)
    assert handle.when() == float("inf")
    assert timer.advance(365 * 86_400) == 0

    handle.touch(5)

    assert timer.advance(5) == 1


@pytest.mark.parametrize("value", [float("nan"), "5", True])
def test_a_bad_delay_leaves_the_handle_as_it_was(value: Any) -> None:
    """`touch` raises as `call_later` does; None means the original delay."""
    timer = ManualTimer()
    handle = timer.call_later(30, int)

    with pytest.raises((TypeError, ValueError)):
        handle.touch(value)
    with pytest.raises((TypeError, ValueError)):
        handle.reschedule(value)

    assert handle.when() == 30.0
    assert timer.statistics().rescheduled == 0


def test_touching_costs_no_wake_up_and_one_refiling_a_bucket() -> None:
    """After a thousand touches within one bucket of an overflow level, the entry moves once."""
    timer = ManualTimer()
    handle = timer.call_later(30, int)
    for _ in range(1000):
        timer.advance(0.01)
        handle.touch()

    assert timer.statistics().cascaded <= 2
    assert handle.cancel()


def test_a_stale_handle_never_touches_another() -> None:
    """The memory of an entry is used again, its identity is not."""
    timer = ManualTimer()
    stale = timer.call_later(1, int)
    stale.cancel()
    fresh = [timer.call_later(1, int) for _ in range(100)]

    assert not stale.cancel()
    assert not stale.touch(50)

    assert all(handle.when() == 1.0 for handle in fresh)
    assert timer.advance(1) == 100


def test_repr_shows_the_callback() -> None:
    """The text helps with debugging."""
    timer = ManualTimer()
    handle = timer.call_later(1.5, test_states)

    assert repr(handle) == "<TimerHandle when=1.5 callback=test_states>"


def test_a_method_of_a_tuple_is_called_with_the_tuple() -> None:
    """The tuple is the bound object; its items must not become arguments."""
    timer = ManualTimer()
    got: list[object] = []

    timer.call_later(1, MethodType(got.append, (1, 2)))
    timer.call_later(1, MethodType(got.append, ()))
    timer.advance(1)

    assert got == [(1, 2), ()]


@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy, pickle.dumps])
def test_a_handle_cannot_be_copied(duplicate: Callable[[object], object]) -> None:
    """A copy would share the links of the original in the wheel; the handle still fires."""
    timer = ManualTimer()
    got: list[int] = []
    handle = timer.call_later(1, got.append, 1)

    with pytest.raises(TypeError, match="TimerHandle cannot be copied or pickled"):
        duplicate(handle)
    timer.advance(1)

    assert got == [1]
