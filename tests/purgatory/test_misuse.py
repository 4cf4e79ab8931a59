"""Misuse: other threads, coroutines as callbacks, failing loggers, Ctrl-C, wrong arguments."""

import asyncio
import copy
import functools
import gc
import logging
import pickle
import re
import warnings
from collections.abc import AsyncIterator, Callable, Iterator, MutableMapping
from typing import Any, cast

import pytest
import structlog

import aiowheel._events
from aiowheel import (
    DelayedOperation,
    ForeignLoopError,
    ManualTimer,
    Outcome,
    Purgatory,
    Timer,
)
from aiowheel.abc import FinishedOperation, Instrument

from .conftest import Gate

both_loops = pytest.mark.both_loops


def watched(purgatory: Purgatory, *keys: object) -> Gate:
    """Return a new gate that waits for *keys*."""
    gate = Gate()
    assert not purgatory.try_complete_else_watch(gate, keys)
    return gate


def interrupt() -> None:
    """Raise KeyboardInterrupt, as Ctrl-C does."""
    raise KeyboardInterrupt


def watched_by_an_interrupted_check(purgatory: Purgatory) -> Gate:
    """Return an open gate on "b"; a check of "a" checks "b" inside and is then interrupted."""
    first, other = watched(purgatory, "a"), watched(purgatory, "b")
    first.open = other.open = True

    def nested() -> None:
        purgatory.check_and_complete("b")
        interrupt()

    first.then = nested
    return other


# --- other threads -------------------------------------------------------------------------------


@both_loops
async def test_calls_from_a_thread_are_refused_and_change_nothing(running: Purgatory) -> None:
    """Each call that changes something raises ForeignLoopError, also those of the operation."""
    gate = watched(running, "k")
    until = running.wait_until({"c": 5}, None)
    running.advance("c", 3)
    calls: list[Callable[[], object]] = [
        gate.force_complete,
        gate.cancel,
        lambda: running.forget("c"),
        lambda: running.advance("c", 5),
        lambda: running.check_and_complete("k"),
        lambda: running.check_and_complete("k", budget=1),
        lambda: running.cancel_for_key("k"),
        lambda: asyncio.run(running.aclose()),
    ]

    for call in calls:
        with pytest.raises(ForeignLoopError, match="belongs to"):
            await asyncio.to_thread(call)

    assert gate.outcome is Outcome.PENDING
    assert (len(running), running.value("c"), running.closed) == (2, 3, False)
    running.advance("c", 5)
    assert await until


@both_loops
async def test_another_loop_of_the_same_thread_is_refused(running: Purgatory) -> None:
    """Calls on the operation itself raise as well."""
    gate = watched(running, "k")

    async def call(method: Callable[[], object]) -> None:
        method()

    for method in (gate.force_complete, gate.cancel):
        with pytest.raises(ForeignLoopError):
            await asyncio.to_thread(asyncio.run, call(method))
    assert gate.force_complete()


async def test_an_operation_that_was_never_watched_belongs_to_no_loop() -> None:
    """Another thread may end it."""
    assert await asyncio.to_thread(Gate().cancel)
    assert await asyncio.to_thread(Gate().force_complete)


@both_loops
async def test_force_complete_threadsafe_wakes_the_loop(running: Purgatory) -> None:
    """The awaiting task resumes although the loop sleeps; a second call does nothing."""
    gate = Gate()
    waiting = running.watch(gate, ["k"])

    def force() -> None:
        gate.force_complete_threadsafe()
        gate.force_complete_threadsafe()

    await asyncio.to_thread(force)

    assert await asyncio.wait_for(waiting, 10) == "COMPLETED"
    gate.force_complete_threadsafe()


def test_forces_from_threads_share_a_wake_up() -> None:
    """A thousand calls while the loop is busy wake it once and keep the order of all calls."""
    wakeups = 0

    class Counting(asyncio.SelectorEventLoop):
        def call_soon_threadsafe(  # type: ignore[override]
            self, *args: Any, **options: Any
        ) -> asyncio.Handle:
            nonlocal wakeups
            wakeups += 1
            return super().call_soon_threadsafe(*args, **options)

    async def main() -> int:
        async with Timer() as timer, Purgatory(timer=timer) as purgatory:
            gates = [Gate() for _ in range(1000)]
            waiting = [purgatory.watch(gate, ["k"]) for gate in gates]
            before = wakeups
            for gate in gates:
                gate.force_complete_threadsafe()
            assert not gates[0].is_completed()
            assert set(await asyncio.gather(*waiting)) == {"COMPLETED"}
            return wakeups - before

    with asyncio.Runner(loop_factory=Counting) as runner:
        assert runner.run(main()) == 1


async def test_force_complete_threadsafe_names_what_it_needs(running: Purgatory) -> None:
    """The error says that it needs a watched operation and a loop."""
    with pytest.raises(RuntimeError, match=r"operation must be watched first, got <Gate pending"):
        Gate().force_complete_threadsafe()
    with pytest.raises(ValueError, match="must have a loop for calls from threads"):
        watched(Purgatory(timer=ManualTimer()), "k").force_complete_threadsafe()


def test_force_complete_threadsafe_after_the_end_does_nothing() -> None:
    """The loop was closed, which ended the operation."""

    async def main() -> Gate:
        return watched(Purgatory(), "k")

    gate = asyncio.run(main())

    gate.force_complete_threadsafe()

    assert gate.outcome is Outcome.CANCELLED


# --- coroutines where plain functions are expected -----------------------------------------------


class AsyncCondition(DelayedOperation[None]):
    """Wrong: the condition is a coroutine function."""

    async def try_complete(self) -> bool:  # type: ignore[override]
        """Return True; the returned coroutine object would always be true."""
        return False


class AsyncCompletion(Gate):
    """Wrong: on_complete is a coroutine function."""

    async def on_complete(self) -> str:  # type: ignore[override]
        """Never run."""
        return ""


class AsyncExpiration(Gate):
    """Wrong: on_expiration is a coroutine function."""

    async def on_expiration(self) -> None:  # type: ignore[override]
        """Never run."""


class Inheriting(AsyncCompletion):
    """Wrong by inheritance."""


class Corrected(AsyncCompletion):
    """Right again: a plain function overrides the coroutine function."""

    def on_complete(self) -> str:  # type: ignore[override]
        """Return the outcome in a plain function."""
        return "plain"


@pytest.mark.parametrize(
    ("kind", "method"),
    [
        (AsyncCondition, "try_complete"),
        (AsyncCompletion, "on_complete"),
        (AsyncExpiration, "on_expiration"),
        (Inheriting, "on_complete"),
    ],
)
async def test_coroutine_functions_are_refused_when_watched(
    running: Purgatory, kind: type[DelayedOperation[Any]], method: str
) -> None:
    """Every call names the class, the method and the alternative, and registers nothing."""
    text = rf"{kind.__name__}\.{method} must be a plain function, got a coroutine .*start a task"
    for way in (running.watch, running.try_complete_else_watch):
        with pytest.raises(TypeError, match=text):
            way(kind(5), ["k"])
    assert (len(running), running.watched) == (0, 0)


async def test_a_subclass_may_correct_its_base(running: Purgatory) -> None:
    """The check looks at the methods of the class itself."""
    mended = Corrected()
    mended.open = True
    assert await running.watch(mended, ["k"]) == "plain"


@pytest.mark.parametrize("method", ["try_complete", "on_complete", "on_expiration"])
async def test_a_plain_function_that_returns_a_coroutine_fails_the_operation(
    running: Purgatory, method: str
) -> None:
    """The coroutine is closed, so that there is no later warning about it."""

    async def answer() -> bool:
        return True

    def returns_a_coroutine(_: Gate) -> object:
        return answer()

    kind = type("Sly", (Gate,), {method: returns_a_coroutine})
    operation = cast(Gate, kind())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        waiting = running.watch(operation, ["k"])
        if method == "on_complete":
            operation.force_complete()
        elif method == "on_expiration":
            await running.aclose()
        with pytest.raises(TypeError, match="must be a plain function"):
            await waiting
        gc.collect()
    assert operation.outcome is Outcome.FAILED


async def _asynchronous() -> bool:
    return True


async def _generating() -> AsyncIterator[bool]:
    yield False


class Callable_:  # noqa: N801 - it is callable
    """An object whose call is a coroutine function."""

    async def __call__(self) -> bool:
        """Return True; the returned coroutine object would always be true."""
        return False


@pytest.mark.parametrize(
    "predicate",
    [_asynchronous, Callable_().__call__, Callable_(), functools.partial(_asynchronous)],
)
async def test_wait_for_refuses_a_coroutine_function(running: Purgatory, predicate: Any) -> None:
    """The call raises, also if the coroutine function is wrapped."""
    with pytest.raises(TypeError, match="predicate must be a plain function, got the coroutine"):
        running.wait_for(predicate, ["k"], 30)
    assert len(running) == 0


@pytest.mark.parametrize("make", [_asynchronous, _generating, asyncio.Event().wait, asyncio.Future])
async def test_wait_for_never_awaits_the_result_of_a_predicate(
    running: Purgatory, make: Callable[[], Any]
) -> None:
    """A lambda around a coroutine function fails, because an awaitable would always be true."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        waiting = running.wait_for(lambda: make(), ["k"], 30)  # noqa: PLW0108
        with pytest.raises(TypeError, match="got an awaitable"):
            await waiting


async def test_wait_for_needs_something_to_call(running: Purgatory) -> None:
    """The error text has the value."""
    with pytest.raises(TypeError, match="predicate must be a plain function, got 5"):
        running.wait_for(cast("Any", 5), ["k"], 30)


# --- forced before it is watched -----------------------------------------------------------------


def test_a_failing_on_complete_before_watching(caplog: pytest.LogCaptureFixture) -> None:
    """The operation has failed; the error goes to the logger of asyncio."""
    gate = Gate()

    def fail() -> None:
        raise ZeroDivisionError("by hand")

    gate.then = fail

    assert gate.force_complete()

    assert gate.outcome is Outcome.FAILED
    assert [record.name for record in caplog.records] == ["asyncio"]
    assert caplog.records[0].exc_info is not None
    assert str(caplog.records[0].exc_info[1]) == "by hand"


async def test_a_failing_on_complete_before_watching_on_a_loop(
    error_reports: list[dict[str, object]],
) -> None:
    """The running loop's exception handler receives the error."""
    gate = AsyncCompletion()

    assert gate.force_complete()

    assert gate.outcome is Outcome.FAILED
    assert [type(context["exception"]) for context in error_reports] == [TypeError]


def test_ctrl_c_in_on_complete_before_watching(caplog: pytest.LogCaptureFixture) -> None:
    """The interrupt passes, the operation has failed, and nothing is logged."""
    gate = Gate()
    gate.then = interrupt

    with pytest.raises(KeyboardInterrupt):
        gate.force_complete()

    assert gate.outcome is Outcome.FAILED
    assert caplog.records == []


# --- failing loggers and instruments -------------------------------------------------------------


@pytest.fixture
def broken_structlog() -> Iterator[None]:
    """Configure structlog with a processor that raises for every event."""

    def fail(*_: object) -> dict[str, object]:
        raise LookupError("no such processor")

    structlog.configure(processors=[fail], cache_logger_on_first_use=False)
    yield
    structlog.reset_defaults()


@pytest.mark.usefixtures("broken_structlog")
async def test_a_failing_logger_costs_no_completion(
    purgatory: Purgatory, timer: ManualTimer, capsys: pytest.CaptureFixture[str]
) -> None:
    """The check continues after a failed operation; the logger's error is on stderr."""

    def fail() -> None:
        raise ZeroDivisionError

    gates = [watched(purgatory, "k") for _ in range(4)]
    gates[1].then = fail
    for gate in gates:
        gate.open = True

    assert purgatory.check_and_complete("k") == 3

    assert [gate.outcome.name for gate in gates].count("COMPLETED") == 3
    assert gates[1].outcome is Outcome.FAILED
    with pytest.raises(ExceptionGroup):
        timer.advance(0)
    watched(purgatory, "k")
    await purgatory.aclose()
    error = capsys.readouterr().err
    assert "the logger raised for the event aiowheel.operation_failed" in error
    assert "LookupError: no such processor" in error


@pytest.mark.usefixtures("broken_structlog")
def test_a_failing_logger_is_silent_where_logging_is(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`logging.raiseExceptions` applies here as it does to handlers."""
    monkeypatch.setattr(logging, "raiseExceptions", False)

    aiowheel._events.emit("aiowheel.test")

    assert capsys.readouterr().err == ""


def test_an_operation_that_a_logger_ends_does_not_expire(
    early_firings: list[dict[str, object]],
) -> None:
    """Its deadline came due, and the clock was then set back, which is logged as a defect."""

    class ClockLoop(asyncio.SelectorEventLoop):
        """A loop whose clock only the test moves."""

        seconds = 1000.0

        def time(self) -> float:
            return self.seconds

    loop = ClockLoop()
    first, second = Gate(1), Gate(1)
    events: list[str] = []

    def set_back() -> None:
        loop.seconds -= 2

    def end_second(_: object, __: str, event: MutableMapping[str, Any]) -> str:
        events.append(event["event"])
        second.force_complete()
        raise structlog.DropEvent

    async def main() -> None:
        async with Timer() as timer, Purgatory(timer=timer) as purgatory:
            for gate in (first, second):
                assert not purgatory.try_complete_else_watch(gate, ["k"])
            first.then = set_back
            loop.seconds += 2
            while len(purgatory):  # noqa: ASYNC110 - one turn at a time
                await asyncio.sleep(0)

    structlog.configure(processors=[end_second], cache_logger_on_first_use=False)
    try:
        loop.run_until_complete(main())
    finally:
        structlog.reset_defaults()
        loop.close()

    early_firings.clear()
    assert events == ["aiowheel.fired_early"]
    assert (first.outcome, second.outcome) == (Outcome.EXPIRED, Outcome.COMPLETED)


def test_a_field_that_cannot_be_shown_is_no_error(capsys: pytest.CaptureFixture[str]) -> None:
    """The `repr` of a field is user code."""

    class Nameless:
        def __repr__(self) -> str:
            raise LookupError("no name")

    aiowheel._events.emit("aiowheel.test", field=Nameless())

    assert "no name" in capsys.readouterr().err


@pytest.mark.parametrize("error", [ZeroDivisionError(), asyncio.CancelledError()])
def test_an_instrument_that_raises_costs_no_completion(
    timer: ManualTimer, error: BaseException
) -> None:
    """Every exception of an instrument is reported."""

    class Broken(Instrument):
        def operation_finished(self, purgatory: str, operation: FinishedOperation) -> None:
            raise error

    purgatory = Purgatory(timer=timer, instruments=[Broken()])
    for _ in range(3):
        watched(purgatory, "k").open = True

    assert purgatory.check_and_complete("k") == 3
    with pytest.raises(ExceptionGroup) as caught:
        timer.advance(0)
    assert len(caught.value.exceptions) == 3


class CallingInstrument(Instrument):
    """An instrument that calls a function at the end of every operation."""

    def __init__(self) -> None:
        self.hook: Callable[[], object] = int

    def operation_finished(self, purgatory: str, operation: FinishedOperation) -> None:
        """Call the function."""
        self.hook()


@both_loops
async def test_forgetting_during_an_advance_loses_no_waiter(timer: ManualTimer) -> None:
    """The value was reached: all three operations complete, and the counter is gone afterwards."""
    instrument = CallingInstrument()
    purgatory = Purgatory(timer=timer, instruments=[instrument])
    waiting = [purgatory.wait_until({"k": number}, 30) for number in (1, 2, 3)]
    instrument.hook = lambda: purgatory.forget("k")

    assert purgatory.advance("k", 3) == 3

    assert await asyncio.gather(*waiting) == [True] * 3
    assert purgatory.value("k") is None
    assert purgatory.key_range(0, 9) == ([], 0)


@both_loops
async def test_a_newcomer_after_forgetting_waits_for_the_next_value(timer: ManualTimer) -> None:
    """The running advance completes only the operations that waited when it began."""
    instrument = CallingInstrument()
    purgatory = Purgatory(timer=timer, instruments=[instrument])
    first, second = (purgatory.wait_until({"k": number}, 30) for number in (1, 2))
    late: list[asyncio.Future[bool]] = []

    def hook() -> None:
        if not late:
            purgatory.forget("k")
            late.append(purgatory.wait_until({"k": 1}, 30))

    instrument.hook = hook

    assert purgatory.advance("k", 2) == 2
    assert (first.done(), second.done(), late[0].done()) == (True, True, False)
    assert purgatory.advance("k", 1) == 1
    assert (len(purgatory), purgatory.watched) == (0, 0)


@both_loops
async def test_an_instrument_ends_another_operation_while_the_timer_closes() -> None:
    """The other operation has the end that the instrument chose."""
    instrument = CallingInstrument()
    async with Timer() as timer:
        purgatory = Purgatory(timer=timer, instruments=[instrument])
        gates = [watched(purgatory, "k") for _ in range(2)]
        instrument.hook = lambda: [gate.force_complete() for gate in gates]

    assert {gate.outcome for gate in gates} == {Outcome.CANCELLED, Outcome.COMPLETED}
    numbers = purgatory.statistics()
    assert (numbers.pending, numbers.cancelled, numbers.completed) == (0, 1, 1)


@both_loops
async def test_a_check_inside_an_advance_runs_after_it(timer: ManualTimer) -> None:
    """The call returns 0, and the advance first completes its own waiters."""
    instrument = CallingInstrument()
    purgatory = Purgatory(timer=timer, instruments=[instrument])
    gate = watched(purgatory, "a")
    gate.open = True
    waiting = [purgatory.wait_until({"k": number}, 30) for number in (1, 2)]
    order: list[tuple[object, bool]] = []
    gate.then = lambda: order.append(("gate", all(each.done() for each in waiting)))
    instrument.hook = lambda: order.append((purgatory.check_and_complete("a"), gate.is_completed()))

    assert purgatory.advance("k", 2) == 2

    assert order[:3] == [(0, False), (0, False), ("gate", True)]
    assert gate.outcome is Outcome.COMPLETED


# --- Ctrl-C --------------------------------------------------------------------------------------


@both_loops
async def test_nested_checks_survive_ctrl_c(running: Purgatory) -> None:
    """The queued checks run on the next turn of the loop."""
    first, other = watched(running, "a"), watched(running, "b")
    until = running.wait_until({"c": 1}, 30)
    first.open = other.open = True

    def nested() -> None:
        running.check_and_complete("b")
        running.advance("c", 1)
        interrupt()

    first.then = nested
    with pytest.raises(KeyboardInterrupt):
        running.check_and_complete("a")
    await asyncio.sleep(0)

    assert other.outcome is Outcome.COMPLETED
    assert await until


@both_loops
async def test_a_check_inside_a_queued_check_is_queued(running: Purgatory) -> None:
    """Before and after Ctrl-C, nested calls return 0 and run after the current check."""
    gates = [watched(running, key) for key in "abc"]
    until = running.wait_until({"d": 1}, 30)
    answers: list[int] = []
    for gate in gates:
        gate.open = True

    def nested() -> None:
        answers.append(running.check_and_complete("c"))
        answers.append(running.advance("d", 1))
        answers.append(len(running))

    def queue_and_interrupt() -> None:
        answers.append(running.check_and_complete("b"))
        interrupt()

    gates[0].then, gates[1].then = queue_and_interrupt, nested
    with pytest.raises(KeyboardInterrupt):
        running.check_and_complete("a")
    await asyncio.sleep(0)

    assert answers == [0, 0, 0, 2]
    assert (gates[2].outcome, await until) == (Outcome.COMPLETED, True)


@pytest.mark.parametrize("loops", ["asyncio", "uvloop"])
def test_a_second_ctrl_c_delays_the_queued_checks_by_a_turn(loops: str) -> None:
    """It comes inside a queued check; when the loop runs again, so do the other queued checks."""
    loop: asyncio.AbstractEventLoop = pytest.importorskip(loops).new_event_loop()

    async def main() -> list[str]:
        async with Timer() as timer, Purgatory(timer=timer) as purgatory:
            gates = [watched(purgatory, key) for key in "abc"]
            for gate in gates:
                gate.open = True

            def nested() -> None:
                purgatory.check_and_complete("b")
                purgatory.check_and_complete("c")
                interrupt()

            gates[0].then, gates[1].then = nested, interrupt
            with pytest.raises(KeyboardInterrupt):
                purgatory.check_and_complete("a")
            for _ in range(3):
                await asyncio.sleep(0)
            return [gate.outcome.name for gate in gates]

    task = loop.create_task(main())
    with pytest.raises(KeyboardInterrupt):
        loop.run_until_complete(task)

    assert loop.run_until_complete(task) == ["FAILED", "FAILED", "COMPLETED"]
    loop.close()


async def test_queued_checks_wait_for_a_check_that_runs_the_loop(running: Purgatory) -> None:
    """An `on_complete` may run the loop, as with nest_asyncio; the queue is not run inside it."""
    loop: Any = asyncio.get_running_loop()
    first, other, last = (watched(running, key) for key in "abc")
    first.open = other.open = last.open = True
    seen: list[Outcome] = []

    def queue_and_interrupt() -> None:
        running.check_and_complete("b")
        interrupt()

    def run_the_loop() -> None:
        loop._run_once()
        seen.append(other.outcome)

    first.then, last.then = queue_and_interrupt, run_the_loop
    with pytest.raises(KeyboardInterrupt):
        running.check_and_complete("a")
    assert running.check_and_complete("c") == 1

    assert seen == [Outcome.PENDING]
    assert other.outcome is Outcome.COMPLETED


def test_nested_checks_survive_ctrl_c_without_a_loop(purgatory: Purgatory) -> None:
    """The next check of any key runs them."""
    other = watched_by_an_interrupted_check(purgatory)
    with pytest.raises(KeyboardInterrupt):
        purgatory.check_and_complete("a")

    assert purgatory.check_and_complete("nobody") == 0
    assert other.outcome is Outcome.COMPLETED


@both_loops
async def test_an_interrupted_advance_completes_the_rest_later(timer: ManualTimer) -> None:
    """All thresholds were reached; advancing to the same value again is enough."""
    instrument = CallingInstrument()
    purgatory = Purgatory(timer=timer, instruments=[instrument])
    waiting = [purgatory.wait_until({"k": number}, 30) for number in (1, 2, 3)]
    instrument.hook = interrupt

    with pytest.raises(KeyboardInterrupt):
        purgatory.advance("k", 3)
    instrument.hook = int
    purgatory.check_and_complete("nobody")

    assert await asyncio.gather(*waiting) == [True] * 3
    assert (len(purgatory), purgatory.watched, purgatory.statistics().completed) == (0, 0, 3)


class InterruptedGate(Gate):
    """A gate whose condition is interrupted once."""

    interrupted = False

    def try_complete(self) -> bool:
        """Raise KeyboardInterrupt if the test says so."""
        if self.interrupted:
            self.interrupted = False
            interrupt()
        return super().try_complete()


def interrupted_gates(purgatory: Purgatory) -> list[Gate]:
    """Return five open gates under the key "k", the second of which is interrupted."""
    gates = [Gate(), InterruptedGate(), Gate(), Gate(), Gate()]
    for gate in gates:
        assert not purgatory.try_complete_else_watch(gate, ["k"])
        gate.open = True
    cast(InterruptedGate, gates[1]).interrupted = True
    return gates


def outcomes(gates: list[Gate]) -> list[str]:
    """Return the names of the outcomes."""
    return [gate.outcome.name for gate in gates]


@both_loops
async def test_an_interrupted_check_checks_the_rest_later(running: Purgatory) -> None:
    """The rest is checked on the next turn, only the operations that it had not reached."""
    gates = interrupted_gates(running)
    with pytest.raises(KeyboardInterrupt):
        running.check_and_complete("k")
    assert outcomes(gates) == ["COMPLETED", *["PENDING"] * 4]
    gates[3].cancel()
    newcomer = watched(running, "k")
    newcomer.open = True
    await asyncio.sleep(0)

    done = ["COMPLETED", "PENDING", "COMPLETED", "CANCELLED", "COMPLETED"]
    assert outcomes([*gates, newcomer]) == [*done, "PENDING"]
    assert [gate.completed_by for gate in gates] == ["k", None, "k", None, "k"]
    assert running.check_and_complete("k") == 2


@pytest.mark.parametrize("loops", ["asyncio", "uvloop"])
def test_an_interrupted_check_from_a_thread_checks_the_rest_later(loops: str) -> None:
    """The interrupt leaves the loop; when the loop runs again, the rest is checked."""
    loop: asyncio.AbstractEventLoop = pytest.importorskip(loops).new_event_loop()

    async def main() -> list[str]:
        async with Timer() as timer, Purgatory(timer=timer) as purgatory:
            gates = interrupted_gates(purgatory)
            purgatory.check_and_complete_threadsafe("k")
            for _ in range(4):
                await asyncio.sleep(0)
            return outcomes(gates)

    task = loop.create_task(main())
    with pytest.raises(KeyboardInterrupt):
        loop.run_until_complete(task)

    assert loop.run_until_complete(task) == [
        "COMPLETED",
        "PENDING",
        "COMPLETED",
        "COMPLETED",
        "COMPLETED",
    ]
    loop.close()


def test_an_interrupted_check_keeps_its_limit(purgatory: Purgatory) -> None:
    """The completions before the interrupt count; without a loop the next check runs the rest."""
    gates = interrupted_gates(purgatory)
    with pytest.raises(KeyboardInterrupt):
        purgatory.check_and_complete("k", limit=3)

    assert purgatory.check_and_complete("nobody") == 0
    assert outcomes(gates) == ["COMPLETED", "PENDING", "COMPLETED", "COMPLETED", "PENDING"]
    assert purgatory.check_and_complete("k") == 2


def test_an_interrupted_rest_of_a_check_has_a_rest_as_well(purgatory: Purgatory) -> None:
    """Each interrupt leaves out one operation."""
    gates = [InterruptedGate() for _ in range(4)]
    for gate in gates:
        assert not purgatory.try_complete_else_watch(gate, ["k"])
        gate.open = True
        gate.interrupted = True
    for key in ("k", "nobody", "nobody", "nobody"):
        with pytest.raises(KeyboardInterrupt):
            purgatory.check_and_complete(key)

    assert [gate.interrupted for gate in gates] == [False] * 4
    assert purgatory.check_and_complete("nobody") == 0
    assert purgatory.check_and_complete("k") == 4


class InterruptedKey:
    """A key whose hash raises KeyboardInterrupt on request."""

    def __init__(self) -> None:
        self.interrupted = False

    def __hash__(self) -> int:
        if self.interrupted:
            self.interrupted = False
            interrupt()
        return 1


def test_ctrl_c_while_an_operation_leaves_its_keys(
    purgatory: Purgatory, timer: ManualTimer
) -> None:
    """The operation leaves its other keys and counts as failed: on_complete did not run."""
    key = InterruptedKey()
    gate = watched(purgatory, "a", key, "b")
    key.interrupted = True

    with pytest.raises(KeyboardInterrupt):
        gate.force_complete()

    assert gate.outcome is Outcome.FAILED
    assert (len(purgatory), purgatory.watched, len(timer)) == (0, 0, 0)
    assert purgatory.statistics().failed == 1


@pytest.mark.parametrize("attempt", [1, 2])
def test_ctrl_c_in_a_try_of_watch_leaves_no_trace(
    purgatory: Purgatory, timer: ManualTimer, attempt: int
) -> None:
    """The operation is as new as before the call."""

    class Interrupted(Gate):
        def try_complete(self) -> bool:
            if self.checks == attempt:
                interrupt()
            return self.open

    gate = Interrupted()
    with pytest.raises(KeyboardInterrupt):
        purgatory.try_complete_else_watch(gate, ["a", "b"])

    assert (len(purgatory), purgatory.watched, len(timer)) == (0, 0, 0)
    assert (gate.outcome, gate.keys) == (Outcome.PENDING, ())
    other = Purgatory(timer=timer)
    gate.open = True
    assert other.try_complete_else_watch(gate, ["a"])


def test_ctrl_c_in_an_on_complete_that_watch_calls(
    purgatory: Purgatory, timer: ManualTimer
) -> None:
    """The operation has failed, is nowhere registered, and cannot be watched again."""
    gate = Gate()
    gate.open = True
    gate.then = interrupt

    with pytest.raises(KeyboardInterrupt):
        purgatory.try_complete_else_watch(gate, ["a", "b"])

    assert gate.outcome is Outcome.FAILED
    assert (len(purgatory), purgatory.watched, len(timer)) == (0, 0, 0)
    assert purgatory.statistics().failed == 1
    with pytest.raises(ValueError, match="can be watched once"):
        purgatory.try_complete_else_watch(gate, ["a", "b"])


@both_loops
async def test_checks_queued_in_a_slice_survive_ctrl_c(running: Purgatory) -> None:
    """They run on the next turn of the loop."""
    other = watched_by_an_interrupted_check(running)
    with pytest.raises(KeyboardInterrupt):
        running.check_and_complete("a", budget=60)
    await asyncio.sleep(0)

    assert other.outcome is Outcome.COMPLETED


@both_loops
async def test_slices_survive_ctrl_c(running: Purgatory) -> None:
    """The remaining operations are checked on the next turn."""
    gates = [watched(running, "k") for _ in range(3)]
    for gate in gates:
        gate.open = True
    gates[0].then = interrupt

    with pytest.raises(KeyboardInterrupt):
        running.check_and_complete("k", budget=60)
    await asyncio.sleep(0)

    assert [gate.outcome.name for gate in gates] == ["FAILED", "COMPLETED", "COMPLETED"]


# --- arguments -----------------------------------------------------------------------------------


async def test_a_refused_sliced_check_leaves_no_bookmark(running: Purgatory) -> None:
    """The arguments are checked before anything changes."""
    watched(running, "k")
    watchers = running._lists.get("k")
    assert watchers is not None
    for _ in range(3):
        with pytest.raises(ValueError, match=r"limit must be from 1 to .*, got 0"):
            running.check_and_complete("k", limit=0, budget=0.1)

    link = watchers.next
    assert link is not None
    assert link.next is watchers


async def test_the_error_of_a_comparison_of_keys_is_raised(
    purgatory: Purgatory, timer: ManualTimer
) -> None:
    """A TypeError of a key's `__eq__` is not reported as a key that is not hashable."""

    class Incomparable:
        def __hash__(self) -> int:
            return 1

        def __eq__(self, other: object) -> bool:
            raise TypeError("not to be compared")

    watched(purgatory, Incomparable())
    purgatory.wait_until({Incomparable(): 1}, 30)
    calls: list[Callable[[], object]] = [
        lambda: purgatory.check_and_complete(Incomparable()),
        lambda: purgatory.value(Incomparable()),
        lambda: purgatory.try_complete_else_watch(Gate(), ["a", Incomparable()]),
    ]

    for call in calls:
        with pytest.raises(TypeError, match=r"^not to be compared$"):
            call()

    assert (len(purgatory), purgatory.watched, len(timer)) == (2, 2, 2)


WRONG: list[tuple[str, Callable[[Purgatory], object], type[Exception], str]] = [
    ("operation", lambda p: p.watch(5, ["k"]), TypeError, "operation must be a DelayedOperation"),  # type: ignore[arg-type]
    ("class", lambda p: p.watch(Gate, ["k"]), TypeError, "operation must be a DelayedOperation"),  # type: ignore[arg-type]
    ("keys", lambda p: p.watch(Gate(), None), TypeError, "keys must be a collection .*got None"),  # type: ignore[arg-type]
    ("no keys", lambda p: p.watch(Gate(), {}), ValueError, r"keys must name .*, got \{\}"),
    ("mode", lambda p: p.wait_until({"k": 1}, 1, []), TypeError, r"'all', 'any', got \[\]"),  # type: ignore[arg-type]
    ("mapping", lambda p: p.wait_until(5, 1), TypeError, "thresholds must be a mapping .*got 5"),  # type: ignore[arg-type]
    ("limit", lambda p: p.check_and_complete("k", limit="2"), TypeError, "limit must be an int"),  # type: ignore[arg-type]
    ("bool", lambda p: p.check_and_complete("k", limit=True), TypeError, "got True"),
    ("budget", lambda p: p.check_and_complete("k", budget="1"), TypeError, "budget must be"),  # type: ignore[arg-type]
    ("zero", lambda p: p.check_and_complete("k", budget=0), ValueError, "above 0 seconds, got 0"),
    ("count", lambda p: p.top_keys(-1), ValueError, "count must be from 0 to .*, got -1"),
    ("value", lambda p: p.advance("k", "1"), TypeError, "int or a float, got '1'"),  # type: ignore[arg-type]
    ("drain", lambda p: p.aclose("now"), ValueError, "'wait', got 'now'"),  # type: ignore[arg-type]
    ("drain type", lambda p: p.aclose([]), TypeError, r"'wait', got \[\]"),  # type: ignore[arg-type]
    ("name", lambda _: Purgatory(5), TypeError, "name must be a str, got 5"),  # type: ignore[arg-type]
    ("many", lambda _: Purgatory(instruments=5), TypeError, "instruments must .*got 5"),  # type: ignore[arg-type]
    ("none", lambda _: Purgatory(instruments=[5]), TypeError, r"instruments must .*got \[5\]"),  # type: ignore[list-item]
    ("full", lambda _: Purgatory(max_pending="5"), TypeError, "max_pending must .*got '5'"),  # type: ignore[arg-type]
]


@pytest.mark.parametrize(("call", "error", "text"), [each[1:] for each in WRONG])
async def test_wrong_arguments_are_named(
    running: Purgatory,
    call: Callable[[Purgatory], object],
    error: type[Exception],
    text: str,
) -> None:
    """The call raises; the text has the argument, its legal range and the value."""
    with pytest.raises(error, match=text):
        call(running)
    assert (len(running), running.closed) == (0, False)


async def test_none_means_no_timeout(running: Purgatory) -> None:
    """This holds for an operation, a predicate and thresholds."""
    gate = Gate(None)
    assert not running.try_complete_else_watch(gate, ["k"])
    met, until = running.wait_for(lambda: True, ["k"], None), running.wait_until({"k": 1}, None)

    assert {operation.deadline for operation in running.pending()} == {float("inf")}
    assert await met
    running.advance("k", 1)
    assert await until
    assert gate.force_complete()


async def test_an_idle_purgatory_is_true() -> None:
    """`purgatory or default` keeps an idle purgatory."""
    purgatory = Purgatory(timer=ManualTimer())

    assert (len(purgatory), bool(purgatory)) == (0, True)


def test_value_reads_a_counter(purgatory: Purgatory) -> None:
    """The value is None before the first advance and after `forget`."""
    assert purgatory.value("k") is None
    purgatory.advance("k", 2.5)
    assert purgatory.value("k") == 2.5
    purgatory.forget("k")
    assert purgatory.value("k") is None


async def test_closed_is_true_once_closing_has_begun() -> None:
    """The attribute stays true."""
    purgatory = Purgatory(timer=ManualTimer())
    assert not purgatory.closed
    await purgatory.aclose()
    assert purgatory.closed


@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy, pickle.dumps])
def test_a_purgatory_cannot_be_copied(
    purgatory: Purgatory, duplicate: Callable[[object], object]
) -> None:
    """A copy would share counters and lists of operations with the original."""
    with pytest.raises(TypeError, match="Purgatory cannot be copied or pickled"):
        duplicate(purgatory)


def test_the_documentation_lists_the_names_that_a_subclass_must_not_use() -> None:
    """An attribute of a subclass with such a name would replace one of the base class."""
    operation = DelayedOperation[None](None)
    names = {*dir(operation), *getattr(operation, "__dict__", ())}
    private = {
        name
        for name in names
        if name.startswith("_") and not name.startswith(("__", "_is_protocol"))
    }

    assert private == set(re.findall(r"`(_[a-z]\w+)`", DelayedOperation.__doc__ or ""))
