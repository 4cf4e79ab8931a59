"""The transaction that appends messages to topics in PostgreSQL. Rank 5; extra `postgres`.

The number of statements does not grow with the number of messages. The transaction locks the row of
the totals first, so that changes are committed in the order of their numbers.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import Any

from aiowheel.serve._limits import Limits
from aiowheel.serve._refusal import Refusal
from aiowheel.serve._topic_tables import GrowingTopic
from aiowheel.serve._topics import OVERHEAD, too_many_topics
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
        self._limits = limits
        self._connection = connection
        self._total = total
        self._topics: dict[str, GrowingTopic] = {}
        self._count: int = total["topics"]
        self._size: int = total["size"]
        self._dropped = 0

    async def run(self, messages: Sequence[tuple[str, bytes]]) -> list[tuple[str, int] | Refusal]:
        """Append messages; return for each its epoch and version, or the refusal."""
        connection, total = self._connection, self._total
        change: int = total["change"]
        await self._find(list(dict.fromkeys(name for name, _ in messages)))
        results: list[tuple[str, int] | Refusal] = []
        rows: list[tuple[int, int, int, bytes]] = []
        for name, data in messages:
            topic = self._topics.get(name)
            if topic is None:
                results.append(too_many_topics(name, self._limits.topics))
                continue
            size = len(data) + OVERHEAD
            topic.add(size)
            self._size += size
            rows.append((topic.key, topic.version, size, data))
            results.append((topic.epoch, topic.version))
        await connection.execute(_ADD, *columns_of(rows, 4), total["now"])
        await self._trim()
        states = [(each.key, each.version, each.kept, each.size) for each in self._topics.values()]
        await connection.execute(_SET, *columns_of(states, 4), change, total["now"])
        await self._make_room()
        await connection.execute(_COUNT, self._count, self._size, len(rows), self._dropped)
        await self._counters.raise_in(connection, dict.fromkeys(self._topics, change))
        return results

    async def _find(self, names: list[str]) -> None:
        """Read the topics, and create missing ones up to the limit of topics."""
        for row in await self._connection.fetch(_FOUND, names):
            key, name, *rest = row
            self._topics[name] = GrowingTopic(key, *rest)
        missing = [name for name in names if name not in self._topics]
        missing = missing[: max(0, self._limits.topics - self._count)]
        if missing:
            epochs = [secrets.token_hex(4) for _ in missing]
            for key, name, epoch in await self._connection.fetch(_MAKE, missing, epochs):
                self._topics[name] = GrowingTopic(key, epoch, 0, 0, 0)
            self._count += len(missing)

    async def _trim(self) -> None:
        """Drop the oldest messages of the topics above the limits per topic."""
        limits = self._limits
        large: dict[int, GrowingTopic] = {
            each.key: each for each in self._topics.values() if each.is_too_large(limits)
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
                self._size -= topic.size
                topic.kept = topic.size = 0
            for key, version, size in rows:
                topic = large[key]
                if topic.is_too_large(limits):
                    topic.drop(version, size)
                    self._dropped += 1
                    self._size -= size
            large = {key: each for key, each in large.items() if each.is_too_large(limits)}
        if trimmed:
            last = [(each.key, each.dropped_to) for each in trimmed]
            await self._connection.execute(_DROP, *columns_of(last, 2))

    async def _make_room(self) -> None:
        """Drop messages of the topics with the oldest last publish, down to the limit of bytes."""
        most = self._limits.kept_bytes_in_all
        while self._size > most:
            topics = await self._connection.fetch(_LONGEST_AGO)
            if len(topics) < 2:
                return
            key = topics[0]["id"]
            dropped, size, last = 0, 0, 0
            for _, version, each in await self._connection.fetch(_SIZES, [key], [0], [_SLICE]):
                if self._size - size <= most:
                    break
                dropped, size, last = dropped + 1, size + each, version
            if not dropped:  # another program has deleted the messages
                dropped, size = topics[0]["kept"], topics[0]["size"]
            await self._connection.execute(_DROP, [key], [last])
            await self._connection.execute(_SHRINK, key, dropped, size)
            self._dropped += dropped
            self._size -= size


def columns_of(rows: Sequence[tuple[object, ...]], count: int) -> list[list[object]]:
    """Return the columns of *rows* as arrays, for `unnest`."""
    return [[row[number] for row in rows] for number in range(count)]
