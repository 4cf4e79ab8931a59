"""`every`: tokio's three policies for missed ticks, no overlap, no drift."""

import asyncio
import functools
import random
import re
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Generator
from contextlib import nullcontext, suppress
from contextvars import ContextVar
from datetime import timedelta
from typing import Any, cast

import anyio
import pytest

import aiowheel
from aiowheel import ForeignLoopError, ManualTimer, Periodic, Timer, TimerClosedError
from aiowheel._types import Missed
from aiowheel.testing import VirtualClockEventLoop
from aiowheel.timer._periodic import Schedule

Until = Callable[[Callable[[], object]], Awaitable[None]]
Step = Callable[[float], None]

MS = 1_000_000  # nanoseconds

#: Period 300 ms, ticks at 0 and 300, then the loop is busy for 650 ms: pairs of the time of the
#: call and its tick, in ms. The ticks are those of tokio's own tests.
TRACES = {
    "burst": [(0, 0), (300, 300), (951, 600), (951, 900), (1200, 1200), (1500, 1500)],
    "delay": [(0, 0), (300, 300), (951, 600), (1251, 1251), (1551, 1551)],
    "skip": [(0, 0), (300, 300), (951, 600), (1200, 1200), (1500, 1500)],
}


def ms(seconds: float | None) -> int:
    """Return whole milliseconds, for reading a trace."""
    assert seconds is not None
    return round(seconds * 1000)


@pytest.mark.parametrize("missed", TRACES)
def test_a_stalled_loop(clock_loop: asyncio.SelectorEventLoop, step: Step, missed: Missed) -> None:
    """A plain function on a loop that other work keeps busy."""
    trace: list[tuple[int, int]] = []
    start = clock_loop.time()

    async def main() -> None:
        async with Timer() as timer:
            due = start

            def note() -> None:
                nonlocal due
                trace.append((ms(timer.time() - start), ms(due - start)))
                due = handle.next_when() or 0.0

            handle = timer.every(0.3, note, missed=missed, first=0)
            await timer.sleep(0.301)
            step(0.65)
            await timer.sleep(0.6)

    clock_loop.run_until_complete(main())

    assert trace == TRACES[missed]


@pytest.mark.parametrize("missed", TRACES)
def test_a_slow_coroutine(clock_loop: asyncio.SelectorEventLoop, missed: Missed) -> None:
    """A tick during a run of the coroutine is a missed tick; runs do not overlap."""
    trace: list[tuple[int, int]] = []
    start = clock_loop.time()
    running = 0

    async def main() -> None:
        async with Timer() as timer:
            due = start

            async def work() -> None:
                nonlocal due, running
                assert running == 0
                running += 1
                trace.append((ms(timer.time() - start), ms(due - start)))
                due = handle.next_when() or 0.0
                if len(trace) == 2:
                    await timer.sleep(0.651)
                running -= 1

            handle = timer.every(0.3, work, missed=missed, first=0)
            await timer.sleep(1.56)

    clock_loop.run_until_complete(main())

    assert trace == TRACES[missed]


def test_delay_does_not_drift_by_the_usual_lateness(
    clock_loop: asyncio.SelectorEventLoop, step: Step
) -> None:
    """A call up to 5 ms late counts as punctual, as in tokio."""

    async def main() -> None:
        async with Timer() as timer:
            handle = timer.every(1, step, 0.005, missed="delay")
            first = handle.next_when()
            await timer.sleep(100.5)
            assert handle.runs == 100
            assert handle.next_when() == pytest.approx((first or 0) + 100, abs=1e-9)

    clock_loop.run_until_complete(main())


@pytest.mark.parametrize("missed", ["skip", "burst"])
def test_nothing_drifts(missed: Missed) -> None:
    """After ten thousand periods that are not a multiple of the tick, the grid is unchanged."""
    timer = ManualTimer(tick=0.001)
    handle = timer.every(0.0123, lambda: None, missed=missed)

    timer.advance(123.001)

    assert handle.runs == 10_000
    assert handle.next_when() == pytest.approx(123.0123, abs=1e-9)


@pytest.mark.parametrize(
    ("missed", "tick", "late", "following"),
    [
        ("burst", 0.001, 5000 * MS, 2000 * MS),
        ("burst", 0.001, -1, 2000 * MS),
        ("skip", 0.001, -1, 2000 * MS),
        ("skip", 0.001, 1000 * MS - 1, 2000 * MS),
        ("skip", 0.001, 1000 * MS, 3000 * MS),
        ("skip", 0.001, 2500 * MS, 4000 * MS),
        ("delay", 0.001, -1, 2000 * MS),
        ("delay", 0.001, 5 * MS, 2000 * MS),
        ("delay", 0.001, 5 * MS + 1, 2005 * MS + 1),
        ("delay", 0.02, 20 * MS, 2000 * MS),
        ("delay", 0.02, 20 * MS + 1, 2020 * MS + 1),
    ],
)
def test_the_tick_after_a_late_one(missed: str, tick: float, late: int, following: int) -> None:
    """The period is a second; a tick is in time up to 5 ms or a tick of the timer, if longer."""
    schedule = Schedule(ManualTimer(tick=tick).open_driver(), 1, missed, 0, None)

    schedule.advance(1000 * MS + late)

    assert schedule.next_ns == following


@pytest.mark.parametrize(
    ("missed", "late", "following"),
    [
        ("skip", 5 * MS, 1000 * MS),
        ("skip", 5 * MS + 1, 2000 * MS),
        ("skip", 1000 * MS, 2000 * MS),
        ("skip", 1001 * MS - 1, 2000 * MS),
        ("skip", 1001 * MS, 3000 * MS),
        ("delay", 5 * MS, 1000 * MS),
        ("delay", 5 * MS + 1, 2004 * MS + 1),
        ("burst", 2500 * MS, 1000 * MS),
    ],
)
def test_the_tick_after_a_late_one_with_jitter(
    missed: str, late: int, following: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The pause after a late call is the one without jitter, plus the jitter of the next tick."""
    jitters = iter([0.999, 0.25])
    monkeypatch.setattr(random, "random", lambda: next(jitters))
    schedule = Schedule(ManualTimer().open_driver(), 1, missed, 1, 0)
    assert schedule.next_ns == 999 * MS

    schedule.advance(999 * MS + late)

    assert schedule.next_ns == following + 250 * MS


def test_the_limits_of_a_schedule() -> None:
    """A period of a nanosecond, a jitter of a whole period and a first call at once are legal."""
    driver = ManualTimer().open_driver()

    assert Schedule(driver, 1e-9, "skip", 0, None).next_ns == 1
    assert Schedule(driver, 1e-9, "skip", 1e-9, 0).next_ns == 0
    for period, jitter, first in ((0, 0, 1), (1, -1e-9, 1), (1, 1.000_000_001, 1), (1, 0, -1e-9)):
        with pytest.raises(ValueError, match=r"^(period|jitter|first) must be"):
            Schedule(driver, period, "skip", jitter, first)


def test_jitter_spreads_the_calls_and_not_the_grid() -> None:
    """Each call runs 0 to *jitter* after its tick; no tick is lost or moved."""
    random.seed(7)
    timer = ManualTimer()
    late: list[float] = []

    def note() -> None:
        late.append(timer.time() - handle.runs)

    handle = timer.every(1, note, jitter=1.0)
    timer.advance(1000.999)

    assert handle.runs in {999, 1000}
    assert all(0.0 <= each <= 1.0011 for each in late)
    assert max(late) - min(late) > 0.9


def test_the_first_call() -> None:
    """The first call runs after one period, or after *first*, where the grid then begins."""
    timer = ManualTimer()
    plain = timer.every(10, lambda: None)
    soon = timer.every(timedelta(seconds=10), lambda: None, first=timedelta(seconds=1))
    now = timer.every(10, lambda: None, first=0)

    assert [each.next_when() for each in (plain, soon, now)] == [10.0, 1.0, 0.0]
    assert now.runs == 0
    timer.advance(1)

    assert [each.next_when() for each in (plain, soon, now)] == [10.0, 11.0, 10.0]
    assert [each.runs for each in (plain, soon, now)] == [0, 1, 1]


@pytest.mark.parametrize("period", [0, -1, float("inf"), 1e-10, 3e9, timedelta(days=36_500)])
def test_a_bad_period_is_refused(period: Any) -> None:
    """The call raises with the limits and the value in the text."""
    text = f"period must be from 1e-9 to 2.3e9 seconds, which are 73 years, got {period!r}"
    with pytest.raises(ValueError, match=f"^{re.escape(text)}$"):
        ManualTimer().every(period, lambda: None)


@pytest.mark.parametrize(
    ("bad", "text"),
    [
        ({"jitter": -0.1}, "jitter must be from 0 to the period 1, got -0.1"),
        ({"jitter": 1.1}, "jitter must be from 0 to the period 1, got 1.1"),
        ({"jitter": float("nan")}, "jitter must be a number of seconds other than NaN, got nan"),
        ({"first": -1}, "first must be from 0 to 2.3e9 seconds, which are 73 years, got -1"),
        ({"first": 3e9}, "first must be from 0 to 2.3e9 seconds, which are 73 years, got 3"),
        ({"first": float("inf")}, "first must be from 0 to 2.3e9 seconds, .* 73 years, got inf"),
        ({"missed": "later"}, "missed must be one of 'skip', 'burst', 'delay', got 'later'"),
    ],
)
def test_bad_options_are_refused(bad: dict[str, Any], text: str) -> None:
    """The call raises, names the legal values, and arms nothing."""
    timer = ManualTimer()

    with pytest.raises(ValueError, match=text):
        timer.every(1, lambda: None, **bad)

    assert len(timer) == 0


@pytest.mark.parametrize("period", [None, "1", True])
def test_a_period_that_is_no_number_is_refused(period: Any) -> None:
    """None, strings, booleans and NaN are refused; so is a number in place of the function."""
    with pytest.raises(TypeError, match="period must be a number"):
        ManualTimer().every(period, lambda: None)
    with pytest.raises(ValueError, match="period must be a number of seconds other than NaN"):
        ManualTimer().every(float("nan"), lambda: None)
    with pytest.raises(TypeError, match="fn must be callable"):
        ManualTimer().every(1, 5)  # type: ignore[arg-type]


def test_a_generator_function_is_refused() -> None:
    """A call of it runs nothing, so its periodic call would do nothing without an error."""

    async def pages() -> AsyncGenerator[int, None]:
        yield 1

    def steps() -> Generator[int, None, None]:
        yield 1

    timer = ManualTimer()
    for function in (pages, functools.partial(pages), steps):
        with pytest.raises(TypeError, match="fn must be a plain or a coroutine function, got the"):
            timer.every(1, function)

    assert len(timer) == 0


def test_cancelling_ends_it() -> None:
    """`cancel` returns True once, works inside the function, and frees the function."""
    timer = ManualTimer()

    def thrice() -> None:
        if handle.runs == 3:
            assert handle.cancel()

    handle = timer.every(1, thrice)
    timer.advance(10)

    assert handle.runs == 3
    assert handle.cancelled()
    assert handle.next_when() is None
    assert handle.payload is None
    assert not handle.cancel()
    assert len(timer) == 0


def test_an_error_does_not_end_it() -> None:
    """Each error is reported, and the next call runs nevertheless."""
    timer = ManualTimer()
    handle = timer.every(1, lambda: "word".index("x"))

    with pytest.raises(ExceptionGroup) as caught:
        timer.advance(3)

    assert [type(error) for error in caught.value.exceptions] == [ValueError] * 3
    assert handle.runs == 3
    assert timer.statistics().callback_errors == 3


async def test_an_error_is_reported_of_a_function_without_a_name(
    until: Until, caplog: pytest.LogCaptureFixture
) -> None:
    """The loop's own handler, which calls `repr` of the handle, can log the error."""

    class Nameless:
        def __call__(self) -> None:
            raise ZeroDivisionError

        def __repr__(self) -> str:
            raise ValueError

    async with Timer() as timer:
        timer.every(30, Nameless(), first=0)
        await until(lambda: caplog.records)

    # A busy machine adds a warning of a slow callback.
    (record,) = [each for each in caplog.records if each.name == "asyncio"]
    assert record.exc_info is not None
    assert record.exc_info[0] is ZeroDivisionError
    assert "<Periodic <" in record.getMessage()


def test_repr_shows_the_function_and_the_next_call() -> None:
    """The name of the function, or its own text."""
    timer = ManualTimer()
    handles = [timer.every(1, nothing), timer.every(1, functools.partial(nothing))]
    timer.advance(1)

    assert repr(handles[0]) == "<Periodic nothing next=2.0 runs=1>"
    assert repr(handles[1]) == f"<Periodic {functools.partial(nothing)!r} next=2.0 runs=1>"
    handles[0].cancel()
    assert repr(handles[0]) == "<Periodic cancelled runs=1>"


def nothing() -> None:
    """Do nothing."""


def test_a_coroutine_needs_a_loop() -> None:
    """On a manual timer outside any loop the error names the reason; no coroutine is left."""

    async def never() -> None:
        raise AssertionError

    timer = ManualTimer()
    timer.every(1, never)

    with pytest.raises(ExceptionGroup) as caught:
        timer.advance(1)

    assert "no running event loop" in str(caught.value.exceptions[0])


def test_an_awaitable_without_a_loop_does_not_end_the_schedule() -> None:
    """Each tick of a function that returns an object with `__await__` names the missing loop."""

    class Later:
        def __await__(self) -> Generator[None, None, None]:
            raise AssertionError

    timer = ManualTimer()
    handle = timer.every(1, Later)

    for runs in (1, 2):
        with pytest.raises(ExceptionGroup) as caught:
            timer.advance(1)
        assert "no running event loop" in str(caught.value.exceptions[0])
        assert handle.runs == runs


async def test_a_coroutine_on_a_manual_timer(until: Until) -> None:
    """The coroutine runs where the loop runs, and the next `advance` raises its errors."""
    timer = ManualTimer()
    runs = 0

    async def work() -> None:
        nonlocal runs
        await asyncio.sleep(0)
        runs += 1
        if runs == 2:
            raise LookupError

    handle = timer.every(1, work)
    timer.advance(1)
    await until(lambda: len(timer) == 1)
    timer.advance(1)
    await until(lambda: len(timer) == 1)

    assert handle.runs == runs == 2
    assert timer.statistics().callback_errors == 1
    with pytest.raises(ExceptionGroup):
        timer.advance(0)
    await timer.aclose()
    assert handle.cancelled()


@pytest.mark.parametrize("kind", [Timer, ManualTimer])
async def test_dropping_a_timer_ends_its_coroutines(kind: type[Timer], until: Until) -> None:
    """Dropping does not wait for the coroutines, but they and their task end."""
    timer = kind()
    await timer.__aenter__()
    ended: list[str] = []
    begun = asyncio.Event()

    async def work() -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("cancelled")

    timer.every(0.001, work, first=0)
    if isinstance(timer, ManualTimer):
        timer.advance(0)
    await begun.wait()

    warns = pytest.warns(ResourceWarning, match="unclosed") if kind is Timer else nullcontext()
    with warns:
        del timer
    await until(lambda: asyncio.all_tasks() == {asyncio.current_task()})

    assert ended == ["cancelled"]


@pytest.mark.both_loops
async def test_coroutines_run_in_the_callers_context(until: Until) -> None:
    """Each run has a copy of the context: changes of one run do not reach the next."""
    variable: ContextVar[str] = ContextVar("variable", default="default")
    seen: list[str] = []

    async def work() -> None:
        seen.append(variable.get())
        variable.set("another run's")

    async with Timer() as timer:
        variable.set("caller's")
        timer.every(0.001, work, first=0)
        variable.set("later")
        await until(lambda: len(seen) >= 3)

    assert set(seen) == {"caller's"}


@pytest.mark.both_loops
async def test_a_failing_coroutine_is_reported_with_its_handle(until: Until) -> None:
    """The other jobs and the failed job continue."""
    contexts: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: contexts.append(context))

    async def fail() -> None:
        await asyncio.sleep(0)
        raise LookupError

    async def work() -> None:
        await asyncio.sleep(0)

    async with Timer() as timer:
        bad = timer.every(0.001, fail)
        good = timer.every(0.001, work)
        await until(lambda: bad.runs >= 3 and good.runs >= 3)
        assert timer.statistics().callback_errors >= 2

    assert {context["handle"] for context in contexts} == {bad}
    assert {type(context["exception"]) for context in contexts} == {LookupError}


@pytest.mark.both_loops
async def test_closing_cancels_running_coroutines_and_waits_for_them(until: Until) -> None:
    """The clean-up of the coroutines is done when the timer is closed."""
    ended: list[str] = []
    began: list[str] = []

    async def work() -> None:
        began.append("work")
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("cleaned up")

    async with Timer() as timer:
        handle = timer.every(0.001, work)
        await until(lambda: began)

    assert ended == ["cleaned up"]
    assert handle.cancelled()
    with pytest.raises(TimerClosedError):
        timer.every(1, work)


@pytest.mark.both_loops
async def test_coroutines_that_closing_cancels_can_await_in_their_clean_up(until: Until) -> None:
    """They are cancelled once, and the end of one does not interrupt the clean-up of others."""
    ended: list[int] = []
    began: list[int] = []
    gates = [asyncio.Event() for _ in range(3)]

    async def work(number: int) -> None:
        began.append(number)
        try:
            await asyncio.Event().wait()
        finally:
            await gates[number].wait()
            ended.append(number)

    async with Timer() as timer:
        for number in range(3):
            timer.every(60, work, number).fire()
        await until(lambda: len(began) == 3)
        closing = asyncio.create_task(timer.aclose())
        for number in (1, 0, 2):
            for _ in range(10):
                await asyncio.sleep(0)
            assert not closing.done()
            gates[number].set()
        await closing

    assert ended == [1, 0, 2]


async def test_closing_cancels_a_coroutine_that_cleans_up_after_its_own_timeout() -> None:
    """A timeout also cancels the task; the coroutine would go on for ever after it."""
    cleaning = asyncio.Event()

    async def work() -> None:
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(0):
                    try:
                        await asyncio.Event().wait()
                    finally:
                        cleaning.set()
                        await asyncio.Event().wait()

    async with Timer() as timer:
        timer.every(60, work).fire()
        await cleaning.wait()


def test_coroutines_that_the_end_of_a_program_cancels_can_await_in_their_clean_up() -> None:
    """`asyncio.run` cancels them together with their task group."""
    ended: list[str] = []

    async def work(began: asyncio.Event) -> None:
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            ended.append("cleaned up")

    async def main() -> None:
        began = asyncio.Event()
        aiowheel.every(60, work, began).fire()
        await began.wait()

    asyncio.run(main())

    assert ended == ["cleaned up"]


@pytest.mark.both_loops
async def test_a_cancelled_close_ends_the_running_coroutines(until: Until) -> None:
    """A cancelled scope of anyio interrupts each `await` inside it, also the one of `aclose`."""
    ended: list[str] = []
    began: list[str] = []

    async def work() -> None:
        began.append("work")
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("cleaned up")

    timer = Timer()
    with anyio.CancelScope() as scope:
        async with timer:
            timer.every(0.001, work)
            await until(lambda: began)
            scope.cancel()

    await until(lambda: ended)
    assert timer.closed


@pytest.mark.both_loops
async def test_closing_before_a_coroutine_has_begun() -> None:
    """The coroutine never begins, and there is no warning about a missing await."""
    began: list[int] = []
    made: list[Periodic] = []

    async def work() -> None:
        began.append(1)

    async with Timer() as timer:
        made.append(timer.every(60, work))
        made[0].fire()  # the coroutine exists, its task group does not yet

    assert began == []
    assert made[0].cancelled()


@pytest.mark.both_loops
async def test_a_coroutine_may_close_its_own_timer(until: Until) -> None:
    """Closing cancels the coroutine at its await, and nothing hangs."""
    timer = Timer()

    async def close() -> None:
        await timer.aclose()

    await timer.__aenter__()
    handle = timer.every(0.001, close)
    await until(handle.cancelled)
    await timer.aclose()

    assert handle.runs == 1


@pytest.mark.both_loops
async def test_cancelling_lets_the_running_coroutine_end(until: Until) -> None:
    """`cancel` inside the coroutine does not interrupt it."""
    ended: list[int] = []

    async def once() -> None:
        assert handle.cancel()
        await asyncio.sleep(0)
        ended.append(1)

    async with Timer() as timer:
        handle = timer.every(0.001, once)
        await until(lambda: ended)
        assert len(timer) == 0

    assert handle.runs == 1


class OtherBaseException(BaseException):
    """A BaseException that is neither an Exception nor a way to end a program."""


@pytest.mark.both_loops
@pytest.mark.parametrize("error", [asyncio.CancelledError, GeneratorExit, OtherBaseException])
async def test_a_run_that_cancels_itself_affects_no_other_run(
    until: Until, error: type[BaseException]
) -> None:
    """Such a run may await a cancelled future; only other exceptions are reported."""
    contexts: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: contexts.append(context))
    release = asyncio.Event()
    ended: list[int] = []

    async def fail() -> None:
        await asyncio.sleep(0)
        raise error

    async def work() -> None:
        await release.wait()
        ended.append(1)

    async with Timer() as timer:
        steady = timer.every(0.001, work)
        await until(lambda: steady.runs)
        failing = timer.every(0.001, fail)
        await until(lambda: failing.runs >= 3)
        assert steady.runs == 1
        release.set()
        await until(lambda: ended)

    assert {type(context["exception"]) for context in contexts} == {error} - {
        asyncio.CancelledError
    }


@pytest.mark.both_loops
@pytest.mark.parametrize("in_its_function", [True, False])
async def test_cancelling_lets_a_due_run_begin(
    until: Until,
    in_its_function: bool,  # noqa: FBT001 - the parameter of the test
) -> None:
    """Cancelled between the function's return and the coroutine's first step; no run is lost."""
    ended: list[str] = []
    contexts: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: contexts.append(context))

    async def work(name: str) -> None:
        ended.append(name)

    def once() -> Awaitable[None]:
        if in_its_function:
            handle.cancel()
        return work("once")

    def again() -> Awaitable[None]:  # a plain function: the first run opens the task group
        handle.cancel()
        return work("again")

    async with Timer() as timer:
        handle = timer.every(60, once, first=0.001)
        other = timer.every(0.001, again)
        await until(lambda: other.runs >= 3)

        assert handle.runs == ended.count("once") == 1
        assert ended.count("again") >= other.runs - 1
    assert contexts == []


@pytest.mark.both_loops
@pytest.mark.skipif(sys.version_info < (3, 12), reason="eager tasks are new in Python 3.12")
async def test_runs_begin_at_once_where_tasks_are_eager(until: Until) -> None:
    """Several coroutines that wait for the task group begin while it starts them."""
    if sys.version_info >= (3, 12):  # for the type checker
        runs: list[int] = []

        async def work(number: int) -> None:
            runs.append(number)

        async with Timer() as timer:
            handles = [
                timer.every(60, lambda number=number: work(number))  # type: ignore[misc]
                for number in range(3)
            ]
            for handle in handles:
                handle.fire()
            # Not asyncio's own eager factory, which anyio detects and avoids.
            eager = functools.partial(asyncio.Task[Any], eager_start=True)
            asyncio.get_running_loop().set_task_factory(
                lambda loop, coro, **options: eager(coro, loop=loop, **options)
            )
            await until(lambda: len(runs) == 3)

            assert sorted(runs) == [0, 1, 2]
            assert not any(handle.cancelled() for handle in handles)
        asyncio.get_running_loop().set_task_factory(None)


class Sniffio:
    """What anyio uses of sniffio, which other packages install: it looks for a running task."""

    class AsyncLibraryNotFoundError(RuntimeError):
        """No task runs."""

    current_async_library_cvar: ContextVar[str | None] = ContextVar("library", default=None)

    def current_async_library(self) -> str:
        """Return the library of the running task."""
        if asyncio.current_task() is None:
            raise self.AsyncLibraryNotFoundError
        return "asyncio"


@pytest.mark.parametrize("is_shared", [True, False])
async def test_coroutines_start_beside_sniffio(
    until: Until,
    monkeypatch: pytest.MonkeyPatch,
    *,
    is_shared: bool,
) -> None:
    """The alarm of the shared timer runs in no task."""
    monkeypatch.setattr("anyio._core._eventloop.sniffio", Sniffio())
    runs = 0

    async def work() -> None:
        nonlocal runs
        runs += 1

    async with nullcontext(aiowheel) if is_shared else Timer() as timer:
        handle = timer.every(60, work, first=0)
        await until(lambda: runs)
        handle.cancel()


@pytest.mark.skipif(
    sys.version_info >= (3, 13, 3), reason="from Python 3.13.3 on, loops pass all options to it"
)
async def test_a_task_factory_may_have_only_the_two_old_parameters(until: Until) -> None:
    """The task group and the coroutines start without options; uvloop passes some anyway."""
    names: list[str] = []

    async def work() -> None:
        task = asyncio.current_task()
        names.extend(each.get_name() for each in asyncio.all_tasks() if each is not task)

    def make(loop: asyncio.AbstractEventLoop, coro: Any) -> asyncio.Task[Any]:
        return asyncio.Task(coro, loop=loop)

    loop = asyncio.get_running_loop()
    loop.set_task_factory(make)
    try:
        async with Timer() as timer:
            timer.every(60, work, first=0)
            await until(lambda: names)
    finally:
        loop.set_task_factory(None)

    assert "aiowheel-periodic" in names


async def test_a_task_group_that_cannot_start_leaves_no_call() -> None:
    """The error of the task factory reaches the caller, and no call is pending without a handle."""

    def refuse(*_: object, **__: object) -> asyncio.Task[Any]:
        raise RuntimeError("no more tasks")

    async def work() -> None:
        pass

    async with Timer() as timer:
        asyncio.get_running_loop().set_task_factory(refuse)
        try:
            with pytest.raises(RuntimeError, match="no more tasks"):
                timer.every(60, work)
        finally:
            asyncio.get_running_loop().set_task_factory(None)

        assert timer.statistics().pending == 0


async def test_a_refused_schedule_leaves_no_task() -> None:
    """No coroutine runs for a refused job."""

    async def work() -> None:
        pass

    async with Timer() as timer:
        before = asyncio.all_tasks()
        with pytest.raises(ValueError, match="period must be"):
            timer.every(0, work)

        assert asyncio.all_tasks() == before


@pytest.mark.both_loops
async def test_only_coroutine_functions_open_a_task_group_and_at_once() -> None:
    """The group is open before the first tick, and all coroutines share it."""

    async def work() -> None:
        pass

    def tasks() -> list[str]:
        return sorted(task.get_name() for task in asyncio.all_tasks() - {asyncio.current_task()})

    async with Timer() as timer:
        timer.every(60, nothing)
        assert tasks() == ["aiowheel-driver"]
        timer.every(60, work)
        timer.every(60, work)
        assert tasks() == ["aiowheel-driver", "aiowheel-periodic"]
    assert tasks() == []


@pytest.mark.both_loops
async def test_jobs_survive_the_death_of_the_driver(until: Until) -> None:
    """Cancelling the driver does not cancel the coroutines that it started."""
    release = asyncio.Event()
    ended: list[int] = []

    async def work() -> None:
        await release.wait()
        ended.append(1)

    async with Timer() as timer:
        handle = timer.every(0.001, work)
        await until(lambda: handle.runs)
        for task in asyncio.all_tasks():
            if task.get_name() == "aiowheel-driver":
                task.cancel()
        await asyncio.sleep(0)
        release.set()
        await until(lambda: len(ended) >= 3)


@pytest.mark.both_loops
async def test_jobs_start_again_when_their_task_group_was_killed(until: Until) -> None:
    """The running coroutines are lost, the schedule is not."""

    async def work() -> None:
        await asyncio.sleep(0)

    async with Timer() as timer:
        handle = timer.every(0.001, work)
        await until(lambda: handle.runs)
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()
        before = handle.runs
        await until(lambda: handle.runs >= before + 3)


@pytest.mark.realtime
@pytest.mark.parametrize("loops", ["asyncio", "uvloop"])
def test_an_interrupt_passes_through_a_coroutine(loops: str) -> None:
    """The interrupt leaves the loop; when the loop runs again, every schedule continues."""
    loop: asyncio.AbstractEventLoop = pytest.importorskip(loops).new_event_loop()
    contexts: list[dict[str, Any]] = []
    loop.set_exception_handler(lambda _, context: contexts.append(context))

    async def interrupt() -> None:
        raise KeyboardInterrupt

    async def work() -> None:
        await asyncio.sleep(0)

    jobs: list[Periodic] = []

    def begin() -> None:
        jobs.extend([timer.every(0.002, interrupt), timer.every(0.001, work)])

    timer = loop.run_until_complete(Timer().__aenter__())
    loop.call_soon(begin)
    for number in range(1, 4):
        with pytest.raises(KeyboardInterrupt):
            loop.run_forever()
        assert jobs[0].runs >= number  # uvloop finishes its iteration first
    bad, good = jobs
    bad.cancel(running=True)
    seen = good.runs

    async def end() -> None:
        while good.runs == seen:
            await timer.sleep(0.001)
        await timer.aclose()

    loop.run_until_complete(end())
    loop.close()

    assert contexts == []


def test_a_coroutine_that_is_closed_reports_nothing() -> None:
    """Python closes suspended coroutines that are dropped with their loop; that is no error."""
    loop = asyncio.new_event_loop()
    contexts: list[dict[str, Any]] = []
    loop.set_exception_handler(lambda _, context: contexts.append(context))
    suspended: list[asyncio.Task[Any]] = []

    async def work() -> None:
        suspended.append(cast("asyncio.Task[Any]", asyncio.current_task()))
        loop.stop()
        await asyncio.Event().wait()

    timer = loop.run_until_complete(Timer().__aenter__())
    loop.call_soon(functools.partial(timer.every, 1, work, first=0))
    loop.run_forever()
    (task,) = suspended
    coroutine = cast("Coroutine[object, object, object]", task.get_coro())
    with suppress(RuntimeError):  # anyio looks for the running loop
        coroutine.close()
    assert contexts == []

    task.cancel()
    loop.run_until_complete(timer.aclose())
    loop.close()


@pytest.mark.realtime
@pytest.mark.parametrize("loops", ["asyncio", "uvloop"])
def test_the_shared_timers_jobs_end_with_the_loop(loops: str) -> None:
    """`asyncio.run` cancels the jobs with all other tasks: no hang, no warning, clean-up done."""
    factory = pytest.importorskip(loops).new_event_loop
    began: set[str] = set()
    cleaned_up: list[int] = []
    jobs: list[Periodic] = []
    stopped: list[bool] = []

    async def work() -> None:
        try:
            began.add("work")
            await asyncio.Event().wait()
        finally:
            cleaned_up.append(1)

    async def quick() -> None:
        began.add("quick")
        await asyncio.sleep(0)

    async def linger() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0.005)  # the shared timer still runs
            stopped.append(jobs[0].cancelled())

    async def main(lingering: set[asyncio.Task[None]]) -> None:
        jobs.append(aiowheel.every(0.001, work))
        aiowheel.every(0.001, quick)
        lingering.add(asyncio.ensure_future(linger()))
        while len(began) < 2:  # noqa: ASYNC110 - pytest's timeout is the bound
            await asyncio.sleep(0.01)

    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(main(set()))

    assert cleaned_up == [1]
    assert stopped == [True]


def test_a_tick_of_the_shared_timer_after_its_jobs_were_cancelled(
    clock_loop: asyncio.SelectorEventLoop,
) -> None:
    """`asyncio.run` cancels their task; a later tick ends its schedule and starts no coroutine."""
    began: list[int] = []

    async def work() -> None:
        began.append(1)

    async def main() -> Periodic:
        handle = aiowheel.every(1, work)
        await asyncio.sleep(0)
        (jobs,) = (task for task in asyncio.all_tasks() if task.get_name() == "aiowheel-periodic")
        jobs.cancel()
        await asyncio.sleep(3)
        return handle

    handle = clock_loop.run_until_complete(main())

    assert (handle.runs, began) == (1, [])
    assert handle.cancelled()


# --- cancelling the run under way -----------------------------------------------------------


@pytest.mark.both_loops
async def test_cancelling_the_run_under_way() -> None:
    """The coroutine receives the cancellation; no other call is affected."""
    ended: list[str] = []
    entered = asyncio.Event()

    async def work(name: str) -> None:
        entered.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(name)

    async with Timer() as timer:
        first = timer.every(60, work, "first", first=0)
        timer.every(60, work, "second", first=0)
        await entered.wait()
        await asyncio.sleep(0)

        assert first.cancel(running=True)
        assert not first.cancel(running=True)
        await asyncio.sleep(0)
        assert ended == ["first"]
        assert first.cancelled()
        assert len(timer) == 0

    assert ended == ["first", "second"]


@pytest.mark.both_loops
async def test_cancelling_the_run_later_than_the_schedule(until: Until) -> None:
    """The schedule was cancelled before; the run that was still active ends."""
    ended: list[int] = []
    entered = asyncio.Event()

    async def work() -> None:
        entered.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(1)

    async with Timer() as timer:
        handle = timer.every(60, work, first=0)
        await entered.wait()
        assert handle.cancel()
        await asyncio.sleep(0)
        assert ended == []

        assert not handle.cancel(running=True)
        await until(lambda: ended)


@pytest.mark.both_loops
async def test_a_run_that_has_not_begun_never_begins() -> None:
    """Cancelled in the turn of its tick, the coroutine is closed without starting."""
    begun: list[int] = []

    async def work() -> None:
        begun.append(1)

    timer = ManualTimer()
    handle = timer.every(1, work)
    timer.advance(1)
    assert handle.runs == 1

    assert handle.cancel(running=True)
    for _ in range(5):
        await asyncio.sleep(0)

    assert begun == []
    await timer.aclose()


@pytest.mark.both_loops
async def test_a_run_cancels_itself(until: Until) -> None:
    """The run ends at its next await, and the timer's other calls continue."""
    trace: list[str] = []
    handles: list[Periodic] = []

    async def work() -> None:
        trace.append(str(handles[0].cancel(running=True)))
        try:
            await asyncio.sleep(0)
            trace.append("went on")
        finally:
            trace.append("ended")

    async with Timer() as timer:
        other = timer.every(0.001, lambda: None)
        handles.append(timer.every(60, work, first=0))
        await until(lambda: len(trace) == 2)
        runs = other.runs
        await until(lambda: other.runs > runs)

    assert trace == ["True", "ended"]
    assert handles[0].runs == 1


def test_a_plain_function_cancels_itself() -> None:
    """`running=True` has no further effect for a plain function."""
    timer = ManualTimer()
    answers: list[bool] = []
    handle: Periodic = timer.every(1, lambda: answers.append(handle.cancel(running=True)))

    timer.advance(5)

    assert answers == [True]
    assert handle.runs == 1
    assert len(timer) == 0


@pytest.mark.parametrize("loops", ["asyncio", "uvloop"])
def test_another_thread_cannot_cancel_a_schedule(loops: str) -> None:
    """The call raises, and schedule and run continue; if the loop does not run, it succeeds."""
    loop: asyncio.AbstractEventLoop = pytest.importorskip(loops).new_event_loop()

    async def begin() -> tuple[Timer, Periodic]:
        timer = await Timer().__aenter__()
        return timer, timer.every(60, print)

    async def refused(handle: Periodic) -> None:
        for running in (False, True):
            with pytest.raises(ForeignLoopError, match="thread"):
                await asyncio.to_thread(handle.cancel, running=running)
        assert not handle.cancelled()

    timer, handle = loop.run_until_complete(begin())
    loop.run_until_complete(refused(handle))
    assert len(timer) == 1

    assert handle.cancel()
    assert len(timer) == 0
    loop.run_until_complete(timer.aclose())
    loop.close()


def test_a_task_group_that_cannot_be_opened_is_reported(
    clock_loop: asyncio.SelectorEventLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each tick that is lost is reported; a later tick runs once the group can be opened."""
    reported: list[dict[str, Any]] = []
    ran: list[int] = []

    async def note() -> None:
        ran.append(ms(clock_loop.time()))

    async def main() -> None:
        clock_loop.set_exception_handler(lambda _, context: reported.append(context))
        async with Timer() as timer:
            monkeypatch.setitem(sys.modules, "anyio", None)
            periodic = timer.every(1, note)
            await timer.sleep(2.5)
            monkeypatch.undo()
            await timer.sleep(1)
            assert periodic.runs == 3

    clock_loop.run_until_complete(main())

    assert len(ran) == 1
    assert len(reported) == 3  # one for the attempt before the first tick
    for context in reported:
        assert context["message"] == "Exception in the task group of periodic calls"
        assert isinstance(context["exception"], ImportError)


def test_a_manual_timer_awaits_the_calls_of_each_loop_in_turn() -> None:
    """It belongs to no loop, so a test may use it in several."""
    timer = ManualTimer()
    ended: list[int] = []

    async def work() -> None:
        await asyncio.sleep(0)
        ended.append(len(ended))

    async def advance() -> None:
        timer.advance(1)
        await asyncio.sleep(0.1)

    timer.every(1, work)
    for number in range(3):
        with asyncio.Runner(loop_factory=VirtualClockEventLoop) as runner:
            runner.run(advance())

        assert ended == list(range(number + 1))


async def test_an_error_after_the_call_was_cancelled_is_reported_as_such(until: Until) -> None:
    """The function is dropped with the cancellation."""
    contexts: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: contexts.append(context))

    async def work() -> None:
        call.cancel()
        raise ConnectionError("lost")

    async with Timer() as timer:
        call = timer.every(0.001, work)
        await until(lambda: contexts)

    (context,) = contexts
    assert context["message"] == "Exception in periodic call that was cancelled"
