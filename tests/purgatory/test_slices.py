"""Many operations under one key: `budget=` completes them in slices with loop turns between."""

import asyncio
import math
from collections.abc import Awaitable, Callable

import pytest

from aiowheel import DelayedOperation, Outcome, Purgatory, Timer
from aiowheel._types import Drain

Until = Callable[[Callable[[], object]], Awaitable[None]]

pytestmark = pytest.mark.both_loops

SHORTEST = 1e-9  # less than one operation takes: each slice completes one operation


class Gate(DelayedOperation[None]):
    """An operation that completes once it is opened."""

    def __init__(self, order: list[int] | None = None, number: int = 0) -> None:
        super().__init__(30.0)
        self.open = False
        self.order = order
        self.number = number

    def try_complete(self) -> bool:
        """Return whether the gate is open."""
        return self.open

    def on_complete(self) -> None:
        """Record the order of completion."""
        if self.order is not None:
            self.order.append(self.number)


def watch_many(purgatory: Purgatory, size: int, order: list[int] | None = None) -> list[Gate]:
    """Return open operations that all watch "k"."""
    gates = [Gate(order, number) for number in range(size)]
    for gate in gates:
        assert not purgatory.try_complete_else_watch(gate, ["k"])
        gate.open = True
    return gates


@pytest.mark.slow
async def test_many_operations_complete_in_slices(running: Purgatory, until: Until) -> None:
    """20,000 operations complete, oldest first; other callbacks run in between."""
    order: list[int] = []
    watch_many(running, 20_000, order)
    turns = 0
    done = asyncio.Event()

    async def bystander() -> None:
        nonlocal turns
        while not done.is_set():
            turns += 1
            await asyncio.sleep(0)

    task = asyncio.create_task(bystander())
    first = running.check_and_complete("k", budget=0.000_1)
    assert 0 < first < 20_000
    await until(lambda: not len(running))
    done.set()
    await task

    assert order == list(range(20_000))
    assert turns > 10
    assert running.watched == 0


async def test_an_operation_not_yet_tried_can_be_cancelled(
    running: Purgatory, until: Until
) -> None:
    """The operation is cancelled between two slices, and the slices continue."""
    gates = watch_many(running, 5)

    assert running.check_and_complete("k", budget=SHORTEST) == 1
    gates[1].cancel()
    gates[3].cancel()
    await until(lambda: not len(running))

    assert [gate.outcome.name[:3] for gate in gates] == ["COM", "CAN", "COM", "CAN", "COM"]


async def test_a_check_of_the_same_key_meanwhile(running: Purgatory, until: Until) -> None:
    """The check completes all the rest at once, and the slices find nothing more."""
    order: list[int] = []
    watch_many(running, 50, order)

    first = running.check_and_complete("k", budget=SHORTEST)
    rest = running.check_and_complete("k")
    await asyncio.sleep(0)

    assert first + rest == 50
    assert order == list(range(50))
    assert running.watched == 0


async def test_two_sliced_checks_share_the_work(running: Purgatory, until: Until) -> None:
    """Both traverse the same list; an ended operation is not tried again."""
    order: list[int] = []
    gates = watch_many(running, 50, order)

    running.check_and_complete("k", budget=SHORTEST)
    running.check_and_complete("k", budget=SHORTEST)
    await until(lambda: not len(running))

    assert sorted(order) == list(range(50))
    assert {gate.checks for gate in gates} == {3}


async def test_later_operations_wait_for_the_next_check(running: Purgatory, until: Until) -> None:
    """The slices end with the operations that were pending when the check began."""
    gates = watch_many(running, 5)
    running.check_and_complete("k", budget=SHORTEST)

    newcomers = watch_many(running, 5)
    await until(lambda: all(gate.is_completed() for gate in gates))
    await asyncio.sleep(0)

    assert not any(gate.is_completed() for gate in newcomers)
    assert running.check_and_complete("k") == 5


async def test_the_limit_holds_over_all_slices(running: Purgatory, until: Until) -> None:
    """The limit does not apply to each slice separately."""
    gates = watch_many(running, 10)

    running.check_and_complete("k", limit=4, budget=SHORTEST)
    await until(lambda: len(running) == 6)
    for _ in range(5):
        await asyncio.sleep(0)

    assert [gate.is_completed() for gate in gates] == [True] * 4 + [False] * 6


@pytest.mark.parametrize("drain", ["expire", "cancel"])
async def test_closing_between_slices(running: Purgatory, drain: Drain) -> None:
    """Operations that were not tried end as the mode says, and the slices end as well."""
    gates = watch_many(running, 5)
    running.check_and_complete("k", budget=SHORTEST)

    await running.aclose(drain=drain)
    await asyncio.sleep(0)

    rest = Outcome.EXPIRED if drain == "expire" else Outcome.CANCELLED
    assert [gate.outcome for gate in gates] == [Outcome.COMPLETED] + [rest] * 4


async def test_a_sliced_check_from_within_a_check_comes_later(
    running: Purgatory, until: Until
) -> None:
    """It runs on a later turn, after the queued checks, so that the running check ends in time."""
    gates = watch_many(running, 3)
    nested: list[int] = []

    class Outer(Gate):
        def on_complete(self) -> None:
            nested.append(running.check_and_complete("k", budget=1))
            nested.append(running.check_and_complete("other"))

    outer, other = Outer(), Gate()
    running.try_complete_else_watch(outer, ["o"])
    running.try_complete_else_watch(other, ["other"])
    outer.open = other.open = True
    running.check_and_complete("o")
    assert (nested, gates[0].is_completed()) == ([0, 0], False)
    assert other.is_completed()
    await until(lambda: all(gate.is_completed() for gate in gates))


async def test_a_condition_that_raises_in_a_slice_ends_alone(
    running: Purgatory, until: Until
) -> None:
    """The following slices continue."""

    class Faulty(Gate):
        def try_complete(self) -> bool:
            if self.open:
                raise ZeroDivisionError
            return False

    faulty = Faulty()
    waiting = running.watch(faulty, ["k"])
    faulty.open = True
    gates = watch_many(running, 3)

    running.check_and_complete("k", budget=SHORTEST)
    await until(lambda: not len(running))

    with pytest.raises(ZeroDivisionError):
        await waiting
    assert all(gate.outcome is Outcome.COMPLETED for gate in gates)


def test_a_slice_ends_when_its_budget_is_used_up() -> None:
    """With a budget of 3 ms, a slice evaluates three conditions of 1 ms each."""

    class ClockLoop(asyncio.SelectorEventLoop):
        """A loop whose clock only the conditions move."""

        milliseconds = 1_000_000

        def time(self) -> float:
            return self.milliseconds / 1000

    loop = ClockLoop()
    tried: list[int] = []

    class Slow(Gate):
        def try_complete(self) -> bool:
            tried.append(self.number)
            loop.milliseconds += 1
            return False

    async def main() -> None:
        async with Timer() as timer, Purgatory(timer=timer) as purgatory:
            for number in range(8):
                purgatory.try_complete_else_watch(Slow(None, number), ["k"])
            tried.clear()
            counts: list[int] = []
            purgatory.check_and_complete("k", budget=0.003)
            for _ in range(4):
                counts.append(len(tried))
                await asyncio.sleep(0)
            assert counts == [3, 6, 8, 8]
            await purgatory.aclose(drain="cancel")

    loop.run_until_complete(main())
    loop.close()

    assert tried == list(range(8))


async def test_a_check_from_within_a_slice_runs_at_its_end(running: Purgatory) -> None:
    """The call returns 0; the operations of the other key complete in the same slice."""
    answers: list[tuple[int, bool]] = []

    class Checking(Gate):
        def on_complete(self) -> None:
            answers.append((running.check_and_complete("other"), other.is_completed()))

    gate, other = Checking(), Gate()
    assert not running.try_complete_else_watch(gate, ["k"])
    assert not running.try_complete_else_watch(other, ["other"])
    gate.open = other.open = True

    assert running.check_and_complete("k", budget=60) == 1

    assert answers == [(0, False)]
    assert other.outcome is Outcome.COMPLETED


async def test_a_sliced_check_of_an_unknown_key(running: Purgatory) -> None:
    """A key without operations raises no error."""
    assert running.check_and_complete("nobody", budget=0.001) == 0


@pytest.mark.parametrize("budget", [0, -1, math.nan])
async def test_a_bad_budget_is_refused(running: Purgatory, budget: float) -> None:
    """The error text has the value."""
    with pytest.raises(ValueError, match="budget must"):
        running.check_and_complete("k", budget=budget)
    with pytest.raises(TypeError, match="budget must be a number of seconds"):
        running.check_and_complete("k", budget="5 ms")  # type: ignore[arg-type]


def test_a_manual_timer_has_no_turns_to_slice(purgatory: Purgatory) -> None:
    """The error says that slices need a loop."""
    with pytest.raises(ValueError, match=r"budget must be None without a loop, got 0\.005"):
        purgatory.check_and_complete("k", budget=0.005)
