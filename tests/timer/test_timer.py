"""The running timer from entering to closing."""

import asyncio
from collections.abc import Callable
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest

from aiowheel import ForeignLoopError, Timer, TimerClosedError

Step = Callable[[float], None]
Until = Callable[[Callable[[], object]], Any]

pytestmark = pytest.mark.both_loops


@pytest.mark.realtime
async def test_a_callback_runs_with_its_arguments() -> None:
    """The callback runs once, after its delay, on the loop."""
    fired = asyncio.get_running_loop().create_future()
    async with Timer() as timer:
        armed = timer.time()
        handle = timer.call_later(0.01, fired.set_result, "argument")

        assert await fired == "argument"

        assert timer.time() >= handle.when() >= armed + 0.01
        assert handle.fired()


@pytest.mark.parametrize("delay", [0, -1, -500_000.0, timedelta(days=-1), float("-inf")])
async def test_no_delay_runs_later_and_never_inside_the_call(delay: Any) -> None:
    """A negative delay counts as 0; neither waits for the end of the tick, here of an hour."""
    fired = asyncio.Event()
    async with Timer(tick=3600) as timer:
        handle = timer.call_later(delay, fired.set)

        assert not fired.is_set()
        assert not handle.fired()
        await fired.wait()


@pytest.mark.parametrize("method", [Timer.call_later, Timer.call_at])
@pytest.mark.parametrize("value", [None, True, "1", b"1", 1j, float("nan"), Decimal("nan"), [1]])
async def test_a_wrong_time_is_refused(method: Callable[..., object], value: object) -> None:
    """The call raises and arms nothing."""
    async with Timer() as timer:
        with pytest.raises((TypeError, ValueError), match=r"delay|when"):
            method(timer, value, int)

        assert len(timer) == 0


async def test_a_callback_that_cannot_be_called_is_refused() -> None:
    """The call raises, not the expiry."""
    not_callable: Any = "not callable"
    async with Timer() as timer:
        with pytest.raises(TypeError, match="callback must be a plain function, got 'not"):
            timer.call_later(1, not_callable)

        assert len(timer) == 0


@pytest.mark.realtime
@pytest.mark.parametrize(
    "delay", [float("inf"), 1e300, 10**400, timedelta.max, Decimal("1e400"), 5 * 365 * 86_400]
)
async def test_a_huge_delay_waits_and_can_be_cancelled(delay: Any) -> None:
    """A short delay beside it fires in time."""
    async with Timer() as timer:
        handle = timer.call_later(delay, int)
        await timer.sleep(0.002)

        assert not handle.fired()
        assert handle.cancel()


@pytest.mark.realtime
async def test_an_earlier_deadline_armed_later_fires_first() -> None:
    """The loop's alarm moves forward for the earlier deadline."""
    fired: list[str] = []
    async with Timer() as timer:
        timer.call_later(0.03, fired.append, "late")
        timer.call_later(0.001, fired.append, "early")
        await timer.sleep(0.04)

    assert fired == ["early", "late"]


@pytest.mark.realtime
async def test_sleep_returns_its_result() -> None:
    """A sleep of 0 seconds returns its result as well, and yields once."""
    async with Timer() as timer:
        assert await timer.sleep(0.001, "slept") == "slept"
        turned: list[str] = []
        asyncio.get_running_loop().call_soon(turned.append, "turned")
        assert await timer.sleep(0, "at once") == "at once"
        assert turned == ["turned"]
        assert await timer.sleep(timedelta(milliseconds=1)) is None  # type: ignore[func-returns-value]  # the claim


async def test_a_cancelled_sleep_leaves_no_deadline() -> None:
    """No deadline stays for the cancelled task."""
    async with Timer() as timer:
        sleeper: asyncio.Task[None] = asyncio.create_task(timer.sleep(60))
        await asyncio.sleep(0)
        assert len(timer) == 1
        sleeper.cancel()
        with pytest.raises(asyncio.CancelledError):
            await sleeper

        assert len(timer) == 0


@pytest.mark.realtime
async def test_a_raising_callback_is_reported_and_the_others_go_on() -> None:
    """The error goes to the loop's exception handler, with the handle."""
    reports: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, report: reports.append(report))
    fired: list[int] = []

    def fail() -> None:
        raise ZeroDivisionError

    async with Timer() as timer:
        timer.call_later(0.001, fired.append, 1)
        failing = timer.call_later(0.001, fail)
        timer.call_later(0.001, fired.append, 2)
        await timer.sleep(0.003)

        assert timer.statistics().callback_errors == 1
    assert fired == [1, 2]
    assert [type(report["exception"]) for report in reports] == [ZeroDivisionError]
    assert reports[0]["handle"] is failing
    assert "fail" in reports[0]["message"]


@pytest.mark.realtime
@pytest.mark.parametrize("error", [asyncio.CancelledError, GeneratorExit, StopIteration])
async def test_no_callback_error_kills_the_driver(
    error: type[BaseException], caplog: pytest.LogCaptureFixture
) -> None:
    """An error such as the result of a cancelled future is reported; the next callback runs."""
    reports: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, report: reports.append(report))

    def fail() -> None:
        raise error

    async with Timer() as timer:
        done = asyncio.Event()
        timer.call_later(0.001, fail)
        timer.call_later(0.001, done.set)
        await done.wait()

        assert timer.statistics().callback_errors == 1
    assert [type(report["exception"]) for report in reports] == [error]
    assert [record for record in caplog.records if record.name == "aiowheel"] == []


async def test_an_error_is_reported_of_a_callback_without_a_name() -> None:
    """The callback's `repr` raises as well."""

    class Nameless:
        def __call__(self) -> None:
            raise ZeroDivisionError

        def __repr__(self) -> str:
            raise ValueError

    reports: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, report: reports.append(report))
    async with Timer() as timer:
        done = asyncio.Event()
        timer.call_later(0, Nameless())
        timer.call_later(0, done.set)
        await done.wait()

    assert [type(report["exception"]) for report in reports] == [ZeroDivisionError]
    assert "Nameless object" in reports[0]["message"]


@pytest.mark.realtime
async def test_closing_drops_and_counts_what_is_pending() -> None:
    """Callbacks never run, sleepers raise, and a second close does nothing."""
    fired: list[str] = []
    timer = Timer()
    async with timer:
        handles = [timer.call_later(delay, fired.append, "never") for delay in (30, 60, 90)]
        sleeper: asyncio.Task[None] = asyncio.create_task(timer.sleep(60))
        await asyncio.sleep(0)
        await timer.aclose()
    await timer.aclose()
    numbers = timer.statistics()

    with pytest.raises(TimerClosedError, match="closed while a task slept"):
        await sleeper
    await asyncio.sleep(0.003)
    assert fired == []
    assert all(handle.cancelled() for handle in handles)
    assert (numbers.pending, numbers.cancelled, numbers.scheduled) == (0, 4, 4)


async def test_a_closed_timer_refuses_everything() -> None:
    """Every way to arm raises."""
    async with Timer() as timer:
        pass

    for call in (
        lambda: timer.call_later(1, int),
        lambda: timer.call_at(1, int),
        lambda: timer.timeout(1),
        lambda: timer.timeout_at(1),
    ):
        with pytest.raises(TimerClosedError, match="closed"):
            call()
    with pytest.raises(TimerClosedError, match="closed"):
        await timer.sleep(1)
    with pytest.raises(TimerClosedError, match="entered once"):
        await timer.__aenter__()


async def test_a_wait_that_starts_after_the_close_is_refused() -> None:
    """Also one that needs no deadline, because its argument is None, 0 or less."""
    timer = await Timer().__aenter__()
    done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    done.set_result(None)
    waits: list[asyncio.Task[object]] = [
        *(asyncio.create_task(timer.sleep(delay)) for delay in (60, 0, -1)),
        *(asyncio.create_task(timer.wait_for(done, delay)) for delay in (60, 0, -1, None)),
    ]
    blocks = [timer.timeout(60), timer.timeout(0), timer.timeout(None)]

    await timer.aclose()

    for wait in waits:
        with pytest.raises(TimerClosedError, match="closed"):
            await asyncio.wait_for(wait, 5)
    for block in blocks:
        with pytest.raises(TimerClosedError, match="closed"):
            await block.__aenter__()


def test_closing_from_a_callback_drops_the_rest_of_the_slice(
    clock_loop: asyncio.SelectorEventLoop, step: Step
) -> None:
    """A task that the callback starts closes the timer; the other due callbacks are dropped."""
    fired: list[str] = []
    tasks: list[asyncio.Task[None]] = []

    async def main() -> None:
        timer = await Timer().__aenter__()

        def start_closing() -> None:
            fired.append("first")
            tasks.append(asyncio.create_task(timer.aclose()))
            step(0.006)  # more than the limit of a slice: the task runs before the second slice

        timer.call_later(0.001, start_closing)
        later = timer.call_later(0.001, fired.append, "never")
        while not tasks:  # noqa: ASYNC110 - the callback sets no event
            await asyncio.sleep(0.001)
        await tasks[0]

        assert later.cancelled()

    clock_loop.run_until_complete(main())

    assert fired == ["first"]


async def test_a_timer_refuses_calls_before_it_is_entered() -> None:
    """The timer has no loop yet."""
    timer = Timer()

    assert len(timer) == 0
    assert repr(timer) == "<Timer tick=0.001 new>"
    with pytest.raises(TimerClosedError, match="inside `async with`"):
        timer.call_later(1, int)
    with pytest.raises(TimerClosedError, match="not open"):
        timer.time()


async def test_another_loop_is_refused() -> None:
    """The error names the alternative."""

    def use(timer: Timer) -> None:
        async def main() -> None:
            timer.call_later(1, int)

        asyncio.run(main())

    async with Timer() as timer:
        with pytest.raises(ForeignLoopError, match="threadsafe"):
            await asyncio.to_thread(use, timer)
        with pytest.raises(ForeignLoopError, match="threadsafe"):
            await asyncio.to_thread(lambda: timer.call_later(1, int))

        assert len(timer) == 0


@pytest.mark.parametrize("tick", [0, -1, 1e-7, 0.999e-6, 3600.000_000_001, 3601, float("inf")])
async def test_a_tick_out_of_range_is_refused(tick: float) -> None:
    """The error names the legal range."""
    with pytest.raises(ValueError, match="tick must be from 1 microsecond to 1 hour"):
        Timer(tick=tick)


@pytest.mark.parametrize(("tick", "shown"), [(1e-6, "1e-06"), (3600, "3600.0")])
async def test_a_tick_from_a_microsecond_to_an_hour_is_accepted(tick: float, shown: str) -> None:
    """Both limits are legal."""
    async with Timer(tick=tick) as timer:
        assert repr(timer) == f"<Timer tick={shown} pending=0>"
    assert repr(timer) == f"<Timer tick={shown} closed>"


@pytest.mark.parametrize("wheel_size", [-1, 0, 1, 2**25])
async def test_a_wheel_that_cannot_turn_is_refused(wheel_size: int) -> None:
    """The constructor raises, not the entry."""
    with pytest.raises(ValueError, match="wheel_size must be from 2 to 16777216"):
        Timer(wheel_size=wheel_size)


async def test_time_is_on_the_loops_scale() -> None:
    """`when` and `loop.time()` can be compared."""
    loop = asyncio.get_running_loop()
    async with Timer() as timer:
        assert timer.time() == pytest.approx(loop.time(), abs=1.0)


@pytest.mark.realtime
async def test_statistics_equal_a_recount() -> None:
    """The scheduled timers are the pending, fired and cancelled ones together."""
    fired: list[int] = []
    async with Timer() as timer:
        handles = [
            timer.call_later(number % 7 / 1000, fired.append, number) for number in range(200)
        ]
        far = [timer.call_later(60, int) for _ in range(50)]
        cancelled = sum(handle.cancel() for handle in handles[::3])
        touched = sum(handle.touch() for handle in far)
        await timer.sleep(0.02)
        numbers = timer.statistics()

        assert numbers.fired == len(fired) + 1  # one more for the sleep
        assert numbers.cancelled == cancelled
        assert numbers.rescheduled == touched == 50
        assert numbers.pending == len(timer) == 50
        assert numbers.scheduled == numbers.fired + numbers.cancelled + numbers.pending == 251
        assert numbers.lateness.count == numbers.fired
        assert 0 < numbers.wakeups <= 20
        assert numbers.callback_errors == 0
        assert repr(timer) == "<Timer tick=0.001 pending=50>"
