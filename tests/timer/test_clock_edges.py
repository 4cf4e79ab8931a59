"""Clocks of any age, ticks of any width, clocks that jump, stop or step back."""

import asyncio
import time
from collections.abc import Callable

import pytest

import aiowheel
from aiowheel import ManualTimer, Timer
from aiowheel.loop import new_event_loop
from aiowheel.timer._driver import Driver

Step = Callable[[float], None]

DAY_S = 86_400.0
TICKS = [0.0001, 0.001, 0.01, 0.1, 1.0]
WHEEL_SIZES = [2, 20, 64, 256, 1000]


def driver_of(timer: Timer) -> Driver:
    """Return the driver of *timer*."""
    assert timer._driver is not None
    return timer._driver


@pytest.mark.parametrize("uptime", [0.0, 200 * DAY_S, 20 * 365 * DAY_S], ids=["0", "200 d", "20 y"])
@pytest.mark.parametrize("tick", TICKS)
def test_a_float_deadline_is_kept_at_any_uptime(
    clock_loop: asyncio.SelectorEventLoop, step: Step, uptime: float, tick: float
) -> None:
    """A callback never runs before its `when`, and runs less than a tick late."""
    step(uptime)
    late: list[float] = []

    def note(when: float) -> None:
        late.append(clock_loop.time() - when)

    async def main() -> None:
        async with Timer(tick=tick) as timer:
            for number in range(1, 200):
                when = timer.time() + number * tick / 7
                timer.call_at(when, note, when)
            await timer.sleep(200 * tick / 7 + tick)

    clock_loop.run_until_complete(main())

    assert len(late) == 199
    assert min(late) >= 0.0
    assert max(late) < tick + 1e-6  # a float of 20 years is coarse


@pytest.mark.parametrize("tick", TICKS)
@pytest.mark.parametrize("wheel_size", WHEEL_SIZES)
def test_every_level_edge_fires_at_its_tick(tick: float, wheel_size: int) -> None:
    """One tick before, at and after each edge, on a manual clock; a fixture checks lateness."""
    timer = ManualTimer(tick=tick, wheel_size=wheel_size)
    ticks = sorted(
        {
            wheel_size**level * times + beside
            for level in range(3)
            for times in (1, 2, wheel_size - 1)
            for beside in (-1, 0, 1)
        }
    )
    fired: list[int] = []
    for each in ticks:
        timer.call_later(each * tick, fired.append, each)

    timer.advance((ticks[-1] + 1) * tick)

    assert fired == ticks


@pytest.mark.parametrize("delay", [0.001, 0.255, 0.256, 0.257, 65.535, 65.536, 65.537])
@pytest.mark.parametrize("uptime_ticks", [2**30, 2**31, 2**36])
def test_a_short_delay_on_an_old_wheel(uptime_ticks: int, delay: float) -> None:
    """A delay keeps its length after 12 and 24 days and two years at 1 ms a tick."""
    timer = ManualTimer(tick=0.001)
    timer.advance(uptime_ticks / 1000)
    fired: list[str] = []
    timer.call_later(delay, fired.append, "fired")

    timer.advance(delay - 0.0005)
    assert fired == []
    timer.advance(0.0005)

    assert fired == ["fired"]


def test_sub_tick_steps_add_up() -> None:
    """Four steps of 250 microseconds are a millisecond; the fourth fires."""
    timer = ManualTimer(tick=0.001)
    timer.call_later(0.001, int)

    assert [timer.advance(0.00025) for _ in range(4)] == [0, 0, 0, 1]


def test_a_nanosecond_short_is_short() -> None:
    """The clock's own resolution decides: the timer fires at exactly the deadline."""
    timer = ManualTimer(tick=0.001)
    timer.call_later(0.001, int)

    assert timer.advance(0.000_999_999) == 0
    assert timer.advance(0.000_000_001) == 1


def test_a_loop_stalled_for_five_seconds_fires_everything_at_once(
    clock_loop: asyncio.SelectorEventLoop, step: Step
) -> None:
    """Callbacks run in the order of their ticks; none is lost; later delays keep their length."""
    fired: list[object] = []

    async def main() -> None:
        async with Timer() as timer:
            for delay in (3.0, 1.0, 2.0):
                timer.call_later(delay, fired.append, delay)
            step(5.0)
            after = timer.call_later(0.5, fired.append, "after")
            armed = timer.time()
            await timer.sleep(1.0)
            assert fired == [1.0, 2.0, 3.0, "after"]
            assert after.when() == pytest.approx(armed + 0.5)

    clock_loop.run_until_complete(main())


@pytest.mark.parametrize("jump", [3600.0, DAY_S, 400 * DAY_S])
def test_a_clock_that_jumped_ahead_fires_what_was_due(
    clock_loop: asyncio.SelectorEventLoop, step: Step, jump: float
) -> None:
    """After a suspend each passed deadline fires once, with a few wake-ups in all."""
    fired: list[float] = []

    async def main() -> None:
        async with Timer() as timer:
            for number in range(100):
                timer.call_later(jump * number / 100 + 0.001, fired.append, number)
            left = timer.call_later(2 * jump, fired.append, -1)
            step(jump)
            await timer.sleep(0.002)
            assert fired == list(range(100))
            assert timer.statistics().wakeups < 10
            assert left.cancel()

    clock_loop.run_until_complete(main())


def test_a_clock_set_back_is_waited_out(clock_loop: asyncio.SelectorEventLoop, step: Step) -> None:
    """Nothing fires before its deadline on the changed clock, and nothing is lost."""
    fired: list[tuple[str, float]] = []

    async def main() -> None:
        async with Timer() as timer:

            def note(name: str) -> None:
                fired.append((name, clock_loop.time()))

            timer.call_later(1.0, note, "before")
            step(100.0)
            await timer.sleep(0.001)
            assert [name for name, _ in fired] == ["before"]
            timer.call_later(1.0, note, "armed ahead")
            step(-50.0)
            timer.call_later(1.0, note, "armed behind")
            await asyncio.sleep(60.0)

    clock_loop.run_until_complete(main())

    assert [name for name, _ in fired] == ["before", "armed behind", "armed ahead"]


def test_a_slice_that_runs_while_the_clock_is_behind_fires_nothing(
    clock_loop: asyncio.SelectorEventLoop, step: Step
) -> None:
    """A driver that wakes for another reason waits until the clock has caught up."""
    fired: list[str] = []

    async def main() -> None:
        async with Timer() as timer:
            step(100.0)
            timer.call_later(1.0, fired.append, "ahead").cancel()
            step(-50.0)
            handle = timer.call_later(10.0, fired.append, "behind")
            driver_of(timer).run_slice()
            assert fired == []
            assert not handle.fired()
            await asyncio.sleep(60.0)
            assert fired == ["behind"]

    clock_loop.run_until_complete(main())


def test_a_clock_that_stands_still_is_no_busy_loop() -> None:
    """Deadlines wait; they become due only when time passes."""
    timer = ManualTimer()
    fired: list[str] = []
    timer.call_later(0.0, fired.append, "now")
    timer.call_later(0.001, fired.append, "later")

    for _ in range(10):
        timer.advance(0)

    assert fired == ["now"]
    assert timer.statistics().wakeups < 50


@pytest.mark.parametrize("idle", [600.0, DAY_S, 200 * DAY_S])
def test_a_short_timer_after_a_long_idle_time_cascades_at_most_once(
    clock_loop: asyncio.SelectorEventLoop, step: Step, idle: float
) -> None:
    """After ten idle minutes a delay of 5 ms costs at most one cascade and two wake-ups."""

    async def main() -> None:
        async with Timer() as timer:
            for _ in range(20):
                step(idle + 0.0137)
                before = timer.statistics()
                fired = clock_loop.create_future()
                timer.call_later(0.005, fired.set_result, None)
                await fired
                after = timer.statistics()
                assert after.wakeups - before.wakeups <= 2
                assert after.cascaded - before.cascaded <= 1

    clock_loop.run_until_complete(main())


def test_a_timer_an_hour_away_does_not_wake_the_loop_early(
    clock_loop: asyncio.SelectorEventLoop,
) -> None:
    """In 59 minutes only cascades wake the loop, and in the first 50 seconds nothing does."""

    async def main() -> None:
        async with Timer() as timer:
            handle = timer.call_later(3600.0, int)
            await asyncio.sleep(50.0)
            assert timer.statistics().wakeups == 0
            await asyncio.sleep(3540.0)
            assert timer.statistics().wakeups <= 2
            await asyncio.sleep(10.1)
            assert handle.fired()
            assert timer.statistics().wakeups <= 4

    clock_loop.run_until_complete(main())


@pytest.mark.virtual_time
async def test_a_cancelled_deadline_wakes_the_driver_only_if_its_alarm_was_set_for_it() -> None:
    """Cancelling does not move the alarm: that would cost more than the wake-up."""
    async with Timer() as timer:
        handles = [timer.call_later(delay, int) for delay in (1.0, 2.0, 3.0)]
        for handle in handles:
            handle.cancel()
        await asyncio.sleep(10)
        assert timer.statistics().wakeups == 1


@pytest.mark.virtual_time
@pytest.mark.parametrize("way", ["timeout", "timeout_at", "reschedule"])
async def test_a_block_whose_deadline_is_now_expires_before_later_callbacks(way: str) -> None:
    """The deadline equals the clock's time to the nanosecond."""
    loop = asyncio.get_running_loop()
    expired: list[bool] = []
    async with Timer() as timer:
        blocks = {"timeout": timer.timeout(0), "timeout_at": timer.timeout_at(timer.time())}
        block = blocks.get(way, timer.timeout(30))
        with pytest.raises(TimeoutError):
            async with block:
                if way == "reschedule":
                    block.reschedule(timer.time())
                loop.call_soon(lambda: expired.append(block.expired()))
                await asyncio.Event().wait()

    assert expired == [True]


@pytest.mark.realtime
@pytest.mark.both_loops
async def test_a_timer_an_hour_away_does_not_wake_a_real_loop() -> None:
    """A timer with nothing pending does not wake the loop either."""
    async with Timer() as timer:
        timer.call_later(3600.0, int)
        timer.call_later(float("inf"), int)
        await asyncio.sleep(0.3)

        assert timer.statistics().wakeups == 0


@pytest.mark.realtime
@pytest.mark.both_loops
@pytest.mark.parametrize("tick", [0.0001, 0.001, 0.01])
async def test_no_real_timer_fires_early(tick: float) -> None:
    """On the real clock: a loop may wake the driver early, so the driver reads the clock again."""
    done = asyncio.Event()
    early: list[float] = []
    left = 300

    async with Timer(tick=tick) as timer:

        def note(when: float) -> None:
            nonlocal left
            left -= 1
            if timer.time() < when:
                early.append(when - timer.time())
            if not left:
                done.set()

        for number in range(300):
            when = timer.time() + 0.1 * number / 300 + 0.000_123
            timer.call_at(when, note, when)
        await done.wait()

    assert early == []


def test_deadlines_fire_tick_by_tick_after_the_loop_was_blocked(
    clock_loop: asyncio.SelectorEventLoop, step: Step
) -> None:
    """The first callback of a coarse bucket takes longer than a slice; the others keep order."""
    fired: list[int] = []

    async def main() -> None:
        async with Timer(wheel_size=4) as timer:
            timer.call_later(0.004, step, 0.006)
            for milliseconds in (7, 5, 6):
                timer.call_later(milliseconds / 1000, fired.append, milliseconds)
            step(0.010)
            await timer.sleep(0.1)

    clock_loop.run_until_complete(main())

    assert fired == [5, 6, 7]


@pytest.mark.realtime
@pytest.mark.parametrize("shared", [True, False])
def test_a_clock_that_replaces_that_of_one_loop_is_the_clock_of_its_timers(*, shared: bool) -> None:
    """Tests set `time` on the loop itself; alarms ring on that scale."""
    loop = asyncio.SelectorEventLoop()
    loop.time = lambda: time.monotonic() - 1000  # type: ignore[method-assign]

    async def main() -> None:
        if shared:
            await aiowheel.sleep(0.01)
            timer = aiowheel.current_timer()
            assert abs(timer.time() - loop.time()) < 100
            return
        async with Timer() as timer:
            await timer.sleep(0.01)
            assert abs(timer.time() - loop.time()) < 100

    try:
        loop.run_until_complete(asyncio.wait_for(main(), 30))
    finally:
        loop.close()


@pytest.mark.parametrize("uvloop", [False, True], ids=["selector", "uvloop"])
def test_a_timer_on_a_wheel_loop_reads_the_monotonic_clock(*, uvloop: bool) -> None:
    """A wheel loop has that clock as its own `time`."""
    if uvloop:
        pytest.importorskip("uvloop")
    loop = new_event_loop(uvloop=uvloop)

    async def main() -> bool:
        async with Timer() as timer:
            return driver_of(timer).reads_monotonic

    try:
        assert loop.run_until_complete(main())
    finally:
        loop.close()


def test_a_block_whose_deadline_has_passed_expires_after_a_step_back(
    clock_loop: asyncio.SelectorEventLoop, step: Step
) -> None:
    """The clock is set back before the turn in which the block would expire."""
    deadline = clock_loop.time()

    async def main() -> None:
        async with Timer() as timer:
            with pytest.raises(TimeoutError):
                async with timer.timeout_at(deadline):
                    step(-10)
                    await asyncio.sleep(60)
            assert deadline <= timer.time() < deadline + 1

    clock_loop.run_until_complete(main())


def test_a_closed_timer_arms_no_deadline_after_a_step_back(
    clock_loop: asyncio.SelectorEventLoop, step: Step
) -> None:
    """As always, a block loses its deadline when the timer is closed."""

    async def main() -> None:
        async with Timer() as timer:
            async with timer.timeout_at(clock_loop.time()):
                step(-10)
                await timer.aclose()
                await asyncio.sleep(60)
            assert len(timer) == 0

    clock_loop.run_until_complete(main())
