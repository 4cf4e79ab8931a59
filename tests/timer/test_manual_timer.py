"""The manual timer: the same rule for due callbacks, on a clock that the test advances."""

import asyncio
from datetime import timedelta
from typing import Any, cast

import pytest

from aiowheel import ManualTimer, TimerClosedError


def test_a_manual_timer_works_without_a_loop() -> None:
    """Time begins at 0 and passes in `advance`."""
    timer = ManualTimer()
    fired: list[str] = []
    handle = timer.call_later(1.5, fired.append, "fired")

    assert (timer.time(), handle.when(), len(timer)) == (0.0, 1.5, 1)
    assert timer.advance(1.499) == 0
    assert timer.advance(timedelta(milliseconds=1)) == 1

    assert fired == ["fired"]
    assert timer.time() == 1.5


def test_deadlines_fire_at_their_own_tick_on_the_way() -> None:
    """A callback sees the time of its own tick, not of the end of the jump."""
    timer = ManualTimer(tick=0.01)
    seen: list[float] = []
    for delay in (0.031, 0.005, 10.0):
        timer.call_later(delay, lambda: seen.append(timer.time()))

    assert timer.advance(3600) == 3

    assert seen == [0.01, 0.04, 10.0]
    assert timer.time() == 3600.0


def test_each_advance_returns_the_number_that_it_fired() -> None:
    """Deadlines that fired before do not count."""
    timer = ManualTimer()
    for delay in (1, 1, 1, 2, 2, 3):
        timer.call_later(delay, int)

    assert [timer.advance(1) for _ in range(4)] == [3, 2, 1, 0]


def test_timers_armed_by_callbacks_on_the_way_fire_as_well() -> None:
    """One `advance` runs a chain of ten steps."""
    timer = ManualTimer()
    seen: list[float] = []

    def again() -> None:
        seen.append(timer.time())
        timer.call_later(1.0, again)

    timer.call_later(1.0, again)

    assert timer.advance(10.0) == 10
    assert seen == [float(second) for second in range(1, 11)]


@pytest.mark.parametrize("seconds", [-1, -0.001, float("inf"), 3e9, 1e300])
def test_time_goes_forward_by_finite_steps(seconds: float) -> None:
    """A refused step changes nothing, and the error names the longest one."""
    timer = ManualTimer()

    with pytest.raises(ValueError, match="seconds must be from 0 to 73 years, got"):
        timer.advance(seconds)

    assert timer.time() == 0.0


@pytest.mark.parametrize("seconds", [None, True, "1"])
def test_a_step_is_a_number(seconds: Any) -> None:
    """`advance` accepts the same numbers as a delay."""
    with pytest.raises(TypeError, match="seconds must be a number"):
        ManualTimer().advance(seconds)


def test_the_end_of_time_is_refused() -> None:
    """The clock ends after 73 years; a longer step raises and leaves the clock unchanged."""
    timer = ManualTimer()
    timer.advance(2e9)

    with pytest.raises(ValueError, match="73 years"):
        timer.advance(2e9)

    assert timer.time() == 2e9
    assert timer.advance(1) == 0


def test_the_last_nanosecond_before_the_end_of_time() -> None:
    """A nanosecond later, the time would be that of a deadline that never comes."""
    timer = ManualTimer()
    timer.advance(2_305_843_008)

    with pytest.raises(ValueError, match=r"seconds must end within 73 years of 0, got 1\.21"):
        timer.advance(1.213_693_951)
    timer.advance(1.213_693_950)

    assert timer.time() == pytest.approx(2_305_843_009.213_693_950)


def test_an_advance_inside_a_callback_never_turns_time_back() -> None:
    """The clock stays at the furthest time that an `advance` reached."""
    timer = ManualTimer()
    timer.call_later(5, timer.advance, 100)

    timer.advance(10)

    assert timer.time() == 105.0


def test_an_interrupted_advance_inside_a_callback_delays_nothing() -> None:
    """The outer `advance` fires the callbacks that were due together with the interrupting one."""
    timer = ManualTimer()
    fired: list[float] = []

    def interrupt() -> None:
        raise KeyboardInterrupt

    def advance() -> None:
        with pytest.raises(KeyboardInterrupt):
            timer.advance(1)

    timer.call_later(1, advance)
    timer.call_later(1.5, interrupt)
    for _ in range(3):
        timer.call_later(1.5, lambda: fired.append(timer.time()))

    assert timer.advance(1.5) == 5
    assert fired == [1.5] * 3


def test_a_cancellation_raised_by_a_callback_is_raised_at_the_end() -> None:
    """A cancellation is raised like any other failure, in a BaseExceptionGroup."""
    timer = ManualTimer()
    fired: list[str] = []

    def fail() -> None:
        raise asyncio.CancelledError

    timer.call_later(1, fail)
    timer.call_later(2, fired.append, "ran")

    with pytest.raises(BaseExceptionGroup, match="timer callbacks failed") as failure:
        timer.advance(3)

    assert [type(error) for error in failure.value.exceptions] == [asyncio.CancelledError]
    assert fired == ["ran"]


def test_failing_callbacks_are_raised_together_at_the_end() -> None:
    """The other callbacks have run, and the time has passed."""
    timer = ManualTimer()
    fired: list[str] = []
    timer.call_later(1, lambda: 1 // 0)
    timer.call_later(2, fired.append, "ran")
    timer.call_later(3, lambda: int("no number"))

    with pytest.raises(ExceptionGroup, match="timer callbacks failed") as failure:
        timer.advance(5)

    assert [type(error) for error in failure.value.exceptions] == [ZeroDivisionError, ValueError]
    assert fired == ["ran"]
    assert timer.time() == 5.0
    assert timer.statistics().callback_errors == 2
    assert timer.advance(5) == 0


async def test_tasks_can_sleep_on_it() -> None:
    """The tasks wake after `advance`, when the loop runs."""
    timer = ManualTimer()
    sleeper = asyncio.create_task(timer.sleep(60, "slept"))
    await asyncio.sleep(0)

    assert timer.advance(59) == 0
    assert timer.advance(1) == 1

    assert await sleeper == "slept"


async def test_a_task_cancelled_in_the_tick_of_its_end_stays_cancelled() -> None:
    """The callback before it in the same tick cancels the task; nothing fails."""
    timer = ManualTimer()
    tasks: list[asyncio.Task[None]] = []

    def cancel() -> None:
        tasks[0].cancel()

    timer.call_later(1, cancel)
    tasks.append(asyncio.create_task(timer.sleep(1)))
    await asyncio.sleep(0)

    assert timer.advance(1) == 2

    with pytest.raises(asyncio.CancelledError):
        await tasks[0]


async def test_a_task_cancelled_before_the_timer_is_closed_stays_cancelled() -> None:
    """It gets its cancellation, not the error of the closed timer."""
    timer = ManualTimer()
    task = asyncio.create_task(timer.sleep(1))
    await asyncio.sleep(0)

    task.cancel()
    await timer.aclose()

    with pytest.raises(asyncio.CancelledError):
        await task


async def test_the_shortest_wait_arms_a_deadline_and_none_does_not() -> None:
    """A sleep, a wait and a first tick of 0 seconds yield to the loop; 1 ns needs the wheel."""
    timer = ManualTimer()
    await timer.sleep(0)
    await timer.sleep(-1e-9)
    for timeout in (0, -1e-9):
        with pytest.raises(TimeoutError):
            await timer.wait_for(asyncio.Event().wait(), timeout)
    assert await anext(timer.interval(1, first=0)) == 0.0
    assert timer.statistics().scheduled == 0

    waits: list[asyncio.Future[Any]] = [
        asyncio.ensure_future(timer.sleep(1e-9)),
        asyncio.ensure_future(timer.wait_for(asyncio.Event().wait(), 1e-9)),
        asyncio.ensure_future(anext(timer.interval(1, first=1e-9))),
    ]
    for _ in range(3):
        await asyncio.sleep(0)
    assert [wait.done() for wait in waits] == [False] * 3
    assert len(timer) == 3

    timer.advance(0.001)
    results = await asyncio.gather(*waits, return_exceptions=True)
    assert [type(result) for result in results] == [type(None), TimeoutError, float]


async def test_a_closed_manual_timer_refuses() -> None:
    """A closed manual timer raises as a closed `Timer` does."""
    async with ManualTimer() as timer:
        timer.call_later(1, int)

    with pytest.raises(TimerClosedError, match="closed"):
        timer.call_later(1, int)
    assert isinstance(timer, ManualTimer)
    with pytest.raises(TimerClosedError, match="closed"):
        timer.advance(1)


@pytest.mark.parametrize("fails", [False, True])
def test_a_chain_at_one_instant_without_an_end_is_refused(*, fails: bool) -> None:
    """The error has those of the callbacks as its cause; the timer can be used afterwards."""
    timer = ManualTimer()
    ends: list[str] = []

    def again() -> None:
        if not ends:
            timer.call_later(0, again)
            if fails and len(timer._manual.errors) < 3:
                raise ZeroDivisionError

    timer.call_later(1, again)
    timer.call_later(2, ends.append, "later")
    with pytest.raises(RuntimeError, match=r"at 1\.0 100000 times in a row, .*again") as refused:
        timer.advance(5)

    cause = refused.value.__cause__
    assert (cause is not None) == fails
    assert cause is None or len(cast(BaseExceptionGroup, cause).exceptions) == 3
    assert timer.time() == 1.0
    assert len(timer) == 2
    ends.append("end")
    assert timer.advance(1) == 2
    assert ends == ["end", "later"]


def test_a_long_chain_at_one_instant_fires_in_one_advance() -> None:
    """Many deadlines at one instant are no chain, and each instant begins a new one."""
    timer = ManualTimer()
    fired: list[int] = []

    def again(left: int) -> None:
        fired.append(left)
        if left:
            timer.call_later(0, again, left - 1)

    for instant in (1, 2):
        timer.call_later(instant, again, 6000)
    for _ in range(20_000):
        timer.call_later(2, int)

    assert timer.advance(2) == 2 * 6001 + 20_000
    assert fired == 2 * list(range(6000, -1, -1))
