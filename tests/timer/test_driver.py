"""The driver's arithmetic: when its alarm rings, how long a slice lasts, what it logs."""

import asyncio
from collections.abc import Callable, Iterator
from threading import get_ident
from types import SimpleNamespace
from typing import Any, cast

import pytest

from aiowheel import ManualTimer, TimerHandle
from aiowheel.timer._driver import BoottimeDriver, LoopDriver
from aiowheel.timer._manual import ManualDriver
from aiowheel.timer._timeout import Wakeup

MS = 1_000_000
SECOND = 1000 * MS
DAY = 86_400 * SECOND


def nothing() -> None:
    """Do nothing."""


def handle_at(deadline: int, callback: Callable[..., object], *args: object) -> TimerHandle:
    """Return a handle that is in no wheel yet."""
    return TimerHandle(deadline, 0, callback, args, None)


class Alarms:
    """Alarms that never ring: their times and the number that were cancelled."""

    def __init__(self) -> None:
        self.times: list[float] = []
        self.cancelled = 0

    def arm(self, time: float, callback: object, *, context: object) -> object:
        """Record an alarm."""
        self.times.append(time)
        return SimpleNamespace(cancel=self._cancel)

    def _cancel(self) -> None:
        self.cancelled += 1


class Clock:
    """A clock that a test moves, in nanoseconds."""

    ns = 0

    def read(self) -> float:
        """Return the time in seconds."""
        return self.ns / 1e9

    def work(self, took: int) -> None:
        """Let time pass, as a slow callback does."""
        self.ns += took


@pytest.fixture
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    """A loop that runs only what a test runs on it."""
    made = asyncio.new_event_loop()
    yield made
    made.close()


@pytest.fixture
def alarms() -> Alarms:
    """The alarms of `driver`."""
    return Alarms()


@pytest.fixture
def clock() -> Clock:
    """The clock of `driver`."""
    return Clock()


@pytest.fixture
def driver(loop: asyncio.AbstractEventLoop, alarms: Alarms, clock: Clock) -> LoopDriver:
    """A driver with ticks of a millisecond, whose alarms only the test sees."""
    return LoopDriver(loop, MS, 256, alarms.arm, clock.read)


# --- alarms ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("due", "seconds"), [(1, 1e-9), (1_500_000, 0.0015), (DAY, 86_400.0), (9 * DAY, 86_400.0)]
)
def test_an_alarm_rings_when_a_bucket_is_due_and_after_a_day_at_most(
    driver: LoopDriver, alarms: Alarms, due: int, seconds: float
) -> None:
    """The select() of a loop waits no longer than a day."""
    driver.wake_at(due, 0)

    assert alarms.times == [seconds]


@pytest.mark.parametrize(
    ("now", "due", "seconds"),
    [
        (1_600_000, 1_600_001, 0.001),
        (1_999_999, 2_000_000, 0.001),
        (1_999_999, 5_000_000, 0.004),
        (2_000_000, 5_000_001, 0.004),
        (0, DAY, 86_400.0),
        (0, 9 * DAY, 86_400.0),
    ],
)
def test_on_uvloop_an_alarm_has_whole_milliseconds_and_is_not_early(
    alarms: Alarms, now: int, due: int, seconds: float
) -> None:
    """The delay counts from the clock of uvloop, which has whole milliseconds."""
    loop = pytest.importorskip("uvloop").new_event_loop()
    LoopDriver(loop, MS, 256, alarms.arm).wake_at(due, now)
    loop.close()

    assert alarms.times == [seconds]


def test_on_a_loop_of_another_kind_the_alarm_is_a_delay(alarms: Alarms) -> None:
    """A wheel loop passes the `call_later` of a base class such as that of rloop."""

    class Loop(asyncio.AbstractEventLoop):
        def time(self) -> float:
            return 5.0

    made: Any = Loop  # the methods of the base class only raise NotImplementedError
    LoopDriver(made(), MS, 256, alarms.arm).wake_at(5 * SECOND + 20 * MS, 5 * SECOND)

    assert alarms.times == [0.02]


@pytest.mark.parametrize("due", [0, 1_500_000, 1_600_000])
def test_on_uvloop_a_bucket_that_is_due_waits_for_no_alarm(alarms: Alarms, due: int) -> None:
    """The driver wakes in the next iteration of the loop, not a millisecond later."""
    loop = pytest.importorskip("uvloop").new_event_loop()
    woken: list[str] = []
    driver = LoopDriver(loop, MS, 256, alarms.arm)
    driver.on_wake = lambda: woken.append("woken")

    driver.wake_at(due, 1_600_000)
    loop.run_until_complete(asyncio.sleep(0))
    loop.close()

    assert woken == ["woken"]
    assert alarms.times == []


@pytest.mark.parametrize(
    ("remaining", "seconds"),
    [
        (-5 * SECOND, 0.0),
        (0, 0.0),
        (1, 0.001),
        (MS, 0.001),
        (MS + 1, 0.002),
        (999 * MS, 0.999),
        (SECOND, 1.0),
        (SECOND + 1, 1.0),
        (5 * SECOND, 1.0),
    ],
)
def test_an_alarm_for_the_clock_since_boot_rings_after_a_second_at_most(
    monkeypatch: pytest.MonkeyPatch,
    loop: asyncio.AbstractEventLoop,
    alarms: Alarms,
    remaining: int,
    seconds: float,
) -> None:
    """Its delay has whole milliseconds and is never too short."""
    monkeypatch.setattr(loop, "call_later", alarms.arm)
    driver = BoottimeDriver(loop, MS, 256, clock=lambda: 7.0)

    driver.wake_at(7 * SECOND + remaining, 7 * SECOND)

    assert alarms.times == [seconds]


def test_only_an_earlier_bucket_sets_a_new_alarm(driver: LoopDriver, alarms: Alarms) -> None:
    """A deadline in the bucket of the alarm, armed or moved there, costs no other alarm."""
    handles = [handle_at(ns, nothing) for ns in (2_500_000, 2_600_000, 9_000_000, 1_500_000)]
    for handle in handles:
        driver.arm(handle, 0)
    driver.move(handles[1], 1_600_000, 0)
    driver.move(handles[2], 2_000_000, 0)

    assert alarms.times == [0.003, 0.002]
    assert alarms.cancelled == 1
    driver.move(handles[0], 1_000_000, 0)
    assert alarms.times == [0.003, 0.002, 0.001]
    driver.close()
    assert alarms.cancelled == 3


# --- slices ---------------------------------------------------------------------------------


@pytest.mark.parametrize(("took", "fired"), [(4_999_999, 2), (5 * MS, 1), (6 * MS, 1)])
def test_a_slice_ends_when_five_milliseconds_have_passed(
    driver: LoopDriver, clock: Clock, took: int, fired: int
) -> None:
    """The rest waits for a turn of the loop's other callbacks."""
    for _ in range(3):
        driver.arm(handle_at(MS, clock.work, took), 0)
    clock.ns = MS

    driver.run_slice()

    assert driver.fired == fired


@pytest.mark.parametrize(
    ("others", "budget"),
    [
        (0, 5 * MS),
        (4 * MS, 5 * MS),
        (7 * MS, 7 * MS),
        (999 * MS, 999 * MS),
        (1000 * MS, 1000 * MS),
        (2000 * MS, 1000 * MS),
    ],
)
@pytest.mark.parametrize("short", [0, 1])
def test_a_driver_that_is_behind_takes_as_long_as_the_other_callbacks(
    driver: LoopDriver, clock: Clock, others: int, budget: int, short: int
) -> None:
    """The time between two slices is the budget of the second one, from 5 ms to a second."""
    driver.arm(handle_at(MS, clock.work, 5 * MS), 0)
    for _ in range(3):
        driver.arm(handle_at(MS, clock.work, budget - short), 0)
    clock.ns = MS
    driver.run_slice()
    assert driver.fired == 1

    clock.ns += others
    driver.run_slice()

    assert driver.fired == 2 + short


@pytest.mark.parametrize(("took", "fired"), [(5 * MS - 1, 1), (5 * MS, 2)])
def test_a_driver_is_behind_after_a_slice_of_five_milliseconds(
    driver: LoopDriver, clock: Clock, took: int, fired: int
) -> None:
    """Only then does the time by which the next alarm was late lengthen the next slice."""
    driver.arm(handle_at(MS, clock.work, took), 0)
    clock.ns = MS
    driver.run_slice()
    for _ in range(3):
        driver.arm(handle_at(100 * MS, clock.work, 5 * MS), clock.ns)

    clock.ns = 106 * MS
    driver.run_slice()

    assert driver.fired == 1 + fired


@pytest.mark.parametrize(
    ("took", "logged"), [(99_999_999, []), (100_000_000, [0.1]), (2_500_000_000, [2.5])]
)
def test_a_callback_of_a_tenth_of_a_second_is_logged(
    driver: LoopDriver,
    clock: Clock,
    caplog: pytest.LogCaptureFixture,
    took: int,
    logged: list[float],
) -> None:
    """The event names the callback and the seconds that it took."""
    driver.arm(handle_at(MS, clock.work, took), 0)
    clock.ns = MS

    driver.run_slice()

    texts = [record.getMessage() for record in caplog.records]
    assert all(text.startswith("aiowheel.slow_callback callback='<") for text in texts)
    assert [float(text.rpartition("seconds=")[2]) for text in texts] == logged


def test_a_callback_that_fires_early_is_logged(
    driver: LoopDriver, clock: Clock, early_firings: list[dict[str, object]]
) -> None:
    """It happens only if the clock is set back during a slice."""
    driver.arm(handle_at(10 * MS, clock.work, -4 * MS), 0)
    driver.arm(handle_at(10 * MS, nothing), 0)
    clock.ns = 10 * MS

    driver.run_slice()

    assert driver.fired == 2
    assert early_firings == [{"callback": repr(nothing), "seconds": 0.004}]
    assert driver.statistics().lateness.total_ns == 0
    early_firings.clear()


def test_a_deadline_moved_to_this_moment_does_not_wait_for_its_tick() -> None:
    """The next step of time fires it, even if no time passes."""
    timer = ManualTimer(tick=1)
    handle = timer.call_later(100, nothing)
    timer.advance(2.5)

    handle.reschedule(2.5)

    assert timer.advance(0) == 1


def test_a_driver_knows_whether_its_loop_runs_in_another_thread() -> None:
    """A wheel loop states the thread when it begins to run, and None when it stops."""
    driver = ManualDriver(MS, 256)
    answers: list[bool] = []
    threads: list[Any] = [get_ident(), get_ident() + 1, None]
    for thread in threads:
        answers.append(driver.runs_elsewhere())
        driver.run_in(thread)

    assert [*answers, driver.runs_elsewhere()] == [False, False, True, False]


class BrokenFuture:
    """A future that cannot be ended."""

    def done(self) -> bool:
        """Raise ZeroDivisionError."""
        raise ZeroDivisionError


def test_closing_drops_every_task_even_if_one_cannot_be_dropped() -> None:
    """The first error is raised afterwards, and the calls of threads end as well."""
    timer = ManualTimer()
    driver = timer._manual
    first, last = (handle_at(deadline, nothing) for deadline in (SECOND, 3 * SECOND))
    for task in (first, Wakeup(2 * SECOND, cast(Any, BrokenFuture())), last):
        driver.arm(task, 0)

    with pytest.raises(ZeroDivisionError):
        timer._close_for_good()

    assert first.cancelled()
    assert last.cancelled()
    assert timer.closed
    assert cast(Any, timer._tasks)._ended
