"""The tables of topics in PostgreSQL, for processes on several machines.

Rank 5; extra `postgres`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Any, TypeAlias, TypeVar

from aiowheel.serve._changes import Changes
from aiowheel.serve._limits import Limits
from aiowheel.serve._postgres_append import Append, columns_of
from aiowheel.serve._refusal import Refusal
from aiowheel.serve._topic_store import News, Totals
from aiowheel.serve._topic_tables import FORGET_AFTER, Question, StoredTopic, news_of
from aiowheel.shared import PostgresCounters

T = TypeVar("T")
Connection: TypeAlias = Any  # asyncpg has no types

_NAME = "aiowheel_topic"  # name of the counters, for their tables and channel
_SLICE = 1_000  # maximum rows that one transaction removes, so that publishes wait a short time
_NO_LIMIT = 2**62  # bytes

# Not to_regclass: after the wait for the lock, it may still return its cached result "no table".
_MADE = """
SELECT EXISTS (
    SELECT FROM pg_class WHERE relname = 'aiowheel_topic_totals' AND pg_table_is_visible(oid))
"""
_LOCK = "SELECT pg_catalog.pg_advisory_xact_lock(hashtext('aiowheel topics'))"
_TABLES = """
CREATE TABLE aiowheel_topics (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, name text COLLATE "C" NOT NULL UNIQUE,
    epoch text NOT NULL, version bigint NOT NULL, kept bigint NOT NULL, size bigint NOT NULL,
    change bigint NOT NULL, used float8 NOT NULL);
CREATE INDEX ON aiowheel_topics (used);
CREATE INDEX ON aiowheel_topics (change, id) WHERE kept > 0;
CREATE TABLE aiowheel_messages (
    topic bigint NOT NULL, version bigint NOT NULL, time float8 NOT NULL, size bigint NOT NULL,
    data bytea NOT NULL, PRIMARY KEY (topic, version));
CREATE INDEX ON aiowheel_messages (time);
CREATE TABLE aiowheel_removed_topics (name text COLLATE "C" PRIMARY KEY, time float8 NOT NULL);
CREATE TABLE aiowheel_topic_totals (
    one boolean PRIMARY KEY DEFAULT true CHECK (one), change bigint NOT NULL,
    topics bigint NOT NULL, size bigint NOT NULL, published bigint NOT NULL,
    dropped bigint NOT NULL, expired bigint NOT NULL);
INSERT INTO aiowheel_topic_totals VALUES (true, 0, 0, 0, 0, 0, 0);
"""
_NEXT_CHANGE = """
UPDATE aiowheel_topic_totals SET change = change + 1
RETURNING change, topics, size, extract(epoch FROM clock_timestamp())::float8 AS now
"""
_NEW_EPOCHS = """
UPDATE aiowheel_topics SET epoch = lpad(to_hex(floor(random() * 4294967296)::bigint), 8, '0')
"""
_LEAP = """
UPDATE aiowheel_topic_totals
SET change = greatest($1::bigint + 1, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint)
RETURNING change, topics, size, extract(epoch FROM clock_timestamp())::float8 AS now
"""
_TOTALS = "SELECT topics, size, published, dropped, expired FROM aiowheel_topic_totals"
_LAST_CHANGE = """
SELECT change, extract(epoch FROM clock_timestamp())::float8 AS now FROM aiowheel_topic_totals
"""
_STORED = "SELECT name, id, epoch, version FROM aiowheel_topics WHERE name = ANY($1::text[])"
# Returns at least one message more than fits, if there is one: `most` is compared with the bytes of
# the data alone, and the text of a message in the answer is longer.
_AFTER = """
SELECT wanted.number, message.version, message.time, message.data
FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::bigint[])
    AS wanted (number, topic, since, most)
CROSS JOIN LATERAL (
    SELECT version, time, data,
        sum(octet_length(data)) OVER (ORDER BY version) - octet_length(data) AS before
    FROM aiowheel_messages
    WHERE topic = wanted.topic AND version > wanted.since AND time > $5
) AS message
WHERE message.before <= wanted.most
ORDER BY 1, 2
"""
_TOUCH = """
UPDATE aiowheel_topics SET used = extract(epoch FROM clock_timestamp())::float8
WHERE id IN (SELECT id FROM aiowheel_topics WHERE name = ANY($1::text[]) ORDER BY id FOR UPDATE)
"""
_OLD = """
SELECT topic, max(version) AS last FROM (
    SELECT topic, version FROM aiowheel_messages WHERE time <= $1 ORDER BY time LIMIT $2) AS oldest
GROUP BY topic
"""
_DROP_OLD = """
WITH gone AS (
    DELETE FROM aiowheel_messages AS message
    USING unnest($1::bigint[], $2::bigint[]) AS old (topic, last)
    WHERE message.topic = old.topic AND message.version <= old.last
    RETURNING message.topic, message.size
), sums AS (
    SELECT topic, count(*) AS dropped, sum(size)::bigint AS size FROM gone GROUP BY topic
), shrunk AS (
    UPDATE aiowheel_topics AS old SET kept = old.kept - sums.dropped, size = old.size - sums.size
    FROM sums WHERE old.id = sums.topic
)
UPDATE aiowheel_topic_totals AS totals SET size = totals.size - all_of.size,
    dropped = totals.dropped + all_of.dropped
FROM (
    SELECT coalesce(sum(dropped), 0)::bigint AS dropped, coalesce(sum(size), 0)::bigint AS size
    FROM sums) AS all_of
"""
_UNUSED = "SELECT id, name FROM aiowheel_topics WHERE used <= $1 ORDER BY used LIMIT $2"
_NAMED = "SELECT id, name FROM aiowheel_topics WHERE name = $1"
_REMOVE = """
WITH messages AS (DELETE FROM aiowheel_messages WHERE topic = ANY($1::bigint[])),
gone AS (DELETE FROM aiowheel_topics WHERE id = ANY($1::bigint[]) RETURNING name, size, kept),
noted AS (
    INSERT INTO aiowheel_removed_topics SELECT name, $2 FROM gone
    ON CONFLICT (name) DO UPDATE SET time = excluded.time)
UPDATE aiowheel_topic_totals AS totals SET topics = totals.topics - all_of.count,
    size = totals.size - all_of.size, expired = totals.expired + $3::bigint * all_of.count,
    dropped = totals.dropped + $3::bigint * all_of.kept
FROM (
    SELECT count(*) AS count, coalesce(sum(size), 0)::bigint AS size,
        coalesce(sum(kept), 0)::bigint AS kept
    FROM gone) AS all_of
"""
_GONE = "SELECT name FROM aiowheel_removed_topics WHERE time <= $1 LIMIT $2"
_FORGET = """
WITH known AS (DELETE FROM aiowheel_removed_topics WHERE name = ANY($1::text[]) RETURNING name)
SELECT name FROM known WHERE NOT EXISTS (
    SELECT FROM aiowheel_topics WHERE aiowheel_topics.name = known.name)
"""


class PostgresTopics:
    """`TopicTables` in PostgreSQL, on the connections of its counters.

    Args:
        dsn: Address in asyncpg's form. Each service needs its own database or search path.
        limits: Limits of topics, messages and bytes.

    Attributes:
        counters: See `TopicTables`.

    Raises:
        MissingExtraError: asyncpg is not installed.
    """

    def __init__(self, dsn: str, limits: Limits) -> None:
        self.counters = PostgresCounters(dsn, name=_NAME, logged=True)
        self._limits = limits
        self._changes = Changes()
        self._prepared: Connection | None = None  # the connection on which the tables were found

    def key(self, name: str) -> str:
        """See `TopicTables`."""
        return name

    async def prepare(self) -> None:
        """See `TopicTables`."""

        async def nothing(_: Connection) -> None:
            return

        await self._write(nothing)

    async def append(
        self, messages: Sequence[tuple[str, bytes]]
    ) -> list[tuple[str, int] | Refusal]:
        """See `TopicTables`."""

        async def step(connection: Connection) -> list[tuple[str, int] | Refusal]:
            total = await self._next_change(connection)
            return await Append(self.counters, self._limits, connection, total).run(messages)

        return await self._write(step)

    async def read(self, questions: Collection[Question]) -> dict[Question, News]:
        """See `TopicTables`."""
        asked = list(questions)

        async def step(connection: Connection) -> tuple[int, dict[Question, News]]:
            last = await connection.fetchrow(_LAST_CHANGE)
            too_old = last["now"] - self._limits.kept_seconds
            names = list({each.name for each in asked})
            rows = await connection.fetch(_STORED, names)
            stored_topics = {name: StoredTopic(*row) for name, *row in rows}
            wanted = [
                (number, stored.key, stored.since(each.has) or 0, each.most or _NO_LIMIT)
                for number, each in enumerate(asked)
                if (stored := stored_topics.get(each.name)) is not None
            ]
            found: dict[int, list[tuple[int, float, bytes]]] = {}
            for number, *message in await connection.fetch(_AFTER, *columns_of(wanted, 4), too_old):
                found.setdefault(number, []).append((message[0], message[1], message[2]))
            change = last["change"]
            return change, {
                each: news_of(
                    each,
                    stored_topics.get(each.name),
                    found.get(number, ()),
                    too_old=too_old,
                    change=change,
                )
                for number, each in enumerate(asked)
            }

        return await self._changes.read(
            lambda: self.counters.query(step), lambda: self._write(self._next_change)
        )

    async def remove(self, name: str) -> bool:
        """See `TopicTables`."""

        async def step(connection: Connection) -> bool:
            total = await self._next_change(connection)
            topics = await connection.fetch(_NAMED, name)
            return await self._remove(connection, total, topics, expired=0)

        return await self._write(step)

    async def touch(self, names: Collection[str]) -> None:
        """See `TopicTables`."""
        await self._write(lambda connection: connection.execute(_TOUCH, list(names)))

    async def sweep(self, unused_for: float) -> bool:
        """See `TopicTables`."""

        async def has_work(connection: Connection) -> bool:
            now = (await connection.fetchrow(_LAST_CHANGE))["now"]
            return bool(
                await connection.fetch(_OLD, now - self._limits.kept_seconds, 1)
                or await connection.fetch(_UNUSED, now - unused_for, 1)
                or await connection.fetch(_GONE, now - FORGET_AFTER, 1)
            )

        async def step(connection: Connection) -> bool:
            total = await self._next_change(connection)  # its row lock excludes other writers
            now = total["now"]
            old = await connection.fetch(_OLD, now - self._limits.kept_seconds, _SLICE)
            keys, last = [row["topic"] for row in old], [row["last"] for row in old]
            await connection.execute(_DROP_OLD, keys, last)
            unused = await connection.fetch(_UNUSED, now - unused_for, _SLICE)
            await self._remove(connection, total, unused, expired=1)
            gone = await connection.fetch(_GONE, now - FORGET_AFTER, _SLICE)
            names = await connection.fetch(_FORGET, [name for (name,) in gone])
            await self.counters.forget_in(connection, [name for (name,) in names])
            return bool(old) or _SLICE in {len(unused), len(gone)}

        return await self.counters.query(has_work) and await self._write(step)

    async def totals(self) -> Totals:
        """See `TopicTables`."""
        row = await self.counters.query(lambda connection: connection.fetchrow(_TOTALS))
        return Totals(*row)

    async def _remove(
        self, connection: Connection, total: Any, topics: Sequence[Any], *, expired: int
    ) -> bool:
        """Remove *topics*; return whether there was at least one."""
        if not topics:
            return False
        await connection.execute(_REMOVE, [key for key, _ in topics], total["now"], expired)
        changes = {name: total["change"] for _, name in topics}
        await self.counters.raise_in(connection, changes)
        return True

    async def _next_change(self, connection: Connection) -> Any:
        """Number the transaction; begin new epochs if the database has lost changes."""
        total = await connection.fetchrow(_NEXT_CHANGE)
        if self._changes.shows_loss(total["change"]):
            await connection.execute(_NEW_EPOCHS)
            await self.counters.begin_anew_in(connection)
            total = await connection.fetchrow(_LEAP, self._changes.highest)
            self._changes.replace(total["change"])
        return total

    async def _write(self, step: Callable[[Connection], Awaitable[T]]) -> T:
        async def prepared(connection: Connection) -> tuple[int, T]:
            self._changes.taken()  # that of a transaction that was rolled back
            if connection is not self._prepared:
                if not await connection.fetchval(_MADE):
                    await connection.execute(_LOCK)
                    if not await connection.fetchval(_MADE):
                        await connection.execute(_TABLES)
                self._prepared = connection
            result = await step(connection)
            return self._changes.taken(), result

        change, result = await self.counters.write(prepared)
        self._changes.note(change)
        return result
