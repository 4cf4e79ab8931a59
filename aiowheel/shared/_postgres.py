"""Shared counters in PostgreSQL, by asyncpg. Rank 4; extra `postgres`."""

from __future__ import annotations

class PostgresCounters: ...
