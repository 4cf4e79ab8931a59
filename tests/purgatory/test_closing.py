"""Closing a purgatory: who still waits, what still comes, and who learns of it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import cast

import pytest

from aiowheel import (
    DelayedOperation,
    ManualTimer,
    Outcome,
    Purgatory,
    PurgatoryClosedError,
)
from aiowheel._types import Delay, Drain

Until = Callable[[Callable[[], object]], Awaitable[None]]

pytestmark = pytest.mark.both_loops


class Gate(DelayedOperation[str]):
    """Completes once it is opened, then runs a hook."""

    def __init__(self, timeout: Delay | None = 30.0) -> None:
        super().__init__(timeout)
        self.open = False
        self.ends = 0
        self.then: Callable[[], object] = int

    def try_complete(self) -> bool:
        """Whether it is open."""
        return self.open

    def on_complete(self) -> str:
        """Count, run the hook, tell how it ended."""
        self.ends += 1
        self.then()
        return self.outcome.name


async def test_expire_lets_everybody_expire_now(running: Purgatory) -> None:
    """on_complete runs, and the result tells that time was up."""
    gates = [Gate() for _ in range(3)]
    waiting = [running.watch(gate, ["k"]) for gate in gates]
    until = running.wait_until({"c": 1}, 30)

    await running.aclose()

    assert await asyncio.gather(*waiting) == ["EXPIRED"] * 3
    assert not await until
    assert (len(running), running.watched) == (0, 0)
    assert running.statistics().expired == 4


async def test_cancel_tells_who_awaits(running: Purgatory) -> None:
    """PurgatoryClosedError, without on_complete."""
    gate = Gate()
    waiting = running.watch(gate, ["k"])
    until = running.wait_until({"c": 1}, 30)

    await running.aclose(drain="cancel")

    for each in (waiting, until):
        with pytest.raises(PurgatoryClosedError, match=r"'running'.* was closed"):
            await each
    assert (gate.outcome, gate.ends) == (Outcome.CANCELLED, 0)


async def test_each_gets_an_error_of_its_own(running: Purgatory) -> None:
    """Who awaits while handling another error finds that one as its context, and nobody else's."""

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
async def test_wait_waits_until_all_are_over(running: Purgatory) -> None:
    """By whatever ends them; nothing new comes in meanwhile."""
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


async def test_wait_takes_what_threads_bring(running: Purgatory, until: Until) -> None:
    """It may be just what the last operations wait for."""
    waiting = running.wait_until({"k": 1}, 30)
    closing = asyncio.create_task(running.aclose(drain="wait"))
    await asyncio.sleep(0)

    await asyncio.to_thread(running.advance_threadsafe, "k", 1)

    assert await waiting
    await closing
    with pytest.raises(PurgatoryClosedError):
        running.advance_threadsafe("k", 2)


@pytest.mark.parametrize("drain", ["expire", "cancel", "wait"])
async def test_an_empty_one_closes_at_once(running: Purgatory, drain: Drain) -> None:
    """In every mode, and again in every mode."""
    await running.aclose(drain=drain)
    modes: list[Drain] = ["expire", "cancel", "wait"]
    for again in modes:
        await running.aclose(drain=again)

    assert repr(running) == "<Purgatory 'running' closed>"


async def test_a_drain_that_does_not_exist_is_refused(running: Purgatory) -> None:
    """With the three that do; the purgatory stays open."""
    with pytest.raises(ValueError, match="'expire', 'cancel', 'wait', got 'now'"):
        running.aclose(drain="now")  # type: ignore[arg-type, unused-coroutine]

    running.watch(Gate(), ["k"])


async def test_everybody_who_waits_for_the_end_learns_of_it(running: Purgatory) -> None:
    """Several closings at once; one of them given up."""
    gate = Gate()
    running.watch(gate, ["k"])
    closings = [asyncio.create_task(running.aclose(drain="wait")) for _ in range(3)]
    await asyncio.sleep(0)

    closings[1].cancel()
    await asyncio.sleep(0)
    gate.force_complete()
    await asyncio.wait(closings)

    assert [closing.cancelled() for closing in closings] == [False, True, False]


async def test_a_second_closing_can_be_less_patient(running: Purgatory) -> None:
    """Waiting ends when the other one expires what was waited for."""
    waiting = running.watch(Gate(), ["k"])
    patient = asyncio.create_task(running.aclose(drain="wait"))
    await asyncio.sleep(0)

    await running.aclose()
    await patient

    assert await waiting == "EXPIRED"


@pytest.mark.realtime
@pytest.mark.parametrize("drain", ["expire", "cancel", "wait"])
async def test_closing_from_within_on_complete(running: Purgatory, drain: Drain) -> None:
    """The operation under way completes, the others end as the drain says."""
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


async def test_what_ends_during_the_closing_may_end_others(running: Purgatory) -> None:
    """By force, by a check of the same key, by watching anew, which is refused."""
    gates = [Gate() for _ in range(3)]
    waiting = [running.watch(gate, ["k"]) for gate in gates]
    refused: list[PurgatoryClosedError] = []

    def meddle() -> None:
        gates[1].force_complete()
        gates[2].open = True
        running.check_and_complete("k")
        with pytest.raises(PurgatoryClosedError) as caught:
            running.watch(Gate(), ["k"])
        refused.append(caught.value)

    gates[0].then = meddle
    await running.aclose()

    assert await asyncio.gather(*waiting) == ["EXPIRED", "COMPLETED", "COMPLETED"]
    assert [gate.ends for gate in gates] == [1, 1, 1]
    assert len(refused) == 1


async def test_one_that_fails_does_not_stop_the_closing(running: Purgatory) -> None:
    """The error goes to who awaits it."""
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
    """Cancelled in the same turn: it sees CancelledError, so the operation was cancelled."""
    gate = Gate()
    task = asyncio.ensure_future(running.watch(gate, ["k"]))
    task.cancel()

    await running.aclose()

    assert (gate.outcome, gate.ends) == (Outcome.CANCELLED, 0)


async def test_leaving_the_block_closes() -> None:
    """By expiring who waits, also when an error leaves it."""
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


async def test_checks_of_a_closed_purgatory_find_nobody(running: Purgatory) -> None:
    """They are no error: who brings news need not know."""
    await running.aclose()

    assert (running.check_and_complete("k"), running.advance("k", 1)) == (0, 0)
    assert running.cancel_for_key("k") == []


def test_closing_needs_no_loop(timer: ManualTimer) -> None:
    """On a manual timer it never suspends, so a plain test can close a purgatory."""
    purgatory = Purgatory(timer=timer)
    gate = Gate()
    purgatory.try_complete_else_watch(gate, ["k"])

    with pytest.raises(StopIteration):
        cast("asyncio.Future[None]", purgatory.aclose()).send(None)  # type: ignore[attr-defined]

    assert gate.outcome is Outcome.EXPIRED
