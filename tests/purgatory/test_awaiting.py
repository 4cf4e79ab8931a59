"""Awaiting an operation: every way to stop waiting removes the operation completely."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, cast

import pytest

import aiowheel
from aiowheel import (
    ForeignLoopError,
    ManualTimer,
    Outcome,
    Purgatory,
    PurgatoryFullError,
    Timer,
    TimerClosedError,
)

from .conftest import Gate

ErrorReports = list[dict[str, object]]
Until = Callable[[Callable[[], object]], Awaitable[None]]

pytestmark = pytest.mark.both_loops


def counts(purgatory: Purgatory) -> tuple[int, int, int]:
    """Return the numbers of pending operations, links and armed timeouts."""
    return len(purgatory), purgatory.watched, len(purgatory._timer)


NOTHING = (0, 0, 0)


@pytest.mark.realtime
async def test_awaiting_returns_what_on_complete_returned(running: Purgatory) -> None:
    """The result is the same for a check, for force and for the timeout."""
    checked, forced = Gate(), Gate()
    by_check, by_force = running.watch(checked, ["k"]), running.watch(forced, ["k"])
    checked.open = True

    running.check_and_complete("k")
    forced.force_complete()

    assert (await by_check, await by_force) == ("COMPLETED", "COMPLETED")
    assert await running.watch(Gate(0.001), ["k"]) == "EXPIRED"


async def test_a_met_condition_needs_no_turn_of_the_loop(running: Purgatory) -> None:
    """The awaitable is done when `watch` returns."""
    gate = Gate()
    gate.open = True

    waiting = running.watch(gate, ["k"])

    assert waiting.done()
    assert await waiting == "COMPLETED"
    assert counts(running) == NOTHING


async def test_an_operation_is_registered_by_the_call(running: Purgatory) -> None:
    """The operation waits whether it is awaited or not, and can be awaited several times."""
    gate = Gate()
    waiting = running.watch(gate, ["k"])
    assert counts(running) == (1, 1, 1)

    gate.force_complete()
    await asyncio.sleep(0)

    assert (await waiting, await waiting) == ("COMPLETED", "COMPLETED")


async def test_watching_costs_no_task(running: Purgatory) -> None:
    """Watching operations starts no task."""
    before = len(asyncio.all_tasks())

    gates = [Gate() for _ in range(100)]
    waiting = [running.watch(gate, ["k"]) for gate in gates]

    assert len(asyncio.all_tasks()) == before
    running.cancel_for_key("k")
    assert all(each.cancelled() for each in waiting)


@pytest.mark.realtime
async def test_wait_for_is_true_when_met_and_false_in_time(running: Purgatory) -> None:
    """`wait_for` returns what `threading.Condition.wait_for` returns."""
    basket: list[str] = []
    met = running.wait_for(lambda: bool(basket), ["basket"], 30)
    late = running.wait_for(lambda: len(basket) > 5, ["basket"], 0.001)

    basket.append("apple")

    assert running.check_and_complete("basket") == 1
    assert (await met, await late) == (True, False)


async def test_cancelling_the_operation_cancels_its_awaiter(running: Purgatory) -> None:
    """The await raises CancelledError, and on_complete does not run."""
    gate = Gate()
    waiting = running.watch(gate, ["k"])

    assert gate.cancel()

    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert gate.ends == 0


# --- every way to stop waiting -------------------------------------------------------------------


async def cancelled_before_it_starts(waiting: Awaitable[str]) -> None:
    """Cancel a task that has not run yet; the operation is registered nevertheless."""

    async def wait() -> str:
        return await waiting

    task = asyncio.create_task(wait())
    task.cancel()
    await asyncio.wait([task])
    cast("asyncio.Future[str]", waiting).cancel()  # no task awaits it yet
    await asyncio.sleep(0)


async def cancelled_while_it_waits(waiting: Awaitable[str]) -> None:
    """Cancel a task during its await."""

    async def wait() -> str:
        return await waiting

    task = asyncio.create_task(wait())
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait([task])
    assert task.cancelled()


async def timeout_of_asyncio(waiting: Awaitable[str]) -> None:
    """End the wait with `asyncio.timeout` around the await."""
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.001):
            await waiting


async def timeout_of_aiowheel(waiting: Awaitable[str]) -> None:
    """End the wait with `aiowheel.timeout` around the await."""
    with pytest.raises(TimeoutError):
        async with aiowheel.timeout(0.001):
            await waiting


async def wait_for_of_asyncio(waiting: Awaitable[str]) -> None:
    """End the wait with `asyncio.wait_for` on the awaitable."""
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(waiting, 0.001)


async def wait_for_of_aiowheel(waiting: Awaitable[str]) -> None:
    """End the wait with `aiowheel.wait_for` on the awaitable."""
    with pytest.raises(TimeoutError):
        await aiowheel.wait_for(waiting, 0.001)


async def task_group(waiting: Awaitable[str]) -> None:
    """Let a sibling in a task group fail."""

    async def wait() -> str:
        return await waiting

    async def fail() -> None:
        await asyncio.sleep(0)
        raise ZeroDivisionError

    with pytest.raises(ExceptionGroup):
        async with asyncio.TaskGroup() as group:
            group.create_task(wait())
            group.create_task(fail())


async def gather(waiting: Awaitable[str]) -> None:
    """Cancel the `gather` of the awaitable."""
    gathered = asyncio.gather(waiting, asyncio.sleep(30))
    await asyncio.sleep(0)
    gathered.cancel()
    with pytest.raises(asyncio.CancelledError):
        await gathered


async def first_completed(waiting: Awaitable[str]) -> None:
    """Cancel the awaitable after `asyncio.wait` has returned for another future."""
    future = cast("asyncio.Future[str]", waiting)
    other = asyncio.create_task(asyncio.sleep(0, "done"))
    finished, losers = await asyncio.wait([future, other], return_when=asyncio.FIRST_COMPLETED)
    assert (finished, losers) == ({other}, {future})
    for loser in losers:
        loser.cancel()
    await asyncio.wait(losers)


WAYS = [
    cancelled_before_it_starts,
    cancelled_while_it_waits,
    timeout_of_asyncio,
    timeout_of_aiowheel,
    wait_for_of_asyncio,
    wait_for_of_aiowheel,
    task_group,
    gather,
    first_completed,
]


@pytest.mark.usefixtures("no_gc")
@pytest.mark.realtime
@pytest.mark.parametrize("stop", WAYS)
async def test_a_stopped_wait_leaves_nothing(
    running: Purgatory,
    error_reports: ErrorReports,
    until: Until,
    stop: Callable[[Awaitable[str]], Coroutine[Any, Any, None]],
) -> None:
    """No operation, link, timeout or reference stays, without the collector; nothing is logged."""
    gate = Gate()
    remains = weakref.ref(gate)

    await stop(running.watch(gate, ["a", "b"]))

    assert counts(running) == NOTHING
    assert (gate.outcome, gate.ends) == (Outcome.CANCELLED, 0)
    del gate
    await asyncio.sleep(0)
    if stop not in (task_group, gather, timeout_of_asyncio, timeout_of_aiowheel):
        assert remains() is None
    gc.collect()
    assert remains() is None
    assert error_reports == []


async def test_the_operation_is_removed_before_the_task_ends(running: Purgatory) -> None:
    """The `finally` of the task itself finds the operation removed."""
    seen: list[tuple[int, int, int]] = []

    async def wait() -> None:
        try:
            await running.watch(Gate(), ["a", "b"])
        finally:
            seen.append(counts(running))

    task = asyncio.create_task(wait())
    await asyncio.sleep(0)
    assert counts(running) == (1, 2, 1)
    task.cancel()
    await asyncio.wait([task])

    assert seen == [NOTHING]


async def test_an_abandoned_operation_ends_by_its_timeout(
    running: Purgatory, error_reports: ErrorReports, until: Until
) -> None:
    """Dropping an awaitable does not cancel; the operation expires and nothing is logged."""
    gate = Gate(0.001)
    running.watch(gate, ["k"])

    await until(gate.is_completed)
    gc.collect()

    assert (gate.outcome, gate.ends) == (Outcome.EXPIRED, 1)
    assert (counts(running), error_reports) == (NOTHING, [])


async def test_a_shielded_operation_keeps_waiting(running: Purgatory) -> None:
    """The outer wait is cancelled, the operation is not."""
    gate = Gate()
    waiting = running.watch(gate, ["k"])
    shielded = asyncio.shield(waiting)

    shielded.cancel()
    await asyncio.sleep(0)
    assert counts(running) == (1, 1, 1)
    gate.force_complete()

    assert await waiting == "COMPLETED"


async def test_a_check_in_the_turn_of_the_cancellation_completes_nothing(
    running: Purgatory,
) -> None:
    """The task raises CancelledError, so the result of on_complete would be lost."""
    ways: list[Callable[[Gate], object]] = [
        lambda _: running.check_and_complete("k"),
        lambda gate: gate.force_complete(),
        lambda gate: running.cancel_for_key("k") and gate.force_complete(),
    ]
    for way in ways:
        gate = Gate()
        task = asyncio.ensure_future(running.watch(gate, ["k"]))
        gate.open = True
        task.cancel()

        assert not way(gate)

        assert (gate.outcome, gate.ends) == (Outcome.CANCELLED, 0)
        with pytest.raises(asyncio.CancelledError):
            await task


async def test_a_cancellation_after_completion_leaves_the_result_with_the_operation(
    running: Purgatory,
) -> None:
    """The task's `except` can read the outcome of the operation that has just completed."""
    gate = Gate()
    outcomes: list[Outcome] = []

    async def wait() -> None:
        try:
            await running.watch(gate, ["k"])
        except asyncio.CancelledError:
            outcomes.append(gate.outcome)
            raise

    task = asyncio.create_task(wait())
    await asyncio.sleep(0)
    gate.force_complete()
    task.cancel()
    await asyncio.wait([task])

    assert (task.cancelled(), outcomes, gate.ends) == (True, [Outcome.COMPLETED], 1)


# --- failures ------------------------------------------------------------------------------------


class Faulty(Gate):
    """An operation that raises in the given method."""

    def __init__(self, where: str, error: BaseException) -> None:
        super().__init__()
        self.where = where
        self.error = error

    def try_complete(self) -> bool:
        """Raise if open and told to raise here; otherwise return whether the gate is open."""
        if self.open and self.where == "try":
            raise self.error
        return self.open

    def on_complete(self) -> str:
        """Raise the error."""
        raise self.error


@pytest.mark.parametrize("where", ["try", "complete"])
async def test_an_error_is_raised_in_the_awaiting_task(
    running: Purgatory, error_reports: ErrorReports, where: str
) -> None:
    """The awaiting task gets the unchanged error, which is not reported elsewhere."""
    gate = Faulty(where, ZeroDivisionError("by hand"))
    waiting = running.watch(gate, ["k"])
    gate.open = True

    assert running.check_and_complete("k") == 0

    with pytest.raises(ZeroDivisionError, match="by hand"):
        await waiting
    assert (gate.outcome, error_reports) == (Outcome.FAILED, [])


@pytest.mark.parametrize("error", [StopIteration(), asyncio.CancelledError(), GeneratorExit()])
@pytest.mark.parametrize("where", ["try", "complete"])
async def test_errors_that_mean_something_to_a_task_arrive_wrapped(
    running: Purgatory, where: str, error: BaseException
) -> None:
    """A task would take the plain error for its own end or its cancellation."""
    gate = Faulty(where, error)
    waiting = running.watch(gate, ["k"])
    gate.open = True

    running.check_and_complete("k")

    with pytest.raises(RuntimeError, match=type(error).__name__) as caught:
        await waiting
    assert caught.value.__cause__ is error


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit()])
async def test_an_error_that_leaves_the_loop_leaves_no_task_waiting(
    running: Purgatory, error: BaseException
) -> None:
    """The operation has ended and is counted when the loop runs again."""
    gate = Faulty("complete", error)
    waiting = running.watch(gate, ["k"])
    gate.open = True

    with pytest.raises(type(error)):
        running.check_and_complete("k")

    with pytest.raises(RuntimeError, match=type(error).__name__):
        await waiting
    assert (gate.outcome, running.statistics().failed) == (Outcome.FAILED, 1)


async def test_an_error_without_an_awaiter_goes_to_the_loop(
    running: Purgatory, error_reports: ErrorReports
) -> None:
    """The purgatory reports it without an awaitable, asyncio with a dropped awaitable."""
    silent, dropped = (Faulty("try", ZeroDivisionError()) for _ in range(2))
    running.try_complete_else_watch(silent, ["k"])
    running.watch(dropped, ["k"])
    silent.open = dropped.open = True

    running.check_and_complete("k")

    gc.collect()

    assert [context.get("operation") for context in error_reports] == [silent, None]
    assert "Exception in delayed operation <Faulty failed" in str(error_reports[0]["message"])
    assert "never retrieved" in str(error_reports[1]["message"])


@pytest.mark.parametrize("where", ["try", "complete"])
@pytest.mark.parametrize("how", ["cancelled", "settled"])
async def test_an_error_after_the_future_is_done_goes_to_the_loop(
    running: Purgatory, error_reports: ErrorReports, where: str, how: str
) -> None:
    """A method cancels or settles its own future and then raises: no awaiter gets the error."""
    waiting: list[asyncio.Future[str]] = []

    class Settling(Faulty):
        def settle(self) -> None:
            if how == "cancelled":
                waiting[0].cancel()
            else:
                waiting[0].set_result("mine")

        def try_complete(self) -> bool:
            if self.open and where == "try":
                self.settle()
            return super().try_complete()

        def on_complete(self) -> str:
            self.settle()
            return super().on_complete()

    error = ZeroDivisionError()
    gate = Settling(where, error)
    waiting.append(running.watch(gate, ["k"]))
    gate.open = True

    running.check_and_complete("k")
    await asyncio.sleep(0)

    assert gate.outcome is Outcome.FAILED
    assert [(each["operation"], each["exception"]) for each in error_reports] == [(gate, error)]


# --- where it does not belong --------------------------------------------------------------------


async def test_refusals_leave_no_trace(error_reports: ErrorReports) -> None:
    """Full, watched twice, bad keys: the pending operation continues, nothing is armed."""
    async with Timer() as timer, Purgatory(timer=timer, max_pending=1) as purgatory:
        gate, other = Gate(), Gate()
        waiting = purgatory.watch(gate, ["k"])
        with pytest.raises(PurgatoryFullError):
            purgatory.watch(other, ["k"])
        with pytest.raises(ValueError, match="watched once"):
            purgatory.watch(gate, ["k"])
        gate.force_complete()
        with pytest.raises(TypeError, match=r"^keys must be hashable, got"):
            purgatory.watch(other, cast("list[str]", [[]]))
        assert counts(purgatory) == NOTHING

        again = purgatory.watch(other, ["k"])
        other.force_complete()
        assert (await waiting, await again) == ("COMPLETED", "COMPLETED")
    gc.collect()
    assert error_reports == []


async def test_another_thread_is_refused(running: Purgatory) -> None:
    """Every call except `*_threadsafe` raises; the operation stays new."""
    gate = Gate()
    calls: list[Callable[[], object]] = [
        lambda: running.try_complete_else_watch(gate, ["k"]),
        lambda: running.check_and_complete("k"),
        lambda: running.advance("k", 1),
        lambda: running.cancel_for_key("k"),
        lambda: asyncio.run(running.aclose()),
        lambda: asyncio.run(_watch(running, gate)),
    ]

    for call in calls:
        with pytest.raises(ForeignLoopError, match="belongs to"):
            await asyncio.to_thread(call)

    assert counts(running) == NOTHING
    gate.open = True
    assert await running.watch(gate, ["k"]) == "COMPLETED"


async def _watch(purgatory: Purgatory, gate: Gate) -> str:
    return await purgatory.watch(gate, ["k"])


def test_watching_needs_a_loop() -> None:
    """Without a loop `try_complete_else_watch` is available."""
    purgatory = Purgatory(timer=ManualTimer())

    with pytest.raises(RuntimeError, match="no running event loop"):
        purgatory.watch(Gate(), ["k"])


async def test_a_future_that_the_caller_has_settled_keeps_its_result(running: Purgatory) -> None:
    """The operation stays pending until its own end, which changes nothing in the future."""
    gate = Gate()
    waiting, until = running.watch(gate, ["k"]), running.wait_until({"c": 1}, 30)
    waiting.set_result("mine")
    until.set_result(False)
    await asyncio.sleep(0)
    assert len(running) == 2

    assert gate.force_complete()
    running.forget("c", error=LookupError)

    assert (await waiting, await until) == ("mine", False)
    assert (gate.outcome, gate.ends) == (Outcome.COMPLETED, 1)
    assert counts(running) == NOTHING


async def test_debug_mode_reports_an_end_in_another_thread() -> None:
    """On a `ManualTimer`, which belongs to no thread, the error of the awaiter's loop is raised."""
    asyncio.get_running_loop().set_debug(True)
    gate = Gate()
    purgatory = Purgatory(timer=ManualTimer())
    waiting = purgatory.watch(gate, ["k"])
    waiting.add_done_callback(lambda _: None)

    with pytest.raises(RuntimeError, match="Non-thread-safe operation"):
        await asyncio.to_thread(gate.force_complete)

    assert gate.outcome is Outcome.COMPLETED
    assert counts(purgatory) == NOTHING


async def test_closing_the_timer_raises_in_the_awaiting_task(error_reports: ErrorReports) -> None:
    """The await raises TimerClosedError; the empty purgatory can still be closed."""
    timer = Timer()
    async with timer:
        purgatory = Purgatory(timer=timer)
        gate = Gate()
        waiting = purgatory.watch(gate, ["a", "b"])
        until = purgatory.wait_until({"c": 1}, 30)

    for each in (waiting, until):
        with pytest.raises(TimerClosedError):
            await each
    assert counts(purgatory) == NOTHING
    assert (gate.outcome, gate.ends) == (Outcome.CANCELLED, 0)
    with pytest.raises(TimerClosedError):
        purgatory.watch(Gate(), ["k"])
    await purgatory.aclose()
    assert error_reports == []


def test_closing_the_loop_ends_what_no_task_can_await() -> None:
    """The shared timer closes with its loop; a callback of the future is never called."""
    loop = asyncio.new_event_loop()
    called: list[object] = []

    async def main() -> asyncio.Future[bool]:
        waiting = Purgatory().wait_until({"k": 1}, 30)
        waiting.add_done_callback(called.append)
        return waiting

    waiting = loop.run_until_complete(main())
    loop.close()

    assert isinstance(waiting.exception(), TimerClosedError)
    assert called == []


@pytest.mark.realtime
async def test_the_shared_timer_is_the_default() -> None:
    """A purgatory works without a timer of its own."""
    async with Purgatory() as purgatory:
        assert await purgatory.watch(Gate(0.001), ["k"]) == "EXPIRED"
