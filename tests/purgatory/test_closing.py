"""Closing a purgatory: pending operations, late operations, and concurrent closers."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Awaitable, Callable
from typing import Any, Self, cast

import pytest

from aiowheel import (
    DelayedOperation,
    ManualTimer,
    Outcome,
    Purgatory,
    PurgatoryClosedError,
    TimerClosedError,
)
from aiowheel._types import Drain

from .conftest import Gate

Until = Callable[[Callable[[], object]], Awaitable[None]]

pytestmark = pytest.mark.both_loops

HUGE = 1_000_000


async def test_expire_expires_all_operations_now(running: Purgatory) -> None:
    """on_complete runs, and the result says that the timeout passed."""
    gates = [Gate() for _ in range(3)]
    waiting = [running.watch(gate, ["k"]) for gate in gates]
    until = running.wait_until({"c": 1}, 30)

    await running.aclose()

    assert await asyncio.gather(*waiting) == ["EXPIRED"] * 3
    assert not await until
    assert (len(running), running.watched) == (0, 0)
    assert running.statistics().expired == 4


async def test_cancel_raises_in_the_awaiting_task(running: Purgatory) -> None:
    """The await raises PurgatoryClosedError, and on_complete does not run."""
    gate = Gate()
    waiting = running.watch(gate, ["k"])
    until = running.wait_until({"c": 1}, 30)

    await running.aclose(drain="cancel")

    for each in (waiting, until):
        with pytest.raises(PurgatoryClosedError, match=r"'running'.* was closed"):
            await each
    assert (gate.outcome, gate.ends) == (Outcome.CANCELLED, 0)


async def test_each_awaiter_gets_its_own_error(running: Purgatory) -> None:
    """A task that awaits while it handles another error gets that error as its context."""

    async def wait_after(mishap: Exception) -> object:
        try:
            raise mishap
        except ValueError:
            return await running.watch(Gate(), ["k"])

    mishaps = [ValueError(number) for number in range(3)]
    tasks = [asyncio.create_task(wait_after(mishap)) for mishap in mishaps]
    await asyncio.sleep(0)
    await running.aclose(drain="cancel")
    errors = await asyncio.gather(*tasks, return_exceptions=True)

    assert [type(error) for error in errors] == [PurgatoryClosedError] * 3
    assert [getattr(error, "__context__", None) for error in errors] == mishaps


@pytest.mark.realtime
async def test_wait_waits_until_all_operations_have_ended(running: Purgatory) -> None:
    """Operations end in any way; new operations are refused meanwhile."""
    gates = [Gate(), Gate(), Gate(0.001)]
    waiting = [running.watch(gate, ["k"]) for gate in gates]
    closing = asyncio.create_task(running.aclose(drain="wait"))
    await asyncio.sleep(0)

    with pytest.raises(PurgatoryClosedError, match="<Purgatory 'running' closed> is closed"):
        running.watch(Gate(), ["k"])
    gates[0].open = True
    assert running.check_and_complete("k") == 1
    gates[1].force_complete()
    assert not closing.done()
    await closing

    assert await asyncio.gather(*waiting) == ["COMPLETED", "COMPLETED", "EXPIRED"]


async def test_wait_accepts_calls_from_threads(running: Purgatory, until: Until) -> None:
    """The last operations may need just these calls."""
    waiting = running.wait_until({"k": 1}, 30)
    closing = asyncio.create_task(running.aclose(drain="wait"))
    await asyncio.sleep(0)

    await asyncio.to_thread(running.advance_threadsafe, "k", 1)

    assert await waiting
    await closing
    with pytest.raises(PurgatoryClosedError):
        running.advance_threadsafe("k", 2)


@pytest.mark.parametrize("drain", ["expire", "cancel", "wait"])
async def test_an_empty_purgatory_closes_at_once(running: Purgatory, drain: Drain) -> None:
    """This holds for every mode, and for a second close in every mode."""
    await running.aclose(drain=drain)
    modes: list[Drain] = ["expire", "cancel", "wait"]
    for again in modes:
        await running.aclose(drain=again)

    assert repr(running) == "<Purgatory 'running' closed>"


async def test_a_drain_that_does_not_exist_is_refused(running: Purgatory) -> None:
    """The error names the three modes; the purgatory stays open."""
    with pytest.raises(ValueError, match="'expire', 'cancel', 'wait', got 'now'"):
        running.aclose(drain="now")  # type: ignore[arg-type, unused-coroutine]

    running.watch(Gate(), ["k"])


async def test_every_closer_returns_when_the_purgatory_is_closed(running: Purgatory) -> None:
    """Several tasks close at once, and one of them is cancelled."""
    gate = Gate()
    running.watch(gate, ["k"])
    closings = [asyncio.create_task(running.aclose(drain="wait")) for _ in range(3)]
    await asyncio.sleep(0)

    closings[1].cancel()
    await asyncio.sleep(0)
    gate.force_complete()
    await asyncio.wait(closings)

    assert [closing.cancelled() for closing in closings] == [False, True, False]


async def test_a_second_close_can_end_the_wait_of_the_first(running: Purgatory) -> None:
    """Waiting ends when the second close expires the pending operations."""
    waiting = running.watch(Gate(), ["k"])
    patient = asyncio.create_task(running.aclose(drain="wait"))
    await asyncio.sleep(0)

    await running.aclose()
    await patient

    assert await waiting == "EXPIRED"


@pytest.mark.realtime
@pytest.mark.parametrize("drain", ["expire", "cancel", "wait"])
async def test_closing_from_within_on_complete(running: Purgatory, drain: Drain) -> None:
    """The operation that completes keeps its result; the others end as the mode says."""
    first, second = Gate(), Gate(0.001 if drain == "wait" else 3600)
    tasks: list[asyncio.Task[None]] = []
    waiting = [running.watch(gate, ["k"]) for gate in (first, second)]
    first.then = lambda: tasks.append(asyncio.create_task(running.aclose(drain=drain)))
    first.open = True

    assert running.check_and_complete("k") == 1
    await asyncio.gather(*tasks)
    results = await asyncio.gather(*waiting, return_exceptions=True)

    assert results[0] == "COMPLETED"
    if drain == "cancel":
        assert isinstance(results[1], PurgatoryClosedError)
    else:
        assert results[1] == "EXPIRED"


async def test_an_operation_that_ends_during_the_closing_may_end_others(running: Purgatory) -> None:
    """The hook forces, checks the same key, and watches again, which is refused."""
    gates = [Gate() for _ in range(3)]
    waiting = [running.watch(gate, ["k"]) for gate in gates]
    refused: list[PurgatoryClosedError] = []

    def end_others() -> None:
        gates[1].force_complete()
        gates[2].open = True
        running.check_and_complete("k")
        with pytest.raises(PurgatoryClosedError) as caught:
            running.watch(Gate(), ["k"])
        refused.append(caught.value)

    gates[0].then = end_others
    await running.aclose()

    assert await asyncio.gather(*waiting) == ["EXPIRED", "COMPLETED", "COMPLETED"]
    assert [gate.ends for gate in gates] == [1, 1, 1]
    assert len(refused) == 1


def test_a_condition_that_closes_its_purgatory_is_not_left_pending(timer: ManualTimer) -> None:
    """Closing has passed when the condition returns, so the operation is refused."""
    purgatory = Purgatory(timer=timer)

    class Closing(Gate):
        def try_complete(self) -> bool:
            with pytest.raises(StopIteration):
                cast("asyncio.Future[None]", purgatory.aclose()).send(None)  # type: ignore[attr-defined]
            return False

    gate = Closing()
    with pytest.raises(PurgatoryClosedError):
        purgatory.try_complete_else_watch(gate, ["k"])

    assert (len(purgatory), purgatory.watched, gate.outcome) == (0, 0, Outcome.PENDING)


async def test_a_failing_operation_does_not_stop_the_closing(running: Purgatory) -> None:
    """The awaiting task gets the error."""
    faulty, other = Gate(), Gate()
    waiting = [running.watch(gate, ["k"]) for gate in (faulty, other)]

    def fail() -> None:
        raise ZeroDivisionError

    faulty.then = fail
    await running.aclose()

    results = await asyncio.gather(*waiting, return_exceptions=True)
    assert isinstance(results[0], ZeroDivisionError)
    assert results[1] == "EXPIRED"


async def test_a_cancelled_task_is_not_expired_by_the_closing(running: Purgatory) -> None:
    """The task was cancelled in the same turn, so the operation counts as cancelled."""
    gate = Gate()
    task = asyncio.ensure_future(running.watch(gate, ["k"]))
    task.cancel()

    await running.aclose()

    assert (gate.outcome, gate.ends) == (Outcome.CANCELLED, 0)


async def test_leaving_the_block_closes() -> None:
    """The block expires pending operations, also when an error leaves it."""
    purgatory = Purgatory()
    waiting = purgatory.watch(Gate(), ["k"])
    with pytest.raises(ZeroDivisionError):
        async with purgatory:
            raise ZeroDivisionError

    assert await waiting == "EXPIRED"
    with pytest.raises(PurgatoryClosedError):
        purgatory.try_complete_else_watch(Gate(), ["k"])
    with pytest.raises(PurgatoryClosedError):
        purgatory.wait_until({"k": 1}, 1)


async def test_checks_of_a_closed_purgatory_complete_nothing(running: Purgatory) -> None:
    """They raise no error: a producer need not know that the purgatory is closed."""
    await running.aclose()

    assert (running.check_and_complete("k"), running.advance("k", 1)) == (0, 0)
    assert running.cancel_for_key("k") == []


def test_a_condition_that_closes_the_timer_refuses_its_operation(timer: ManualTimer) -> None:
    """A task of an eager factory may do so; without a timer the wait could not time out."""
    purgatory = Purgatory("test", timer=timer)

    def closing() -> bool:
        with pytest.raises(StopIteration):
            timer.aclose().send(None)
        return False

    class Closing(Gate):
        def try_complete(self) -> bool:
            return closing()

    with pytest.raises(TimerClosedError):
        purgatory.try_complete_else_watch(Closing(), ["a"])
    assert (len(purgatory), purgatory.watched, len(timer)) == (0, 0, 0)


def test_a_second_loop_can_wait_for_the_end(timer: ManualTimer) -> None:
    """The first one has given up, and another loop closes the purgatory."""
    purgatory = Purgatory("test", timer=timer)
    purgatory.try_complete_else_watch(Gate(10), ["a"])

    async def give_up() -> None:
        closing = asyncio.create_task(purgatory.aclose("wait"))
        await asyncio.sleep(0)
        closing.cancel()

    async def close() -> None:
        asyncio.get_running_loop().call_soon(timer.advance, 11)
        await purgatory.aclose("wait")

    asyncio.run(give_up())
    asyncio.run(close())

    assert len(purgatory) == 0


def test_closing_needs_no_loop(timer: ManualTimer) -> None:
    """On a manual timer `aclose` never suspends, so a synchronous test can close a purgatory."""
    purgatory = Purgatory(timer=timer)
    gate = Gate()
    purgatory.try_complete_else_watch(gate, ["k"])

    with pytest.raises(StopIteration):
        cast("asyncio.Future[None]", purgatory.aclose()).send(None)  # type: ignore[attr-defined]

    assert gate.outcome is Outcome.EXPIRED


def test_an_operation_ends_as_usual_although_the_loop_of_the_closer_is_closed(
    timer: ManualTimer,
) -> None:
    """The task that waits in `aclose` can no longer be resumed, which fails no operation."""
    purgatory = Purgatory(timer=timer)
    gate = Gate()
    purgatory.try_complete_else_watch(gate, ["k"])
    loop = asyncio.new_event_loop()
    closing = loop.create_task(purgatory.aclose("wait"))
    loop.run_until_complete(asyncio.sleep(0))
    loop.close()

    assert gate.force_complete()

    assert (gate.outcome, gate.ends) == (Outcome.COMPLETED, 1)
    closing._log_destroy_pending = False  # type: ignore[attr-defined]


def watch_one(purgatory: Purgatory, key: str) -> None:
    """Watch an operation that has no condition to meet."""
    purgatory.try_complete_else_watch(Gate(None), [key])


def wait_for_one(purgatory: Purgatory, key: str) -> None:
    """Wait for a counter."""
    purgatory.wait_until({key: 1}, None)


class Collections:
    """A block in which garbage is often collected; a finalizer runs in one of the collections."""

    def __init__(self, objects: int, number: int, finalize: Callable[[], object]) -> None:
        self._objects = objects  # new ones, which start a collection
        self._number = number
        self._finalize = finalize
        self._thresholds = gc.get_threshold()
        self.count = 0

    def __enter__(self) -> Self:
        gc.callbacks.append(self._collect)
        gc.set_threshold(self._objects, HUGE, HUGE)
        return self

    def __exit__(self, *_: object) -> None:
        gc.set_threshold(*self._thresholds)
        gc.callbacks.remove(self._collect)

    def _collect(self, phase: str, _: dict[str, int]) -> None:
        if phase == "start":
            self.count += 1
            if self.count == self._number:
                self._finalize()


@pytest.mark.parametrize("keys", ["abcd", "aaaa"])
@pytest.mark.parametrize("register", [watch_one, wait_for_one])
@pytest.mark.parametrize("objects", range(1, 5))
async def test_finalizers_may_end_operations_during_the_closing(
    register: Callable[[Purgatory, str], None], keys: str, objects: int
) -> None:
    """A collection may run wherever the closing creates objects, here at each of these places."""
    number, count = 0, 0
    while count >= number:
        number += 1
        purgatory = Purgatory("test", timer=ManualTimer())
        for key in keys:
            register(purgatory, key)
        *others, last = purgatory.pending()

        def end_others(ended: list[DelayedOperation[Any]] = others) -> None:
            for operation in ended:
                operation.cancel()

        with Collections(objects, number, end_others) as collections:
            pending = list(purgatory.pending())
            await purgatory.aclose()
        count = collections.count

        assert last in pending
        assert (len(purgatory), purgatory.watched) == (0, 0)
