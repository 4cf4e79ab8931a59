"""What the tests of shared counters share."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import pytest

from aiowheel import Purgatory
from aiowheel.bench._postgres import PostgresMissingError
from aiowheel.bench._redis import RedisMissingError
from aiowheel.shared import CounterStore, SharedCounters

from .servers import PostgresServer, RedisServer, postgres_that_stops, redis_that_stops

# `examples.production` is imported from the checkout; last, for the build may be elsewhere.
sys.path.append(str(Path(__file__).parent.parent.parent))

Process = Callable[..., AbstractAsyncContextManager[tuple[Purgatory, SharedCounters]]]
Until = Callable[[Callable[[], object]], Awaitable[None]]


@pytest.fixture
def process() -> Process:
    """Open what one process has: a purgatory, and shared counters over it on a store."""

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
    """Let time pass until a condition holds; pytest's timeout is the bound."""

    async def turn(condition: Callable[[], object]) -> None:
        while not condition():  # noqa: ASYNC110 - what is waited for sets no event
            await asyncio.sleep(0.005)

    return turn


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    """A PostgreSQL that tests may stop; each leaves it running."""
    try:
        with postgres_that_stops() as server:
            yield server
    except PostgresMissingError as missing:
        pytest.skip(str(missing))


@pytest.fixture(scope="session")
def steady_redis() -> Iterator[RedisServer]:
    """A Redis that runs as long as the tests do."""
    try:
        with redis_that_stops() as server:
            yield server
    except RedisMissingError as missing:
        pytest.skip(str(missing))


@pytest.fixture
def redis_server() -> Iterator[RedisServer]:
    """A Redis without a disk: a restart loses everything."""
    try:
        with redis_that_stops() as server:
            yield server
    except RedisMissingError as missing:
        pytest.skip(str(missing))
