"""The fixtures of the tests of shared counters."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import pytest

from aiowheel import Purgatory
from aiowheel.shared import CounterStore, SharedCounters

from .servers import (
    PostgresServer,
    RedisServer,
    missing_is_skipped,
    postgres_that_stops,
    redis_that_stops,
)

Process = Callable[..., AbstractAsyncContextManager[tuple[Purgatory, SharedCounters]]]
Until = Callable[[Callable[[], object]], Awaitable[None]]


@pytest.fixture
def process() -> Process:
    """Open the objects of one process: a purgatory, and shared counters with it on a store."""

    @asynccontextmanager
    async def opened(
        store: CounterStore, **options: float
    ) -> AsyncGenerator[tuple[Purgatory, SharedCounters]]:
        async with (
            Purgatory("shared") as purgatory,
            SharedCounters(purgatory, store, **options) as shared,
        ):
            yield purgatory, shared

    return opened


@pytest.fixture
def until() -> Until:
    """Let time pass until a condition holds, at most for pytest's timeout."""

    async def turn(condition: Callable[[], object]) -> None:
        while not condition():  # noqa: ASYNC110 - the condition has no event
            await asyncio.sleep(0.005)

    return turn


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    """A PostgreSQL server that a test may stop, and must start again."""
    with missing_is_skipped(), postgres_that_stops() as server:
        yield server


@pytest.fixture(scope="session")
def steady_redis() -> Iterator[RedisServer]:
    """A Redis server that runs during all tests."""
    with missing_is_skipped(), redis_that_stops() as server:
        yield server


@pytest.fixture
def redis_server() -> Iterator[RedisServer]:
    """A Redis server without persistence, which loses all data at a restart."""
    with missing_is_skipped(), redis_that_stops() as server:
        yield server
