"""Unusual uses of a timer: other threads, interrupts, the collector, wrong callbacks."""

import asyncio
import copy
import functools
import gc
import pickle
import sys
import warnings
from collections.abc import AsyncIterator, Callable, Iterator
from contextvars import Context, ContextVar
from threading import Event, Thread
from typing import Any

import pytest

import aiowheel
from aiowheel import ForeignLoopError, ManualTimer, Timer, TimerClosedError, TimingWheel
from aiowheel.testing import VirtualClockEventLoop

LoopFactory = Callable[[], asyncio.AbstractEventLoop]


@pytest.fixture(params=["asyncio", "uvloop"])
def loop(request: pytest.FixtureRequest) -> Iterator[asyncio.AbstractEventLoop]:
    """A loop that a test runs in pieces."""
    factory: LoopFactory = pytest.importorskip(request.param).new_event_loop
    made = factory()
    yield made
    if not made.is_closed():
        made.close()


# --- where calls come from ------------------------------------------------------------------


def nothing() -> None:
    """Do nothing."""


@pytest.mark.both_loops
async def test_another_thread_changes_nothing() -> None:
    """Every call that arms, moves or cancels raises there; pending timers and counts stay."""
    async with Timer() as timer:
        handle = timer.call_later(60, nothing)
        periodic = timer.every(60, nothing)
        async with timer.timeout(60) as bound:
            when = handle.when(), periodic.next_when(), bound.when()
            before = timer.statistics()
            calls: list[Callable[[], object]] = [
                handle.cancel,
                handle.touch,
                lambda: handle.reschedule(1),
                periodic.cancel,
                lambda: periodic.cancel(running=True),
                lambda: bound.reschedule(1),
                lambda: bound.reschedule(None),
                lambda: timer.call_later(1, nothing),
                lambda: timer.call_at(1, nothing),
                lambda: timer.every(1, nothing),
                lambda: timer.interval(1),
                lambda: timer.sleep(1),
                lambda: timer.timeout(1),
                lambda: timer.timeout_at(1),
                lambda: timer.move_on_after(1),
                lambda: timer.move_on_at(1),
            ]
            for call in calls:
                with pytest.raises(ForeignLoopError, match="thread"):
                    await asyncio.to_thread(call)
            assert (handle.when(), periodic.next_when(), bound.when()) == when
            assert not handle.cancelled()
            assert not periodic.cancelled()
            after = timer.statistics()
        assert (after.pending, after.scheduled, after.cancelled, after.rescheduled) == (
            before.pending,
            before.scheduled,
            before.cancelled,
            before.rescheduled,
        )
        assert len(timer) == 2
        assert handle.cancel()
        assert periodic.cancel()
        assert len(timer) == 0


def test_the_check_of_the_thread_ends_with_the_run_of_the_loop(
    loop: asyncio.AbstractEventLoop,
) -> None:
    """A call after `run_until_complete` raises at once, because no alarm would arrive."""

    async def begin() -> Timer:
        timer = await Timer().__aenter__()
        timer.call_later(60, nothing)
        return timer

    timer = loop.run_until_complete(begin())
    handle = loop.run_until_complete(call_later(timer))
    for call in (
        lambda: timer.call_later(1, nothing),
        lambda: timer.call_at(1, nothing),
        lambda: timer.timeout(1),
        handle.touch,
    ):
        with pytest.raises(ForeignLoopError):
            call()
    assert len(timer) == 2
    assert handle.cancel()  # changes only the wheel
    loop.run_until_complete(timer.aclose())


async def call_later(timer: Timer) -> aiowheel.TimerHandle:
    """Arm a timer on the running loop."""
    return timer.call_later(60, nothing)


def test_a_loop_that_moved_to_another_thread(loop: asyncio.AbstractEventLoop) -> None:
    """The thread that ran the loop before is refused like any other thread."""
    started = Event()

    async def begin() -> tuple[Timer, aiowheel.TimerHandle]:
        timer = await Timer().__aenter__()
        return timer, timer.call_later(60, nothing)

    timer, handle = loop.run_until_complete(begin())

    def run() -> None:
        timer_ran = loop.create_future()

        async def fire_once() -> None:
            timer.call_later(0, timer_ran.set_result, None)
            await timer_ran

        loop.run_until_complete(fire_once())
        loop.call_soon(started.set)
        loop.run_forever()

    thread = Thread(target=run)
    thread.start()
    started.wait()
    try:
        for call in (lambda: timer.call_later(1, nothing), handle.touch, handle.cancel):
            with pytest.raises(ForeignLoopError):
                call()
        assert len(timer) == 1
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
    loop.run_until_complete(timer.aclose())


def test_a_loop_that_moved_to_another_thread_and_ran_no_timer_there() -> None:
    """On asyncio's loops the thread that ran the loop before is refused from the first moment."""
    loop = asyncio.SelectorEventLoop()
    started = Event()

    async def begin() -> tuple[Timer, aiowheel.TimerHandle, aiowheel.Periodic]:
        timer = await Timer().__aenter__()
        return timer, timer.call_later(60, nothing), timer.every(60, nothing)

    timer, handle, periodic = loop.run_until_complete(begin())
    loop.call_soon(started.set)
    thread = Thread(target=loop.run_forever)
    thread.start()
    started.wait()
    try:
        for call in (handle.cancel, periodic.cancel):
            with pytest.raises(ForeignLoopError):
                call()
        assert len(timer) == 2
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
    assert handle.cancel()  # the loop does not run
    loop.run_until_complete(timer.aclose())
    loop.close()


# --- context of calls from threads ----------------------------------------------------------


@pytest.mark.both_loops
async def test_the_context_of_a_call_from_a_thread() -> None:
    """The given context is used; a wrong type raises in the calling thread."""
    variable: ContextVar[str] = ContextVar("variable", default="unset")
    context = Context()
    context.run(variable.set, "given")
    seen: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    async with Timer() as timer:

        def arm_from_thread() -> None:
            timer.call_later_threadsafe(0, lambda: seen.set_result(variable.get()), context=context)

        await asyncio.to_thread(arm_from_thread)
        assert await seen == "given"
        with pytest.raises(TypeError, match=r"context must be a contextvars\.Context or None"):
            timer.call_later_threadsafe(0, nothing, context={})  # type: ignore[arg-type]


def test_the_context_of_a_call_to_a_manual_timer() -> None:
    """A manual timer treats `context=` alike."""
    variable: ContextVar[str] = ContextVar("variable", default="unset")
    context = Context()
    context.run(variable.set, "given")
    seen: list[str] = []
    timer = ManualTimer()

    timer.call_later_threadsafe(1, lambda: seen.append(variable.get()), context=context)
    timer.advance(1)

    assert seen == ["given"]


# --- idle, closed, unbounded ----------------------------------------------------------------


@pytest.mark.both_loops
async def test_an_idle_timer_is_true_and_reports_whether_it_is_closed() -> None:
    """A timer is true before, while and after it is open, so that `timer or default` keeps it."""
    timer = Timer()
    assert timer
    assert not timer.closed
    async with timer:
        assert timer
        assert len(timer) == 0
        assert not timer.closed
    assert timer
    assert timer.closed
    assert ManualTimer()
    assert aiowheel.current_timer()
    assert not aiowheel.current_timer().closed


@pytest.mark.skipif(aiowheel.accelerated, reason="a compiled class has no interpreted subclass")
async def test_a_subclass_that_does_not_call_super_init() -> None:
    """Every use raises an error that names the missing call, and the timer counts as new."""

    class Forgetful(Timer):
        def __init__(self) -> None:
            pass

    timer = Forgetful()
    assert repr(timer) == "<Forgetful tick=0.0 new>"
    assert (len(timer), timer.closed) == (0, False)
    error = r"^Forgetful.__init__ must call super\(\).__init__\(\)$"
    with pytest.raises(RuntimeError, match=error):
        timer.call_later(1, nothing)
    with pytest.raises(RuntimeError, match=error):
        await timer.__aenter__()
    await timer.aclose()


@pytest.mark.virtual_time
@pytest.mark.parametrize(("delay", "cascaded"), [(0.256, 0), (0.257, 1)])
async def test_a_level_has_256_buckets_by_default(delay: float, cascaded: int) -> None:
    """The second block of ticks begins at 256 ms; a later deadline in it cascades then."""
    manual = ManualTimer()
    manual.call_later(0.1, nothing)
    manual.call_later(delay, nothing)
    manual.advance(1)
    async with Timer() as timer:
        timer.call_later(0.1, nothing)
        await timer.sleep(delay)

        assert timer.statistics().cascaded == cascaded
    assert manual.statistics().cascaded == cascaded


@pytest.mark.both_loops
async def test_none_means_no_timeout_everywhere() -> None:
    """None means no timeout for a timer and the module, relative and absolute."""
    async with Timer() as own:
        for maker in (own, aiowheel):
            blocks: list[aiowheel.Timeout] = [
                maker.timeout(None),
                maker.timeout_at(None),
                maker.move_on_after(None),
                maker.move_on_at(None),
            ]
            for block in blocks:
                async with block:
                    assert block.when() is None
                    await asyncio.sleep(0)
                assert not block.expired()
            assert await maker.wait_for(asyncio.sleep(0, 1), None) == 1
            assert await maker.wait_for(asyncio.sleep(0, 2), timeout=None) == 2
        assert own.statistics().scheduled == 0


@pytest.mark.both_loops
async def test_sleep_returns_none_or_its_result() -> None:
    """`sleep` returns what its overloads say: a task of `sleep(0)` is a task of None."""
    async with Timer() as timer:
        nothing_back: asyncio.Task[None] = asyncio.create_task(timer.sleep(0))
        number_back: asyncio.Task[int] = asyncio.create_task(timer.sleep(0, 7))
        shared: asyncio.Task[None] = asyncio.create_task(aiowheel.sleep(0))
        text_back: asyncio.Task[str] = asyncio.create_task(aiowheel.sleep(0, result="done"))

        results = await asyncio.gather(nothing_back, number_back, shared, text_back)
        assert list(results) == [None, 7, None, "done"]


@pytest.mark.both_loops
async def test_the_shared_timer_cannot_be_closed_by_one_of_its_users() -> None:
    """`aclose` and `async with` raise; the pending callbacks of other users stay."""
    timer = aiowheel.current_timer()
    handle = timer.call_later(60, nothing)

    with pytest.raises(RuntimeError, match=r"make one: `async with Timer\(\)`"):
        await timer.aclose()
    with pytest.raises(RuntimeError, match=r"make one: `async with Timer\(\)`"):
        async with timer:
            raise AssertionError

    assert not timer.closed
    assert not handle.cancelled()
    assert handle.cancel()


# --- the collector --------------------------------------------------------------------------


@pytest.mark.parametrize("action", ["error", "always"])
def test_dropping_a_timer_wakes_its_sleepers(
    loop: asyncio.AbstractEventLoop, action: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The timer is closed before it warns, so this holds also where warnings are errors."""
    unraisable: list[Any] = []

    def report(args: "sys.UnraisableHookArgs") -> None:
        unraisable.append(args.exc_value)

    monkeypatch.setattr(sys, "unraisablehook", report)

    async def main() -> None:
        timer: Timer | None = await Timer().__aenter__()
        assert timer is not None
        sleeper = asyncio.ensure_future(timer.sleep(60))
        handle = timer.call_later(60, nothing)
        await asyncio.sleep(0)
        timer = None
        gc.collect()
        with pytest.raises(TimerClosedError):
            await sleeper
        assert handle.cancelled()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert asyncio.all_tasks() == {asyncio.current_task()}

    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter(action, ResourceWarning)  # type: ignore[arg-type]
        loop.run_until_complete(main())

    found = [str(error) for error in unraisable] + [str(warning.message) for warning in warned]
    assert len(found) == 1
    assert found[0].startswith("unclosed <Timer tick=0.001 pending=2>")


@pytest.mark.both_loops
@pytest.mark.realtime
@pytest.mark.parametrize("debug", [False, True])
async def test_dropping_a_timer_in_another_thread_wakes_its_sleepers(debug: bool) -> None:  # noqa: FBT001
    """The collector runs finalizers in any thread; tasks and alarms belong to that of the loop."""
    loop = asyncio.get_running_loop()
    loop.set_debug(debug)
    timers = [Timer()]
    await timers[0].__aenter__()
    sleepers = [asyncio.create_task(timers[0].sleep(delay)) for delay in (30, 60)]
    handle = timers[0].call_later(30, nothing)
    await asyncio.sleep(0)

    with pytest.warns(ResourceWarning, match="unclosed"):
        await asyncio.to_thread(timers.clear)
    await asyncio.wait(sleepers, timeout=5)

    assert handle.cancelled()
    for sleeper in sleepers:
        with pytest.raises(TimerClosedError):
            sleeper.result()


# --- Ctrl-C while an alarm is set -----------------------------------------------------------


class Interrupted(VirtualClockEventLoop):
    """A loop that raises KeyboardInterrupt on request in `call_at`: before or after arming."""

    interrupt = ""

    def __init__(self) -> None:
        super().__init__()
        call_at = self.call_at

        def interrupted(*args: Any, **options: Any) -> asyncio.TimerHandle:
            when, self.interrupt = self.interrupt, ""
            if when == "before":
                raise KeyboardInterrupt
            handle = call_at(*args, **options)
            if when == "after":
                raise KeyboardInterrupt
            return handle

        self.call_at = interrupted  # type: ignore[method-assign, assignment]


@pytest.fixture
def interrupted() -> Iterator[Interrupted]:
    """A loop whose next `call_at` can be made to raise KeyboardInterrupt."""
    made = Interrupted()
    yield made
    made.close()


def test_an_interrupted_call_delays_no_other(interrupted: Interrupted) -> None:
    """Arming and moving fail; pending timers and the timer to be moved fire in time."""
    fired: list[tuple[str, float]] = []
    start = interrupted.time()

    def note(name: str) -> None:
        fired.append((name, round(interrupted.time() - start, 2)))

    async def main(when: str) -> None:
        fired.clear()
        timer = aiowheel.current_timer()
        begin = round(interrupted.time() - start, 2)
        aiowheel.call_later(0.5, note, "waits")
        moved = aiowheel.call_later(2, note, "moved")
        for call in (
            lambda: aiowheel.call_later(0.1, note, "never armed"),
            lambda: moved.reschedule(timer.time() + 0.1),
            lambda: moved.touch(0.2),
        ):
            interrupted.interrupt = when
            with pytest.raises(KeyboardInterrupt):
                call()
        assert moved.when() == pytest.approx(start + begin + 2)
        aiowheel.call_later(1, note, "armed later")
        async with timer.timeout(3) as bound:
            interrupted.interrupt = when
            with pytest.raises(KeyboardInterrupt):
                bound.reschedule(timer.time() + 0.1)
            assert bound.when() == pytest.approx(start + begin + 3)
            await timer.sleep(2.5)
        assert fired == [
            ("waits", begin + 0.5),
            ("armed later", begin + 1),
            ("moved", begin + 2),
        ]

    for when in ("before", "after"):
        interrupted.run_until_complete(main(when))


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("shared", [False, True], ids=["timer", "shared"])
def test_an_interrupt_after_a_slice_delays_nothing(
    interrupted: Interrupted,
    when: str,
    shared: bool,  # noqa: FBT001
) -> None:
    """The alarm for 0.1 s is set nevertheless, and does not wait for the next call at 1.0 s."""
    fired: list[tuple[str, float]] = []
    start = interrupted.time()

    def note(name: str) -> None:
        fired.append((name, round(interrupted.time() - start, 2)))

    async def begin() -> Timer:
        timer = aiowheel.current_timer() if shared else await Timer().__aenter__()
        timer.call_later(0.05, setattr, interrupted, "interrupt", when)
        timer.call_later(0.1, note, "first")
        timer.call_later(0.2, note, "second")
        return timer

    timer = interrupted.run_until_complete(begin())
    with pytest.raises(KeyboardInterrupt):
        interrupted.run_forever()

    async def end() -> None:
        timer.call_later(1.0, note, "armed later")
        await timer.sleep(1.5)
        if not shared:
            await timer.aclose()

    interrupted.run_until_complete(end())

    assert [name for name, _ in fired] == ["first", "second", "armed later"]
    assert [time for _, time in fired[:2]] == [0.1, 0.2]


# --- delay 0 --------------------------------------------------------------------------------


@pytest.mark.parametrize("delay", [0, -1])
def test_delay_0_never_runs_inside_the_call(loop: asyncio.AbstractEventLoop, delay: float) -> None:
    """A Timer runs it in a later turn, a ManualTimer in `advance`, also by 0 seconds."""
    manual = ManualTimer()
    fired: list[str] = []
    manual.call_later(delay, lambda: manual.call_later(delay, fired.append, "second"))
    assert fired == []
    assert manual.advance(0) == 2
    assert fired == ["second"]

    async def main() -> None:
        fired.clear()
        async with Timer() as timer:
            timer.call_later(delay, lambda: timer.call_later(delay, fired.append, "second"))
            assert fired == []
            while not fired:  # noqa: ASYNC110 - one turn at a time
                await asyncio.sleep(0)
        assert fired == ["second"]

    loop.run_until_complete(main())


# --- callbacks that would never be awaited --------------------------------------------------


async def coroutine_function(*args: object) -> None:
    """A coroutine function, which a timer would never await."""


async def generator_function() -> AsyncIterator[int]:
    """An asynchronous generator, which a timer would never iterate."""
    yield 1


class AsyncCall:
    """A class whose instances are coroutine functions."""

    async def __call__(self) -> None:
        """Do nothing."""

    async def method(self) -> None:
        """Do nothing."""


COROUTINES: dict[str, Callable[..., Any]] = {
    "function": coroutine_function,
    "partial": functools.partial(coroutine_function, 1),
    "partial of a partial": functools.partial(functools.partial(coroutine_function, 1), 2),
    "instance": AsyncCall(),
    "method": AsyncCall().method,
    "asynchronous generator": generator_function,
}


@pytest.mark.both_loops
@pytest.mark.parametrize("function", COROUTINES.values(), ids=COROUTINES)
async def test_a_coroutine_function_is_no_callback(function: Callable[..., Any]) -> None:
    """The call raises an error that names the alternative, and arms nothing."""
    text = r"callback must be a plain function, got the coroutine function .*; .*create_task\("
    async with Timer() as timer:
        for call in (timer.call_later, timer.call_at, timer.call_later_threadsafe):
            with pytest.raises(TypeError, match=text):
                call(1, function)
        assert len(timer) == 0
        assert timer.statistics().scheduled == 0
    for call in (aiowheel.call_later, aiowheel.call_at, ManualTimer().call_later_threadsafe):
        with pytest.raises(TypeError, match=text):
            call(1, function)


@pytest.mark.both_loops
async def test_a_class_with_an_async_call_is_a_plain_callback() -> None:
    """Calling the class creates an instance, not a coroutine."""
    timer = ManualTimer()
    timer.call_later(1, AsyncCall)

    assert timer.advance(1) == 1


@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy, pickle.dumps])
def test_a_timer_cannot_be_copied(duplicate: Callable[[object], object]) -> None:
    """A copy would close the driver of the original; the original still fires."""
    timer = ManualTimer()
    got: list[int] = []
    timer.call_later(1, got.append, 1)

    with pytest.raises(TypeError, match="ManualTimer cannot be copied or pickled"):
        duplicate(timer)
    timer.advance(1)

    assert got == [1]


HUGE = 10**5000
WITH_HUGE: list[Callable[[], object]] = [
    lambda: TimingWheel().schedule(HUGE),
    lambda: TimingWheel().advance(-HUGE),
    lambda: ManualTimer().every(-HUGE, print),
    lambda: ManualTimer().every(1, print, jitter=HUGE),
    lambda: ManualTimer().statistics().lateness.quantile(HUGE),
]


@pytest.mark.parametrize("call", WITH_HUGE)
def test_an_integer_that_cannot_be_shown_is_refused_by_name(call: Callable[[], object]) -> None:
    """Python makes no text of more than 4300 digits, not even for an error."""
    with pytest.raises((ValueError, OverflowError), match=r"^\w+ must be .*<int object at "):
        call()
