"""Watch lists that are purged lazily, by the seeds' estimate E of the operations in them.

E goes up by one for every operation that is watched, and is reset to the number of pending ones
before a purge, which comes when E minus pending exceeds the purge interval.
"""

import gc
import weakref

import pytest

from aiowheel import DelayedOperation, ManualTimer, Purgatory
from aiowheel._types import Drain


class Gate(DelayedOperation[None]):
    """Completes once it is opened."""

    open = False

    def try_complete(self) -> bool:
        """Whether it is open."""
        return self.open


def lazy(timer: ManualTimer, purge_interval: int) -> Purgatory:
    """A purgatory whose lists are purged lazily."""
    return Purgatory("lazy", timer=timer, purge_interval=purge_interval)


def watch(purgatory: Purgatory, *keys: object) -> Gate:
    """Watch a new operation."""
    gate = Gate(30)
    assert not purgatory.try_complete_else_watch(gate, keys)
    return gate


def account(purgatory: Purgatory) -> tuple[int, int, int, int]:
    """(E, pending, links, purges)."""
    statistics = purgatory.statistics()
    return (
        statistics.estimated_total,
        statistics.pending,
        statistics.watched,
        statistics.purges,
    )


def test_the_accounting_of_the_estimate(timer: ManualTimer) -> None:
    """Number by number, with a purge interval of 3 and two keys an operation."""
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
    """Five expire one by one with an interval of 1: purges at the second and at the fourth."""
    purgatory = lazy(timer, 1)
    for seconds in range(1, 6):
        purgatory.try_complete_else_watch(Gate(seconds), ["k"])

    seen: list[tuple[int, int, int, int]] = []
    for _ in range(5):
        timer.advance(1)
        seen.append(account(purgatory))

    assert seen == [(5, 4, 5, 0), (3, 3, 3, 1), (3, 2, 3, 1), (1, 1, 1, 2), (1, 0, 1, 2)]


def test_an_interval_of_0_purges_at_every_end(timer: ManualTimer) -> None:
    """The lists are as exact as without an interval, at the cost of a purge each."""
    purgatory = lazy(timer, 0)
    gates = [watch(purgatory, "k") for _ in range(3)]

    for gate in gates:
        gate.force_complete()

    assert account(purgatory) == (0, 0, 0, 3)
    assert purgatory.top_keys() == []


def test_a_check_takes_finished_operations_out_as_it_finds_them(timer: ManualTimer) -> None:
    """The links under the checked key go, the others wait for the purge; nobody is asked twice."""
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


def test_the_finished_are_not_pending(timer: ManualTimer) -> None:
    """Neither for `pending`, nor for a cancellation by key."""
    purgatory = lazy(timer, 1000)
    done, waiting = watch(purgatory, "k"), watch(purgatory, "k")
    done.force_complete()

    assert list(purgatory.pending()) == [waiting]
    assert list(purgatory.pending("k")) == [waiting]
    assert purgatory.cancel_for_key("k") == [waiting]


def test_operations_watched_during_a_purge_are_kept(timer: ManualTimer) -> None:
    """An on_complete that watches anew right after the purge it caused finds its key alive."""
    purgatory = lazy(timer, 0)

    class Again(Gate):
        def on_complete(self) -> None:
            watch(purgatory, "k")

    purgatory.try_complete_else_watch(again := Again(30), ["k"])

    again.force_complete()

    assert account(purgatory) == (1, 1, 1, 1)


def test_a_purge_in_the_middle_of_a_check(timer: ManualTimer) -> None:
    """All of a key's list is purged from under the walk, which goes on to its end."""
    purgatory = lazy(timer, 2)
    gates = [watch(purgatory, "k") for _ in range(10)]
    for gate in gates:
        gate.open = True

    assert purgatory.check_and_complete("k") == 10
    assert account(purgatory)[1] == 0


@pytest.mark.parametrize("drain", ["expire", "cancel"])
async def test_closing_purges_what_is_left(timer: ManualTimer, drain: Drain) -> None:
    """Nobody would come and find it."""
    purgatory = lazy(timer, 1000)
    watch(purgatory, "a", "b").force_complete()
    watch(purgatory, "b")

    await purgatory.aclose(drain=drain)

    assert account(purgatory) == (0, 0, 0, 1)


@pytest.mark.parametrize("closed", [True, False])
async def test_a_dropped_purgatory_drops_the_finished_in_its_lists(
    timer: ManualTimer, *, closed: bool
) -> None:
    """Closed or just forgotten: no ring of links outlives it."""
    purgatory = lazy(timer, 1000)
    gate = watch(purgatory, "a", "b", "c")
    gate.force_complete()
    purgatory.check_and_complete("b")  # takes one link of the three
    remains = weakref.ref(gate)
    del gate
    assert remains() is not None

    if closed:
        await purgatory.aclose()
    del purgatory
    gc.collect()

    assert remains() is None
