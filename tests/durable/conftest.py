"""Databases on a real PostgreSQL."""

from __future__ import annotations

from collections.abc import AsyncIterator
from importlib import import_module
from itertools import count
from typing import Any

import pytest

_numbers = count()


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
