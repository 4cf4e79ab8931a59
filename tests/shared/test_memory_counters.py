"""The faults of the store in memory: the state after a crash at each statement."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import pytest

from aiowheel.errors import StoreUnavailableError
from aiowheel.testing import MemoryCounters

from .conftest import Process

pytestmark = [pytest.mark.one_build, pytest.mark.virtual_time]


class Recorder:
    """A listener that records all hints and gaps."""

    def __init__(self) -> None:
        self.hints: list[Mapping[str, int]] = []
        self.gaps = 0

    def hint(self, epoch: str, values: Mapping[str, int]) -> None:
        """Record a hint."""
        self.hints.append(dict(values))

    def gap(self) -> None:
        """Count a gap."""
        self.gaps += 1


async def test_a_crash_loses_what_was_not_synced() -> None:
    """The epoch stays, and every process gets a gap; the next crash loses nothing."""
    here = MemoryCounters()
    there, recorder = here.beside(), Recorder()
    await there.open(recorder)
    epoch = await here.raise_to({"a": 1, "b": 1})
    here.stop_syncing()
    await here.raise_to({"a": 2, "c": 3})
    await here.forget(["b"])

    here.crash()
    assert await there.read(["a", "b", "c"]) == (epoch, {"a": 1, "b": 1})
    assert (recorder.gaps, there.crashes) == (1, 1)

    await here.raise_to({"a": 5})
    here.crash()
    assert await there.read(["a"]) == (epoch, {"a": 5})
    await there.aclose()


async def test_the_epoch_of_an_unused_store_stays_at_a_crash() -> None:
    """The store has begun its epoch before it stops syncing, as a server does when it starts."""
    store = MemoryCounters()
    store.stop_syncing()
    epoch = await store.raise_to({"a": 1})

    store.crash()

    assert await store.read(["a"]) == (epoch, {})


@pytest.mark.parametrize(
    ("statements", "values", "hints"),
    [(1, {"a": 1}, []), (2, {"a": 2}, []), (3, {"a": 2}, [{"a": 2}]), (4, {"a": 2}, [{"a": 2}])],
)
async def test_a_crash_comes_at_each_statement_of_a_write(
    statements: int, values: Mapping[str, int], hints: list[Mapping[str, int]]
) -> None:
    """The crash precedes the change, the hints, or the answer, or comes in a later write."""
    store, recorder = MemoryCounters(), Recorder()
    await store.raise_to({"a": 1})
    await store.open(recorder)
    store.crash_after(statements)
    if statements < 4:
        with pytest.raises(StoreUnavailableError, match="crashed"):
            await store.raise_to({"a": 2})
    else:
        await store.raise_to({"a": 2})
    await asyncio.sleep(0)

    assert (await store.read(["a"]))[1] == values
    assert recorder.hints == hints
    assert recorder.gaps == (statements < 4)
    await store.aclose()


async def test_publishes_of_a_crash_are_made_again(process: Process) -> None:
    """The process also repeats publishes that it had already repeated after an earlier crash."""
    store = MemoryCounters()
    async with process(store, linger=5) as (_, publisher):
        store.stop_syncing()
        await publisher.advance("doc", 7)
        for number in range(5):
            await asyncio.sleep(3)
            await publisher.advance("other", number)
            store.crash()
            store.stop_syncing()
            await asyncio.sleep(1)
            assert (await store.read(["doc", "other"]))[1] == {"doc": 7, "other": number}


@pytest.mark.parametrize("statements", [0, -1, 1_000_001])
def test_a_number_of_statements_out_of_range_is_refused(statements: int) -> None:
    """The error has the legal range."""
    with pytest.raises(ValueError, match="statements must be from 1 to 1000000"):
        MemoryCounters().crash_after(statements)
