"""The transaction that appends messages to topics in PostgreSQL. Rank 5; extra `postgres`.

The number of statements does not grow with the number of messages. The transaction locks the row of
the totals first, so that changes are committed in the order of their numbers.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import Any

from aiowheel.serve._growth import GrowingTopic, Growth
from aiowheel.serve._limits import Limits
from aiowheel.serve._refusal import Refusal
from aiowheel.shared import PostgresCounters

_SLICE = 100  # messages that are read per query, to find those that must be dropped

_FOUND = """
SELECT id, name, epoch, version, kept, size FROM aiowheel_topics WHERE name = ANY($1::text[])
"""
_MAKE = """
INSERT INTO aiowheel_topics (name, epoch, version, kept, size, change, used)
SELECT name, epoch, 0, 0, 0, 0, 0 FROM unnest($1::text[], $2::text[]) AS made (name, epoch)
RETURNING id, name, epoch
"""
_ADD = """
INSERT INTO aiowheel_messages (topic, version, time, size, data)
SELECT topic, version, $5, size, data
FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::bytea[])
    AS added (topic, version, size, data)
"""
_SET = """
UPDATE aiowheel_topics SET version = new.version, kept = new.kept, size = new.size, change = $5,
    used = $6
FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::bigint[])
    AS new (topic, version, kept, size)
WHERE id = new.topic
"""
_SIZES = """
SELECT wanted.topic, message.version, message.size
FROM unnest($1::bigint[], $2::bigint[], $3::bigint[]) AS wanted (topic, above, most)
CROSS JOIN LATERAL (
    SELECT version, size FROM aiowheel_messages
    WHERE topic = wanted.topic AND version > wanted.above ORDER BY version LIMIT wanted.most
) AS message
ORDER BY 1, 2
"""
_DROP = """
DELETE FROM aiowheel_messages AS message
USING unnest($1::bigint[], $2::bigint[]) AS dropped (topic, last)
WHERE message.topic = dropped.topic AND message.version <= dropped.last
"""
_COUNT = """
UPDATE aiowheel_topic_totals SET topics = $1, size = $2, published = published + $3,
    dropped = dropped + $4
"""
_LONGEST_AGO = """
SELECT id, kept, size FROM aiowheel_topics WHERE kept > 0 ORDER BY change, id LIMIT 2
"""
_SHRINK = "UPDATE aiowheel_topics SET kept = kept - $2, size = size - $3 WHERE id = $1"


class Append:
    """One transaction that appends messages; call `run` once.

    Args:
        counters: Advanced to the change of the transaction.
        limits: Limits of topics, messages and bytes.
        connection: An asyncpg connection in a transaction.
        total: Change of the transaction, time, and totals of topics and bytes.
    """

    def __init__(
        self,
        counters: PostgresCounters,
        limits: Limits,
        connection: Any,
        total: Any,
    ) -> None:
        self._counters = counters
        self._connection = connection
        self._total = total
        self._growth = Growth(limits, total["topics"], total["size"])

    async def run(self, messages: Sequence[tuple[str, bytes]]) -> list[tuple[str, int] | Refusal]:
        """Append messages; return for each its epoch and version, or the refusal."""
        connection, total, growth = self._connection, self._total, self._growth
        change: int = total["change"]
        await self._find(list(dict.fromkeys(name for name, _ in messages)))
        results, rows = growth.append(messages)
        await connection.execute(_ADD, *columns_of(rows, 4), total["now"])
        await self._trim()
        states = [(each.key, each.version, each.kept, each.size) for each in growth.topics.values()]
        await connection.execute(_SET, *columns_of(states, 4), change, total["now"])
        await self._make_room()
        await connection.execute(_COUNT, growth.count, growth.size, len(rows), growth.dropped)
        await self._counters.raise_in(connection, dict.fromkeys(growth.topics, change))
        return results

    async def _find(self, names: list[str]) -> None:
        """Read the topics, and create missing ones up to the limit of topics."""
        growth = self._growth
        for row in await self._connection.fetch(_FOUND, names):
            key, name, *rest = row
            growth.topics[name] = GrowingTopic(key, *rest)
        missing = [name for name in names if name not in growth.topics]
        missing = missing[: max(0, growth.limits.topics - growth.count)]
        if missing:
            epochs = [secrets.token_hex(4) for _ in missing]
            for key, name, epoch in await self._connection.fetch(_MAKE, missing, epochs):
                growth.topics[name] = GrowingTopic(key, epoch, 0, 0, 0)
            growth.count += len(missing)

    async def _trim(self) -> None:
        """Drop the oldest messages of the topics above the limits per topic."""
        growth, limits = self._growth, self._growth.limits
        large: dict[int, GrowingTopic] = {
            each.key: each for each in growth.topics.values() if each.is_too_large(limits)
        }
        trimmed = list(large.values())
        while large:
            wanted = [
                (each.key, each.dropped_to, max(_SLICE, each.kept - limits.kept_messages))
                for each in large.values()
            ]
            rows = await self._connection.fetch(_SIZES, *columns_of(wanted, 3))
            for key in large.keys() - {row["topic"] for row in rows}:
                topic = large[key]  # another program has deleted its messages
                growth.size -= topic.size
                topic.kept = topic.size = 0
            for key, version, size in rows:
                growth.trim(large[key], [(version, size)])
            large = {key: each for key, each in large.items() if each.is_too_large(limits)}
        if trimmed:
            last = [(each.key, each.dropped_to) for each in trimmed]
            await self._connection.execute(_DROP, *columns_of(last, 2))

    async def _make_room(self) -> None:
        """Drop messages of the topics with the oldest last publish, down to the limit of bytes."""
        growth = self._growth
        while growth.size > growth.limits.kept_bytes_in_all:
            topics = await self._connection.fetch(_LONGEST_AGO)
            if len(topics) < 2:
                return
            key, kept, size = topics[0]
            rows = await self._connection.fetch(_SIZES, [key], [0], [_SLICE])
            oldest = [(version, each) for _, version, each in rows]
            dropped, size, last = growth.make_room(kept, size, oldest)
            await self._connection.execute(_DROP, [key], [last])
            await self._connection.execute(_SHRINK, key, dropped, size)


def columns_of(rows: Sequence[tuple[object, ...]], count: int) -> list[list[object]]:
    """Return the columns of *rows* as arrays, for `unnest`."""
    return [[row[number] for row in rows] for number in range(count)]
