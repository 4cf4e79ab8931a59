"""A real PostgreSQL, and databases on it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from importlib import import_module
from itertools import count
from typing import Any

import pytest

from benchmarks._postgres import PostgresMissingError, postgres_server

_numbers = count()


@pytest.fixture(scope="session")
def postgres() -> Iterator[str]:
    """The address of a server that runs during all tests."""
    pytest.importorskip("asyncpg")
    try:
        with postgres_server() as address:
            yield address
    except PostgresMissingError as missing:
        pytest.skip(str(missing))


@pytest.fixture
async def database(postgres: str) -> AsyncIterator[str]:
    """The address of an empty database."""
    asyncpg: Any = import_module("asyncpg")  # it has no types
    name = f"durable_{next(_numbers)}"
    connection = await asyncpg.connect(postgres)
    await connection.execute(f"CREATE DATABASE {name}")
    yield f"{postgres.rpartition('/')[0]}/{name}"
    await connection.execute(f"DROP DATABASE {name} WITH (FORCE)")
    await connection.close()
