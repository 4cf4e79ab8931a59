"""Calls that share a run."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

pytest.importorskip("starlette")

from aiowheel.errors import StoreUnavailableError
from aiowheel.serve._grouped import Grouped

pytestmark = [pytest.mark.both_loops, pytest.mark.one_build]


async def test_every_call_ends_when_all_tasks_are_cancelled() -> None:
    """`asyncio.run` cancels the task of the runs too, and other tasks may call in their end."""
    begun = asyncio.Event()
    runs: list[list[int]] = []

    async def run(numbers: Sequence[int]) -> list[int]:
        runs.append(list(numbers))
        if len(runs) == 1:
            begun.set()
            await asyncio.Event().wait()
        return list(numbers)

    grouped: Grouped[int, int] = Grouped(run, 10)
    before = asyncio.all_tasks()
    first = grouped(1)
    await begun.wait()
    second = grouped(2)

    for task in asyncio.all_tasks() - before:
        task.cancel()

    with pytest.raises(StoreUnavailableError, match="may have been carried out"):
        await first
    assert await second == 2
    await grouped.drain()
    assert runs == [[1], [2]]
