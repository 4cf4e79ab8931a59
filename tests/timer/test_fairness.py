"""Many due timers, and timers that re-arm themselves, leave the loop time for other work."""

import asyncio
from collections.abc import Callable

import pytest

from aiowheel import Timer, TimerHandle, accelerated
from aiowheel.timer._driver import BUDGET_NS, MOST_BUDGET_NS

Step = Callable[[float], None]

MANY = 200_000 if accelerated else 20_000


def test_a_mass_expiry_runs_in_slices(clock_loop: asyncio.SelectorEventLoop, step: Step) -> None:
    """Many callbacks of 1 microsecond in one tick: the loop runs other work every few ms.

    Only the callbacks advance the clock, so the test counts slices instead of measuring time.
    """
    longest = 0.0
    fired = 0
    turns = 0

    def work() -> None:
        nonlocal fired
        fired += 1
        step(0.000_001)

    async def heartbeat() -> None:
        nonlocal longest, turns
        while fired < MANY:
            before = clock_loop.time()
            await asyncio.sleep(0)
            longest = max(longest, clock_loop.time() - before)
            turns += 1

    async def main() -> None:
        async with Timer() as timer:
            for _ in range(MANY):
                timer.call_later(0.0005, work)
            step(1.0)
            await asyncio.create_task(heartbeat())
            assert timer.statistics().fired == MANY

    clock_loop.run_until_complete(main())

    assert longest <= 1.5 * BUDGET_NS / 1e9
    assert turns >= MANY * 1000 // BUDGET_NS


def test_a_task_that_sleeps_waits_for_two_slices_of_a_mass_expiry(
    clock_loop: asyncio.SelectorEventLoop, step: Step
) -> None:
    """The slice in which its sleep ends, and the one that runs before asyncio resumes it."""
    longest = 0.0
    fired = 0

    def work() -> None:
        nonlocal fired
        fired += 1
        step(0.001)

    async def heartbeat() -> None:
        nonlocal longest
        while fired < 100:
            before = clock_loop.time()
            await asyncio.sleep(0.001)
            longest = max(longest, clock_loop.time() - before)

    async def main() -> None:
        async with Timer() as timer:
            for _ in range(100):
                timer.call_later(0.0005, work)
            await asyncio.create_task(heartbeat())

    clock_loop.run_until_complete(main())

    assert BUDGET_NS / 1e9 < longest <= 2.1 * BUDGET_NS / 1e9


def test_a_callback_postponed_by_a_slice_can_be_cancelled_or_moved(
    clock_loop: asyncio.SelectorEventLoop, step: Step
) -> None:
    """A callback that is due but has not run can be cancelled or moved between two slices."""
    fired: list[int] = []

    def work(number: int) -> None:
        fired.append(number)
        step(0.001)

    async def main() -> None:
        async with Timer() as timer:
            handles = [timer.call_later(0.0005, work, number) for number in range(1000)]
            step(1.0)
            while not fired:  # noqa: ASYNC110 - the loop must turn one iteration at a time
                await asyncio.sleep(0)
            assert len(fired) < 10
            late = handles[-1]
            assert late.touch(5.0)
            cancelled = sum(handle.cancel() for handle in handles[:-1])
            assert cancelled == 999 - len(fired)
            count = len(fired)
            await asyncio.sleep(1.0)
            assert len(fired) == count
            await asyncio.sleep(5.0)
            assert fired[-1] == 999
            assert timer.statistics().cancelled == cancelled

    clock_loop.run_until_complete(main())


@pytest.mark.parametrize("way", ["armed", "moved"])
def test_an_entry_due_at_once_between_two_slices_does_not_wait_for_its_tick(
    way: str, clock_loop: asyncio.SelectorEventLoop, step: Step
) -> None:
    """An entry armed for now, or moved to now from far ahead, runs in one of the next slices."""
    fired: list[str] = []

    def work(name: str) -> None:
        fired.append(name)
        step(0.001)

    async def main() -> None:
        async with Timer(tick=1.0) as timer:
            far = timer.call_later(5000.0, work, "moved")
            for _ in range(20):
                timer.call_later(0.5, work, "burst")
            step(1.25)
            while not fired:  # noqa: ASYNC110 - the loop must turn one iteration at a time
                await asyncio.sleep(0)
            assert len(fired) < 20
            if way == "moved":
                far.reschedule(clock_loop.time())
            else:
                timer.call_later(0, work, "armed")
            for _ in range(50):
                await asyncio.sleep(0)
            assert sorted(fired) == sorted([way] + ["burst"] * 20)

    clock_loop.run_until_complete(main())


def test_order_between_ticks_is_kept_across_slices(
    clock_loop: asyncio.SelectorEventLoop, step: Step
) -> None:
    """Ticks run in order, and within a tick the order is that of arming."""
    fired: list[tuple[int, int]] = []

    def work(tick: int, number: int) -> None:
        fired.append((tick, number))
        step(0.000_3)

    async def main() -> None:
        async with Timer() as timer:
            for number in range(50):
                for tick in (700, 3, 300, 1, 2):
                    timer.call_later(tick / 1000, work, tick, number)
            step(10.0)
            while len(fired) < 250:  # noqa: ASYNC110 - the clock must not jump
                await asyncio.sleep(0)
            assert timer.statistics().wakeups > 10

    clock_loop.run_until_complete(main())

    assert fired == sorted(fired)


def test_a_timer_armed_during_a_slice_waits_for_its_turn(
    clock_loop: asyncio.SelectorEventLoop, step: Step
) -> None:
    """A delay of 0 armed in a callback runs after everything that was due before."""
    fired: list[str] = []

    async def main() -> None:
        async with Timer() as timer:

            def first() -> None:
                timer.call_later(0, fired.append, "armed inside")
                timer.call_at(0, fired.append, "armed inside for long ago")
                fired.append("first")

            timer.call_later(0.001, first)
            for name in ("second", "third"):
                timer.call_later(0.002, fired.append, name)
            step(1.0)
            await timer.sleep(0.01)

    clock_loop.run_until_complete(main())

    assert fired == ["first", "second", "third", "armed inside", "armed inside for long ago"]


@pytest.mark.parametrize("ago", [0.0, 5.0])
@pytest.mark.overdue
def test_a_callback_that_rearms_itself_at_once_leaves_the_other_deadlines_their_time(
    ago: float, clock_loop: asyncio.SelectorEventLoop, step: Step
) -> None:
    """Each call takes a whole slice; a deadline that has come due meanwhile runs next."""
    calls = 0

    async def main() -> int:
        async with Timer() as timer:

            def again() -> None:
                nonlocal calls
                calls += 1
                step(0.006)
                if calls < 100:
                    timer.call_at(timer.time() - ago, again)

            timer.call_later(0, again)
            await timer.sleep(0.010)
            return calls

    assert clock_loop.run_until_complete(main()) <= 4


def test_a_delay_of_zero_runs_after_the_deadlines_that_were_due_before(
    clock_loop: asyncio.SelectorEventLoop, step: Step
) -> None:
    """The loop was blocked while the others came due, or they are left for further slices."""
    fired: list[str] = []

    async def main() -> None:
        async with Timer() as timer:

            def first() -> None:
                fired.append("first")
                step(0.006)
                timer.call_later(0, fired.append, "armed in a slice")

            timer.call_later(0.001, first)
            timer.call_later(0.005, fired.append, "second")
            timer.call_later(0.400, fired.append, "third")
            step(1.0)
            timer.call_later(0, fired.append, "armed before")
            await timer.sleep(0.1)

    clock_loop.run_until_complete(main())

    assert fired == ["first", "second", "third", "armed before", "armed in a slice"]


def test_a_callback_that_rearms_itself_at_once_leaves_the_loop_time(
    clock_loop: asyncio.SelectorEventLoop,
) -> None:
    """Ten thousand delays of 0: the loop runs between any two, without recursion."""
    turns = 0
    left = 10_000

    async def main() -> None:
        nonlocal turns
        async with Timer() as timer:

            def again() -> None:
                nonlocal left
                left -= 1
                if left:
                    timer.call_later(0, again)

            timer.call_later(0, again)
            while left:
                turns += 1
                await asyncio.sleep(0)
            assert timer.statistics().fired == 10_000

    clock_loop.run_until_complete(main())

    assert turns >= 10_000


@pytest.mark.both_loops
async def test_a_timer_beside_an_endless_one_fires() -> None:
    """A delay of 10 ms keeps its length while another timer re-arms itself without end."""
    async with Timer() as timer:

        def again() -> None:
            timer.call_later(0, again)

        again()
        await timer.sleep(0.01)

        assert len(timer) == 1


def test_five_timers_that_cancel_each_other(
    clock_loop: asyncio.SelectorEventLoop, step: Step
) -> None:
    """The first cancels two of its tick; the third cancels another one and re-arms itself."""
    fired: list[str] = []
    handles: dict[str, TimerHandle] = {}

    async def main() -> None:
        async with Timer() as timer:

            def first() -> None:
                fired.append("1")
                handles["2"].cancel()
                handles["4"].cancel()

            def third() -> None:
                fired.append("3")
                handles["5"].cancel()
                handles["b"].cancel()
                handles["z"].cancel()
                if fired.count("3") == 1:
                    handles["3"] = timer.call_later(0.005, third)

            for name, callback in (("1", first), ("3", third)):
                handles[name] = timer.call_later(0.005, callback)
                following = str(int(name) + 1)
                handles[following] = timer.call_later(0.005, fired.append, following)
            handles["5"] = timer.call_later(0.005, fired.append, "5")
            for name in "abc":
                handles[name] = timer.call_later(0.01, fired.append, name)
            handles["z"] = timer.call_later(0.02, fired.append, "z")
            await timer.sleep(0.1)
            numbers = timer.statistics()
            assert (numbers.cancelled, numbers.pending) == (5, 0)

    clock_loop.run_until_complete(main())

    assert [name for name in fired if name.isdigit()] == ["1", "3", "3"]
    assert [name for name in fired if name.isalpha()] == ["a", "c"]


def test_a_blocking_callback_makes_no_count_go_wrong(
    clock_loop: asyncio.SelectorEventLoop, step: Step
) -> None:
    """The first of eleven callbacks blocks for a second and cancels the others."""

    async def main() -> None:
        async with Timer() as timer:
            handles: list[TimerHandle] = []

            def block() -> None:
                step(1.0)
                assert all(handle.cancel() for handle in handles)

            timer.call_later(0.005, block)
            handles.extend(timer.call_later(0.005, int) for _ in range(10))
            await timer.sleep(0.5)
            numbers = timer.statistics()
            assert (numbers.pending, numbers.cancelled, numbers.fired) == (0, 10, 2)

    clock_loop.run_until_complete(main())


# --- overload -------------------------------------------------------------------------------


def slices_beside(
    loop: asyncio.SelectorEventLoop, step: Step, others: float, slices: int
) -> list[float]:
    """Return the lengths of the first slices if other callbacks take *others* in between."""
    lengths: list[float] = []
    work = 0.0

    def fire() -> None:
        nonlocal work
        step(0.000_1)
        work += 0.000_1

    async def main() -> None:
        nonlocal work
        async with Timer() as timer:
            for _ in range(40_000):
                timer.call_later(0.0005, fire)
            step(1.0)
            while len(lengths) < slices:
                work = 0.0
                await asyncio.sleep(0)
                if work:
                    lengths.append(work)
                    step(others)

    loop.run_until_complete(main())
    return lengths


@pytest.mark.parametrize("others", [0.0, 0.001, 0.004])
def test_an_ordinary_burst_keeps_short_slices(
    clock_loop: asyncio.SelectorEventLoop, step: Step, others: float
) -> None:
    """While the rest of the loop takes less than a slice, slices stay at 5 ms."""
    lengths = slices_beside(clock_loop, step, others, 5)

    assert lengths == pytest.approx([BUDGET_NS / 1e9] * 5, abs=0.000_2)


@pytest.mark.parametrize("others", [0.008, 0.02, 0.045])
def test_under_overload_timers_get_as_much_as_the_others_had(
    clock_loop: asyncio.SelectorEventLoop, step: Step, others: float
) -> None:
    """The rule applies from the second slice on, because nothing waits before the first one."""
    lengths = slices_beside(clock_loop, step, others, 5)

    assert lengths[0] == pytest.approx(BUDGET_NS / 1e9, abs=0.000_2)
    assert lengths[1:] == pytest.approx([others] * 4, abs=0.000_2)


def test_a_driver_that_caught_up_in_a_long_slice_is_still_behind(
    clock_loop: asyncio.SelectorEventLoop, step: Step
) -> None:
    """The timers of the next turn get a long slice at once; a short slice ends the overload."""
    slices: list[int] = []

    def fire() -> None:
        step(0.000_1)
        slices[-1] += 1

    async def main() -> None:
        async with Timer() as timer:
            for count in (200, 0, 200, 10, 200):
                slices.append(0)
                for _ in range(count):
                    timer.call_later(0.0005, fire)
                step(0.05)  # the other callbacks
                while not slices[-1]:  # noqa: ASYNC110 - the clock must not jump
                    await asyncio.sleep(0)
            assert timer.statistics().wakeups == 5

    clock_loop.run_until_complete(main())

    assert slices == [50, 150, 200, 10, 50]


def test_a_slice_is_bounded_however_long_the_others_took(
    clock_loop: asyncio.SelectorEventLoop, step: Step
) -> None:
    """A callback that blocks for ten seconds does not cause ten seconds of timers."""
    lengths = slices_beside(clock_loop, step, 10.0, 4)

    assert lengths[1:] == pytest.approx([MOST_BUDGET_NS / 1e9] * 3, abs=0.000_2)


def test_a_slice_that_ends_with_nothing_left_does_not_lengthen_the_next(
    clock_loop: asyncio.SelectorEventLoop, step: Step
) -> None:
    """The next burst begins with a slice of 5 ms, although other callbacks took long before."""
    work: list[float] = []

    def fire() -> None:
        step(0.000_1)
        work[-1] += 0.000_1

    async def main() -> None:
        async with Timer() as timer:
            for count in (10, 2000):
                work.append(0.0)
                for _ in range(count):
                    timer.call_later(0.0005, fire)
                step(1.0)
                while not work[-1]:  # noqa: ASYNC110 - the clock must not jump
                    await asyncio.sleep(0)
            assert len(timer) > 1900

    clock_loop.run_until_complete(main())

    assert work == pytest.approx([0.001, BUDGET_NS / 1e9], abs=0.000_2)
