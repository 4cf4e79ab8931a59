"""What the tests of shared counters share."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import pytest

from aiowheel import Purgatory
from aiowheel.bench._postgres import PostgresMissingError, postgres_server
from aiowheel.bench._redis import RedisMissingError, redis_server
from aiowheel.shared import CounterStore, SharedCounters

Process = Callable[..., AbstractAsyncContextManager[tuple[Purgatory, SharedCounters]]]
Until = Callable[[Callable[[], object]], Awaitable[None]]


@pytest.fixture
def process() -> Process:
    """Open what one process has: a purgatory, and shared counters over it on a store."""

    @asynccontextmanager
    async def opened(
        store: CounterStore, **options: float
    ) -> AsyncIterator[tuple[Purgatory, SharedCounters]]:
        async with (
            Purgatory("shared") as purgatory,
            SharedCounters(purgatory, store, **options) as shared,
        ):
            yield purgatory, shared

    return opened


@pytest.fixture
def until() -> Until:
    """Let time pass until a condition holds; pytest's timeout is the bound."""

    async def turn(condition: Callable[[], object]) -> None:
        while not condition():  # noqa: ASYNC110 - what is waited for sets no event
            await asyncio.sleep(0.005)

    return turn


@pytest.fixture(scope="session")
def postgres() -> Iterator[str]:
    """The address of a real PostgreSQL, which lives as long as the tests do."""
    try:
        with postgres_server() as address:
            yield address
    except PostgresMissingError as missing:
        pytest.skip(str(missing))


@pytest.fixture(scope="session")
def redis() -> Iterator[str]:
    """The address of a real Redis, which lives as long as the tests do."""
    try:
        with redis_server() as path:
            yield f"unix://{path}"
    except RedisMissingError as missing:
        pytest.skip(str(missing))
