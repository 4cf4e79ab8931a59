"""Timers on the clock that includes the time for which the machine was suspended."""

import asyncio
import time
from collections.abc import Callable

import pytest

from aiowheel import Purgatory, Timer
from aiowheel.testing import VirtualClock, VirtualClockEventLoop

Suspend = Callable[[float], None]
HOUR_S = 3600.0


@pytest.fixture
def suspend(monkeypatch: pytest.MonkeyPatch) -> Suspend:
    """A boot clock that follows the running loop; the returned function suspends the machine.

    The loop's own clock does not advance during a suspension.
    """
    suspended = 7 * HOUR_S  # since boot, before the test began

    def read(_clock: int) -> float:
        return asyncio.get_running_loop().time() + suspended

    def sleep_machine(seconds: float) -> None:
        nonlocal suspended
        suspended += seconds

    monkeypatch.setattr(time, "CLOCK_BOOTTIME", 7, raising=False)
    monkeypatch.setattr(time, "clock_gettime", read, raising=False)
    monkeypatch.setattr(VirtualClockEventLoop, "is_virtual", False)
    return sleep_machine


@pytest.mark.virtual_time
async def test_a_deadline_that_passes_in_a_suspension_fires_within_a_second_after_it(
    suspend: Suspend,
) -> None:
    """The timer on the loop's clock waits for the rest of its hour."""
    fired: list[str] = []
    async with Timer(clock="boottime") as timer, Timer() as plain:
        timer.call_later(HOUR_S, fired.append, "boottime")
        plain.call_later(HOUR_S, fired.append, "monotonic")
        await asyncio.sleep(60)

        suspend(2 * HOUR_S)
        await asyncio.sleep(1)

        assert fired == ["boottime"]
        assert timer.statistics().lateness.maximum >= HOUR_S  # it was due in the suspension
        await asyncio.sleep(HOUR_S)
        assert fired == ["boottime", "monotonic"]


@pytest.mark.virtual_time
async def test_a_suspension_shortens_what_remains(suspend: Suspend) -> None:
    """A deadline an hour away is due half an hour after a suspension of half an hour."""
    async with Timer(clock="boottime") as timer:
        began = timer.time()
        asyncio.get_running_loop().call_later(0.5, suspend, HOUR_S / 2)

        await timer.sleep(HOUR_S)

        assert HOUR_S <= timer.time() - began < HOUR_S + 0.01


@pytest.mark.virtual_time
@pytest.mark.usefixtures("suspend")
async def test_no_deadline_is_early_and_none_later_than_a_tick_and_the_alarm() -> None:
    """An alarm has whole milliseconds; a deadline is late by that and a tick."""
    late: list[float] = []
    async with Timer(clock="boottime", tick=0.0001) as timer:

        def note(when: float) -> None:
            late.append(timer.time() - when)

        for number in range(1, 300):
            when = timer.time() + number / 7000
            timer.call_at(when, note, when)
        await timer.sleep(1)

    assert len(late) == 299
    assert min(late) >= 0.0
    assert max(late) <= 0.0012


@pytest.mark.virtual_time
@pytest.mark.usefixtures("suspend")
async def test_a_timer_wakes_up_each_second_only_while_a_deadline_is_pending() -> None:
    """An idle timer sleeps."""
    async with Timer(clock="boottime") as timer:
        handle = timer.call_later(HOUR_S, int)
        await asyncio.sleep(60.5)
        assert 60 <= timer.statistics().wakeups <= 62

        handle.cancel()
        await asyncio.sleep(2)
        before = timer.statistics().wakeups
        await asyncio.sleep(HOUR_S)
        assert timer.statistics().wakeups == before


@pytest.mark.virtual_time
async def test_timeouts_periodic_calls_and_a_purgatory_use_the_timers_clock(
    suspend: Suspend,
) -> None:
    """Each of them ends or calls within a second after a suspension."""
    async with Timer(clock="boottime") as timer, Purgatory("p", timer=timer) as purgatory:
        calls: list[float] = []
        timer.every(HOUR_S, lambda: calls.append(timer.time()))
        wait = purgatory.wait_until({"k": 1}, HOUR_S)
        asyncio.get_running_loop().call_later(0.25, suspend, 3 * HOUR_S)

        async with asyncio.timeout(10):  # on the loop's clock
            with pytest.raises(TimeoutError):
                async with timer.timeout(2 * HOUR_S):
                    await asyncio.sleep(60)
            assert not await wait
            async with timer.move_on_after(0) as block:
                await asyncio.sleep(60)

        assert block.expired()
        assert block.when() == pytest.approx(timer.time(), abs=0.01)
        assert len(calls) == 1


@pytest.mark.virtual_time
async def test_on_a_virtual_loop_it_is_the_clock_of_the_loop(
    virtual_clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The clock since boot stands still, as it nearly does while virtual time passes."""
    monkeypatch.setattr(time, "CLOCK_BOOTTIME", 7, raising=False)

    def stands_still(clock: int) -> float:
        assert clock == 7
        return 7 * HOUR_S

    monkeypatch.setattr(time, "clock_gettime", stands_still, raising=False)
    async with Timer(clock="boottime") as timer:
        assert timer.time() == virtual_clock.time()

        await asyncio.wait_for(timer.sleep(HOUR_S), HOUR_S + 1)

        assert virtual_clock.time() == HOUR_S
        assert timer.statistics().wakeups == 1


@pytest.mark.parametrize("factory", ["asyncio", "uvloop"])
@pytest.mark.realtime
def test_the_real_clock_of_this_system(factory: str) -> None:
    """Nothing is early on the real clock, and its scale is that of the system's clock."""
    if not hasattr(time, "CLOCK_BOOTTIME"):
        pytest.skip("this system has no CLOCK_BOOTTIME")
    loop_factory = (
        asyncio.SelectorEventLoop
        if factory == "asyncio"
        else pytest.importorskip("uvloop").new_event_loop
    )

    async def main() -> None:
        async with Timer(clock="boottime") as timer:
            for number in range(20):
                when = time.clock_gettime(time.CLOCK_BOOTTIME) + number / 10_000
                async with timer.move_on_at(when):
                    await asyncio.sleep(60)
                assert time.clock_gettime(time.CLOCK_BOOTTIME) >= when

    with asyncio.Runner(loop_factory=loop_factory) as runner:
        runner.run(main())


async def test_on_a_real_loop_it_is_the_systems_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock of the loop and CLOCK_BOOTTIME differ after a suspension."""
    monkeypatch.setattr(time, "CLOCK_BOOTTIME", 7, raising=False)
    monkeypatch.setattr(time, "clock_gettime", HOUR_S.__add__, raising=False)

    async with Timer(clock="boottime") as timer:
        assert timer.time() == HOUR_S + 7


def test_a_system_without_the_clock_refuses_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error comes at the call that makes the timer."""
    monkeypatch.delattr(time, "CLOCK_BOOTTIME", raising=False)

    with pytest.raises(ValueError, match="clock must be 'monotonic' on a system other than Linux"):
        Timer(clock="boottime")


def test_an_unknown_clock_is_refused() -> None:
    """The error names both clocks."""
    with pytest.raises(ValueError, match="clock must be one of 'monotonic', 'boottime', got 'tai'"):
        Timer(clock="tai")  # type: ignore[arg-type]
