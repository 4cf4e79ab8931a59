"""Time on a virtual loop is exact, moves in jumps, and can be moved by `advance`."""

import asyncio
import math
import random
import re
import weakref
from collections.abc import Awaitable, Callable
from datetime import timedelta

import pytest

import aiowheel
from aiowheel import DelayedOperation, Purgatory
from aiowheel.loop import WheelEventLoopMixin
from aiowheel.testing import VirtualClock, VirtualClockEventLoop

pytestmark = [pytest.mark.one_build, pytest.mark.virtual_time]

Sleep = Callable[[float], Awaitable[None]]
SLEEPS = pytest.mark.parametrize("sleep", [asyncio.sleep, aiowheel.sleep], ids=["loop", "wheel"])


class Never(DelayedOperation[float]):
    """An operation that ends by its timeout; its result is the time of its end."""

    def try_complete(self) -> bool:
        """Return False."""
        return False

    def on_complete(self) -> float:
        """Return the time on the loop's clock."""
        return asyncio.get_running_loop().time()


async def note_after(sleep: Sleep, delay: float, trace: list[float]) -> None:
    """Record the time at which a sleep ends."""
    await sleep(delay)
    trace.append(asyncio.get_running_loop().time())


@SLEEPS
async def test_a_sleep_ends_at_exactly_its_time(sleep: Sleep, virtual_clock: VirtualClock) -> None:
    """The clock shows decimal fractions of seconds exactly."""
    await sleep(0.3)
    assert virtual_clock.time() == 0.3
    await sleep(0.1)
    assert virtual_clock.time() == 0.4
    await sleep(3600)
    assert virtual_clock.time() == 3600.4


async def test_all_kinds_of_timers_share_the_clock(virtual_clock: VirtualClock) -> None:
    """0.3 s is the same instant for the loop, the wheel and a purgatory."""
    loop = virtual_clock.loop
    times: list[float] = []
    loop.call_later(0.3, lambda: times.append(loop.time()))
    aiowheel.call_later(0.3, lambda: times.append(loop.time()))
    async with (
        aiowheel.Timer() as timer,
        Purgatory("waits", timer=timer) as purgatory,
        asyncio.timeout(0.4),
        aiowheel.timeout(0.4),
    ):
        timer.call_later(0.3, lambda: times.append(loop.time()))
        times.append(await purgatory.watch(Never(timeout=0.3), keys=["key"]))

    assert times == [0.3] * 4


@SLEEPS
async def test_a_timeout_ends_a_longer_sleep(sleep: Sleep, virtual_clock: VirtualClock) -> None:
    """The shorter of two waits ends first, for deadlines of the loop and of the wheel."""
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(asyncio.ensure_future(sleep(31)), 30)
    assert virtual_clock.time() == 30.0
    with pytest.raises(TimeoutError):
        async with aiowheel.timeout(30):
            await sleep(31)
    assert virtual_clock.time() == 60.0


async def test_a_sleep_of_a_rounding_error_ends(virtual_clock: VirtualClock) -> None:
    """A task that sleeps until `time()` reaches a float between two nanoseconds ends."""
    loop = virtual_clock.loop
    deadline = 0.1 + 0.2  # slightly more than 0.3
    await asyncio.sleep(0.3)

    sleeps = 0
    while loop.time() < deadline:
        await asyncio.sleep(deadline - loop.time())
        sleeps += 1

    assert sleeps == 1


@pytest.mark.parametrize("start", [0.0, 2**24 + 0.1, 2e8 + 0.3, 1.5e9 + 0.7, -5.5])
@SLEEPS
def test_the_clock_is_never_behind_a_deadline_that_it_reached(sleep: Sleep, start: float) -> None:
    """This also holds after years, when a float is coarser than a nanosecond."""

    async def sleep_often() -> None:
        loop = asyncio.get_running_loop()
        for delay in (1e-9, 1e-6, 0.001, 0.1, 0.3, 1 / 3, 86_400.5):
            before = loop.time()
            await sleep(delay)
            assert loop.time() >= before + delay * 0.999999 - math.ulp(before)

    with asyncio.Runner(loop_factory=lambda: VirtualClockEventLoop(start=start)) as runner:
        runner.run(sleep_often())


async def test_advance_runs_everything_on_the_way_at_its_own_time(
    virtual_clock: VirtualClock,
) -> None:
    """Timers fire up to the target, including those that woken tasks arm meanwhile."""
    virtual_clock.autojump = False
    trace: list[float] = []

    async def repeat() -> None:
        while True:
            await note_after(asyncio.sleep, 4.0, trace)
            await note_after(aiowheel.sleep, 4.0, trace)

    task = asyncio.create_task(repeat())
    await virtual_clock.advance(16)

    assert trace == [4.0, 8.0, 12.0, 16.0]
    assert virtual_clock.time() == 16.0
    task.cancel()


async def test_advance_is_exact_to_the_microsecond(virtual_clock: VirtualClock) -> None:
    """Odd steps add up exactly, and a later sleeper is not woken."""
    virtual_clock.autojump = False
    far = asyncio.create_task(asyncio.sleep(60))

    for step in (0.051592, 0.000001, 3.141592):
        await virtual_clock.advance(step)

    assert virtual_clock.time() == 3.193185
    assert not far.done()
    far.cancel()


async def test_four_advances_of_a_quarter_end_a_sleep(virtual_clock: VirtualClock) -> None:
    """A sleep of 1 ms ends with the fourth advance of 250 µs."""
    virtual_clock.autojump = False
    sleepers = [asyncio.create_task(asyncio.sleep(0.001)), asyncio.create_task(wheel_sleep(0.001))]

    ended: list[list[bool]] = []
    for _ in range(4):
        await virtual_clock.advance(timedelta(microseconds=250))
        ended.append([task.done() for task in sleepers])

    assert ended == [[False, False]] * 3 + [[True, True]]


async def wheel_sleep(delay: float) -> None:
    """Sleep by `aiowheel.sleep`, in a coroutine of the type that a task accepts."""
    await aiowheel.sleep(delay)


async def test_advance_by_zero_runs_due_callbacks(virtual_clock: VirtualClock) -> None:
    """`advance(0)` runs them, however many turns of the loop they take."""
    virtual_clock.autojump = False
    turns = 0

    async def turn() -> None:
        nonlocal turns
        for _ in range(100):
            await asyncio.sleep(0)
            turns += 1

    task = asyncio.create_task(turn())
    await virtual_clock.advance(0)

    assert (turns, task.done(), virtual_clock.time()) == (100, True, 0.0)


async def test_advances_of_several_tasks_end_at_their_own_times(
    virtual_clock: VirtualClock,
) -> None:
    """The clock moves to the nearest target first; a cancelled call is ignored."""
    virtual_clock.autojump = False
    trace: list[float] = []
    given_up = asyncio.create_task(virtual_clock.advance(5))
    await asyncio.sleep(0)
    given_up.cancel()

    await asyncio.gather(
        *(note_after(virtual_clock.advance, step, trace) for step in (20.0, 10.0, 20.0))
    )

    assert trace == [10.0, 20.0, 20.0]


@pytest.mark.parametrize("seconds", [-1, -1e-9, math.inf, 3e9])
async def test_advance_refuses_a_step_out_of_range(
    seconds: float, virtual_clock: VirtualClock
) -> None:
    """The error names the longest step."""
    with pytest.raises(ValueError, match="seconds must be from 0 to 73 years, got"):
        await virtual_clock.advance(seconds)


async def test_advance_refuses_nan(virtual_clock: VirtualClock) -> None:
    """NaN is no step."""
    with pytest.raises(ValueError, match="seconds must be a number of seconds other than NaN"):
        await virtual_clock.advance(math.nan)


async def test_advance_ends_within_73_years(virtual_clock: VirtualClock) -> None:
    """A longer step raises and leaves the clock unchanged, because no timer fires after it."""
    await virtual_clock.advance(2e9)
    with pytest.raises(ValueError, match="within 73 years of 0, got 1000000000"):
        await virtual_clock.advance(1e9)

    assert virtual_clock.time() == 2e9


async def test_frozen_time_passes_in_advance_alone(virtual_clock: VirtualClock) -> None:
    """Freezing nests, and ends with the outermost block."""
    sleeper = asyncio.create_task(asyncio.sleep(10))

    with virtual_clock.freeze():
        with virtual_clock.freeze():
            await virtual_clock.advance(4)
        await virtual_clock.advance(4)
        assert (virtual_clock.time(), sleeper.done()) == (8.0, False)
    await sleeper

    assert virtual_clock.time() == 10.0


@pytest.mark.virtual_time(autojump=False, start=100.0)
async def test_the_mark_sets_the_clock(virtual_clock: VirtualClock) -> None:
    """The loop is created with the arguments of the mark."""
    assert (virtual_clock.time(), virtual_clock.autojump) == (100.0, False)


async def test_a_cancelled_timer_is_not_jumped_to(virtual_clock: VirtualClock) -> None:
    """Of a hundred thousand cancelled timers, most are removed from memory."""
    loop = virtual_clock.loop
    for _ in range(100_000):
        loop.call_later(5, int).cancel()
    await asyncio.sleep(10)

    assert virtual_clock.time() == 10.0
    loop.call_later(1, int)
    assert len(loop._agenda._heap) < 2_000


async def test_a_timer_cancelled_in_its_own_instant_does_not_run(
    virtual_clock: VirtualClock,
) -> None:
    """As on any loop, a ready callback can still be cancelled."""
    loop = virtual_clock.loop
    fired: list[str] = []
    handles: list[asyncio.TimerHandle] = []

    def cancel_the_second() -> None:
        handles[1].cancel()

    handles.append(loop.call_later(1, cancel_the_second))
    handles.append(loop.call_later(1, fired.append, "second"))

    await asyncio.sleep(2)

    assert fired == []
    assert repr(handles[1]).startswith("<TimerHandle cancelled when=1.0")


async def test_a_callback_due_at_once_runs_in_a_later_turn(virtual_clock: VirtualClock) -> None:
    """Delays of 0 and less run as on any loop, without moving the clock."""
    loop = virtual_clock.loop
    fired: list[float] = []
    for delay in (0, -1, -1e9):
        loop.call_later(delay, fired.append, delay)
    assert fired == []

    await asyncio.sleep(0)
    await asyncio.sleep(0)

    assert sorted(fired) == [-1e9, -1, 0]
    assert virtual_clock.time() == 0.0


async def test_a_callback_that_raises_goes_to_the_exception_handler(
    virtual_clock: VirtualClock,
) -> None:
    """The context has the handle and the message, as on any loop."""
    loop = virtual_clock.loop
    contexts: list[dict[str, object]] = []
    loop.set_exception_handler(lambda _, context: contexts.append(context))
    handle = loop.call_later(1, divmod, 1, 0)

    await asyncio.sleep(2)

    assert [each["handle"] for each in contexts] == [handle]
    assert isinstance(contexts[0]["exception"], ZeroDivisionError)


async def test_arming_is_refused_as_on_any_loop(virtual_clock: VirtualClock) -> None:
    """None, other types, and in debug mode a foreign thread or a coroutine are refused."""
    loop = virtual_clock.loop
    with pytest.raises(TypeError):
        loop.call_at(None, int)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValueError, match="NaN"):
        loop.call_at(math.nan, int)
    loop.set_debug(True)
    with pytest.raises(TypeError, match="coroutines"):
        loop.call_later(1, wheel_sleep, 1)
    with pytest.raises(RuntimeError, match="Non-thread-safe"):
        await asyncio.to_thread(lambda: loop.call_later(1, int))
    loop.set_debug(False)


@pytest.mark.parametrize("method", ["call_later", "call_at"])
async def test_debug_mode_names_the_line_that_armed_the_timer(
    virtual_clock: VirtualClock, method: str
) -> None:
    """The line is that of the caller, not one of the loop itself."""
    loop = virtual_clock.loop
    loop.set_debug(True)

    handle = getattr(loop, method)(1, int)

    loop.set_debug(False)
    assert re.search(rf"created at {re.escape(__file__)}:\d+>", repr(handle))


def test_a_closed_loop_arms_nothing() -> None:
    """A closed loop refuses new timers."""
    loop = VirtualClockEventLoop()
    loop.close()

    with pytest.raises(RuntimeError, match="closed"):
        loop.call_later(1, int)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"patience": -1}, "patience must be 0 or more seconds, got -1"),
        ({"patience": math.nan}, "patience must be 0 or more seconds, got nan"),
        ({"start": math.inf}, "start must be finite, got inf"),
    ],
)
def test_bad_options_are_refused(options: dict[str, float], text: str) -> None:
    """The text names the value and the legal range."""
    with pytest.raises(ValueError, match=text):
        VirtualClockEventLoop(**options)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"patience": "1"}, "patience must be a number of seconds, got '1'"),
        ({"patience": True}, "patience must be a number of seconds, got True"),
        ({"seed": [1, 2]}, r"seed must be an integer or None, got \[1, 2\]"),
        ({"seed": 1.5}, "seed must be an integer or None, got 1.5"),
        ({"start": None}, "start must be a number of seconds or a timedelta, got None"),
    ],
)
def test_options_of_a_wrong_type_are_refused(options: dict[str, object], text: str) -> None:
    """The text names the value and the legal range, and no loop is left open."""
    with pytest.raises(TypeError, match=text):
        VirtualClockEventLoop(**options)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


def test_a_closed_loop_is_freed_at_once() -> None:
    """As with asyncio's own loops, no reference cycle is left."""
    loop = VirtualClockEventLoop()
    loop.run_until_complete(asyncio.sleep(1))
    loop.close()
    gone = weakref.ref(loop)

    del loop

    assert gone() is None


class WheelOnVirtualTime(WheelEventLoopMixin, VirtualClockEventLoop):
    """A loop whose timers are on the wheel, and whose wheel is on the virtual clock."""


def test_a_wheel_loop_can_be_virtual() -> None:
    """A program for `aiowheel.run` can be tested in virtual time."""

    async def sleep_and_time_out() -> float:
        loop = asyncio.get_running_loop()
        await asyncio.sleep(3600)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(loop.create_future(), 0.3)
        return loop.time()

    with asyncio.Runner(loop_factory=WheelOnVirtualTime) as runner:
        assert runner.run(sleep_and_time_out()) == 3600.3


@pytest.mark.slow
@SLEEPS
async def test_an_hour_with_ten_thousand_sleepers(
    sleep: Sleep, virtual_clock: VirtualClock
) -> None:
    """Each sleeper wakes at its own time."""
    trace: list[float] = []
    delays = [random.Random(number).randrange(1, 3_600_000) / 1000 for number in range(10_000)]

    await asyncio.gather(*(note_after(sleep, delay, trace) for delay in delays))

    assert trace == sorted(delays)
