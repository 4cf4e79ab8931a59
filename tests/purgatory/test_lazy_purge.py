"""Watch lists with lazy purge, controlled by the estimate E of the operations in them.

E grows by one for every watched operation. A purge runs when E minus the number of pending
operations exceeds the purge interval; before it, E is set to the number of pending operations.
Waits for counters are in no watch list: neither number includes them.
"""

import asyncio
import gc
import weakref

import pytest

from aiowheel import DelayedOperation, ManualTimer, Purgatory
from aiowheel._types import Drain


class Gate(DelayedOperation[None]):
    """An operation that completes once it is opened."""

    open = False

    def try_complete(self) -> bool:
        """Return whether the gate is open."""
        return self.open


def lazy(timer: ManualTimer, purge_interval: int) -> Purgatory:
    """Return a purgatory whose lists are purged lazily."""
    return Purgatory("lazy", timer=timer, purge_interval=purge_interval)


def watch(purgatory: Purgatory, *keys: object) -> Gate:
    """Watch a new operation."""
    gate = Gate(30)
    assert not purgatory.try_complete_else_watch(gate, keys)
    return gate


def account(purgatory: Purgatory) -> tuple[int, int, int, int]:
    """Return E and the numbers of pending operations, links and purges."""
    statistics = purgatory.statistics()
    return (
        statistics.estimated_total,
        statistics.pending,
        statistics.watched,
        statistics.purges,
    )


def test_the_accounting_of_the_estimate(timer: ManualTimer) -> None:
    """Every number is checked, with a purge interval of 3 and two keys for each operation."""
    purgatory = lazy(timer, 3)
    gates = [watch(purgatory, "a", number) for number in range(8)]
    assert account(purgatory) == (8, 8, 16, 0)

    gates[0].force_complete()
    assert account(purgatory) == (8, 7, 16, 0)
    gates[1].cancel()
    assert account(purgatory) == (8, 6, 16, 0)
    gates[2].force_complete()
    assert account(purgatory) == (8, 5, 16, 0)  # 8 - 5 = 3 does not exceed 3
    gates[3].force_complete()
    assert account(purgatory) == (4, 4, 8, 1)  # 8 - 4 exceeds it: E = pending, then the purge

    gates += [watch(purgatory, "a", number) for number in (8, 9)]
    assert account(purgatory) == (6, 6, 12, 1)
    for gate in gates[4:8]:
        gate.force_complete()
    assert account(purgatory) == (2, 2, 4, 2)
    watch(purgatory, "a")
    assert account(purgatory) == (3, 3, 5, 2)


def test_expiry_counts_as_any_other_end(timer: ManualTimer) -> None:
    """Five operations expire with an interval of 1: purges follow the second and the fourth."""
    purgatory = lazy(timer, 1)
    for seconds in range(1, 6):
        purgatory.try_complete_else_watch(Gate(seconds), ["k"])

    seen: list[tuple[int, int, int, int]] = []
    for _ in range(5):
        timer.advance(1)
        seen.append(account(purgatory))

    assert seen == [(5, 4, 5, 0), (3, 3, 3, 1), (3, 2, 3, 1), (1, 1, 1, 2), (1, 0, 1, 2)]


@pytest.mark.parametrize("end", ["advance", "expire", "cancel"])
async def test_waits_for_counters_do_not_cause_purges(timer: ManualTimer, end: str) -> None:
    """They are in no watch list, so they neither grow nor shrink the estimate."""
    purgatory = lazy(timer, 1)
    gates = [watch(purgatory, "k") for _ in range(3)]
    waits = [purgatory.wait_until({"k": number}, 5) for number in range(1, 20)]
    assert account(purgatory) == (3, 22, 22, 0)

    gates[0].force_complete()
    assert account(purgatory) == (3, 21, 22, 0)
    if end == "advance":
        purgatory.advance("k", 19)
    elif end == "expire":
        timer.advance(5)
    else:
        for wait in waits:
            wait.cancel()
        await asyncio.sleep(0)
    assert account(purgatory) == (3, 2, 3, 0)
    gates[1].force_complete()
    assert account(purgatory) == (1, 1, 1, 1)  # 3 - 1 exceeds 1, with and without the waits


async def test_pending_waits_for_counters_do_not_delay_a_purge(timer: ManualTimer) -> None:
    """The estimate after a purge is the number of the pending operations in the lists."""
    purgatory = lazy(timer, 1)
    waits = [purgatory.wait_until({"k": number}, 5) for number in range(1, 20)]
    gates = [watch(purgatory, "k") for _ in range(5)]

    seen: list[tuple[int, int, int, int]] = []
    for gate in gates:
        gate.force_complete()
        seen.append(account(purgatory))

    assert seen == [(5, 23, 24, 0), (3, 22, 22, 1), (3, 21, 22, 1), (1, 20, 20, 2), (1, 19, 20, 2)]
    await purgatory.aclose()
    assert await asyncio.gather(*waits) == [False] * 19
    assert account(purgatory) == (0, 0, 0, 3)


async def test_the_estimate_of_exact_lists_leaves_out_waits_for_counters(
    timer: ManualTimer,
) -> None:
    """It is the number of pending operations that watch keys."""
    exact = Purgatory(timer=timer)
    wait = exact.wait_until({"k": 1}, 5)
    gate = watch(exact, "k")
    assert account(exact) == (1, 2, 2, 0)
    wait.cancel()
    await asyncio.sleep(0)
    assert account(exact) == (1, 1, 1, 0)
    gate.cancel()
    assert account(exact) == (0, 0, 0, 0)


def test_an_interval_of_0_purges_at_every_end(timer: ManualTimer) -> None:
    """The lists are as exact as without an interval, at the cost of a purge for every end."""
    purgatory = lazy(timer, 0)
    gates = [watch(purgatory, "k") for _ in range(3)]

    for gate in gates:
        gate.force_complete()

    assert account(purgatory) == (0, 0, 0, 3)
    assert purgatory.top_keys() == []


def test_a_check_removes_finished_operations(timer: ManualTimer) -> None:
    """The check removes their links under its key; the purge removes the others."""
    purgatory = lazy(timer, 1000)
    first = watch(purgatory, 1)
    second = watch(purgatory, 1, 2)
    third = watch(purgatory, 1, 2, 3)
    assert account(purgatory) == (3, 3, 6, 0)

    second.force_complete()
    assert account(purgatory) == (3, 2, 6, 0)
    third.force_complete()
    assert account(purgatory) == (3, 1, 6, 0)
    assert purgatory.check_and_complete(1) == 0
    assert account(purgatory) == (3, 1, 4, 0)
    purgatory.check_and_complete(2)
    assert account(purgatory) == (3, 1, 2, 0)
    purgatory.check_and_complete(3)
    assert account(purgatory) == (3, 1, 1, 0)
    assert (first.checks, second.checks, third.checks) == (3, 2, 2)
    assert purgatory.top_keys() == [(1, 1)]


def test_finished_operations_are_not_pending(timer: ManualTimer) -> None:
    """`pending` and a cancellation by key ignore finished operations."""
    purgatory = lazy(timer, 1000)
    done, waiting = watch(purgatory, "k"), watch(purgatory, "k")
    done.force_complete()

    assert list(purgatory.pending()) == [waiting]
    assert list(purgatory.pending("k")) == [waiting]
    assert purgatory.first_waiters("k", 1) == [(waiting, None)]
    assert purgatory.cancel_for_key("k") == [waiting]


def test_operations_watched_during_a_purge_are_kept(timer: ManualTimer) -> None:
    """An on_complete that watches again right after a purge finds its key alive."""
    purgatory = lazy(timer, 0)

    class Again(Gate):
        def on_complete(self) -> None:
            watch(purgatory, "k")

    purgatory.try_complete_else_watch(again := Again(30), ["k"])

    again.force_complete()

    assert account(purgatory) == (1, 1, 1, 1)


def test_a_purge_in_the_middle_of_a_check(timer: ManualTimer) -> None:
    """The purge removes a whole list during its check, which continues to its end."""
    purgatory = lazy(timer, 2)
    gates = [watch(purgatory, "k") for _ in range(10)]
    for gate in gates:
        gate.open = True

    assert purgatory.check_and_complete("k") == 10
    assert account(purgatory)[1] == 0


@pytest.mark.parametrize("drain", ["expire", "cancel"])
async def test_closing_purges_finished_operations(timer: ManualTimer, drain: Drain) -> None:
    """No later check or purge would remove the links."""
    purgatory = lazy(timer, 1000)
    watch(purgatory, "a", "b").force_complete()
    watch(purgatory, "b")

    await purgatory.aclose(drain=drain)

    assert account(purgatory) == (0, 0, 0, 1)


@pytest.mark.parametrize("closed", [True, False])
async def test_a_dropped_purgatory_drops_the_finished_in_its_lists(
    timer: ManualTimer, *, closed: bool
) -> None:
    """No links outlive a purgatory, closed or dropped."""
    purgatory = lazy(timer, 1000)
    gate = watch(purgatory, "a", "b", "c")
    gate.force_complete()
    purgatory.check_and_complete("b")  # removes one of the three links
    remains = weakref.ref(gate)
    del gate
    assert remains() is not None

    if closed:
        await purgatory.aclose()
    del purgatory
    gc.collect()

    assert remains() is None
