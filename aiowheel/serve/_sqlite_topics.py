"""The tables of topics in a SQLite file, for the processes of one machine. Rank 5."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Collection, Sequence
from typing import TypeVar

from aiowheel.serve._changes import Changes
from aiowheel.serve._limits import Limits
from aiowheel.serve._refusal import Refusal
from aiowheel.serve._sqlite_append import DROP, PREFIX, SHRINK, Append
from aiowheel.serve._topic_store import News, Totals
from aiowheel.serve._topic_tables import FORGET_AFTER, Question, StoredTopic, news_of
from aiowheel.shared import SqliteCounters

T = TypeVar("T")

_SLICE = 1_000  # maximum rows that one transaction removes, so that publishes wait a short time

_MADE = "SELECT 1 FROM sqlite_master WHERE name = 'aiowheel_topic_totals'"
_TABLES = (
    """CREATE TABLE aiowheel_topics (
    id INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL UNIQUE, epoch TEXT NOT NULL,
    version INTEGER NOT NULL, kept INTEGER NOT NULL, size INTEGER NOT NULL,
    change INTEGER NOT NULL, used REAL NOT NULL)""",
    "CREATE INDEX aiowheel_topics_used ON aiowheel_topics (used)",
    "CREATE INDEX aiowheel_topics_change ON aiowheel_topics (change) WHERE kept > 0",
    """CREATE TABLE aiowheel_messages (
    topic INTEGER NOT NULL, version INTEGER NOT NULL, time REAL NOT NULL, size INTEGER NOT NULL,
    data BLOB NOT NULL)""",
    "CREATE UNIQUE INDEX aiowheel_messages_version ON aiowheel_messages (topic, version)",
    "CREATE INDEX aiowheel_messages_time ON aiowheel_messages (time)",
    "CREATE TABLE aiowheel_removed_topics (name TEXT PRIMARY KEY, time REAL NOT NULL)",
    """CREATE TABLE aiowheel_topic_totals (
    one INTEGER PRIMARY KEY CHECK (one = 1), change INTEGER NOT NULL, topics INTEGER NOT NULL,
    size INTEGER NOT NULL, published INTEGER NOT NULL, dropped INTEGER NOT NULL,
    expired INTEGER NOT NULL)""",
    "INSERT INTO aiowheel_topic_totals VALUES (1, 0, 0, 0, 0, 0, 0)",
)
_TOTALS = "SELECT topics, size, published, dropped, expired FROM aiowheel_topic_totals"
_LAST_CHANGE = "SELECT change FROM aiowheel_topic_totals"
_NEXT_CHANGE = "UPDATE aiowheel_topic_totals SET change = change + 1 RETURNING change"
_NEW_EPOCHS = "UPDATE aiowheel_topics SET epoch = lower(hex(randomblob(4)))"
_LEAP = "UPDATE aiowheel_topic_totals SET change = max(?, ?) RETURNING change"
_STORED = "SELECT id, epoch, version FROM aiowheel_topics WHERE name = ?"
_AFTER = """
SELECT version, time, data FROM aiowheel_messages WHERE topic = ? AND version > ? ORDER BY version
"""
_TOUCH = "UPDATE aiowheel_topics SET used = ? WHERE name = ?"
_OLD = """
SELECT topic, max(version) FROM (
    SELECT topic, version FROM aiowheel_messages WHERE time <= ? ORDER BY time LIMIT ?)
GROUP BY topic
"""
_UP_TO = "SELECT count(*), total(size) FROM aiowheel_messages WHERE topic = ? AND version <= ?"
_COUNT_DROPPED = "UPDATE aiowheel_topic_totals SET size = size - ?, dropped = dropped + ?"
_UNUSED = "SELECT id, name, size, kept FROM aiowheel_topics WHERE used <= ? ORDER BY used LIMIT ?"
_NAMED = "SELECT id, name, size, kept FROM aiowheel_topics WHERE name = ?"
_REMOVE_MESSAGES = "DELETE FROM aiowheel_messages WHERE topic = ?"
_REMOVE_TOPIC = "DELETE FROM aiowheel_topics WHERE id = ?"
_NOTE_REMOVED = "INSERT OR REPLACE INTO aiowheel_removed_topics VALUES (?, ?)"
_COUNT_REMOVED = """
UPDATE aiowheel_topic_totals SET topics = topics - 1, size = size - ?, dropped = dropped + ?,
    expired = expired + ?
"""
_GONE = "SELECT name FROM aiowheel_removed_topics WHERE time <= ? LIMIT ?"
_EXISTS = "SELECT 1 FROM aiowheel_topics WHERE name = ?"
_FORGET_REMOVED = "DELETE FROM aiowheel_removed_topics WHERE name = ?"


class _TablesMissingError(Exception):
    """The file has no tables, because it is new or has replaced another file."""


class SqliteTopics:
    """`TopicTables` in a SQLite file; the statements run on the threads of its counters.

    Every write is synced to the disk: a message survives a loss of power once its publisher has the
    receipt.

    Args:
        path: Path of the file, on a local disk. A missing file is created, a missing folder is not.
        limits: Limits of topics, messages and bytes.

    Attributes:
        counters: See `TopicTables`.
    """

    def __init__(self, path: str, limits: Limits) -> None:
        self.counters = SqliteCounters(path, synced=True)
        self._limits = limits
        self._changes = Changes()
        # The connections on which the tables were found. If the file is replaced, the counters open
        # new connections, and the tables are looked up again.
        self._writing: sqlite3.Connection | None = None
        self._reading: sqlite3.Connection | None = None

    def key(self, name: str) -> str:
        """See `TopicTables`."""
        return PREFIX + name

    async def prepare(self) -> None:
        """See `TopicTables`."""
        await self._write(lambda _: None)

    async def append(
        self, messages: Sequence[tuple[str, bytes]]
    ) -> list[tuple[str, int] | Refusal]:
        """See `TopicTables`."""

        def step(file: sqlite3.Connection) -> list[tuple[str, int] | Refusal]:
            change = self._next_change(file)
            return Append(self.counters, self._limits, file, change).run(messages)

        return await self._write(step)

    async def read(self, questions: Collection[Question]) -> dict[Question, News]:
        """See `TopicTables`."""
        too_old = time.time() - self._limits.kept_seconds

        def step(file: sqlite3.Connection) -> tuple[int, dict[Question, News]]:
            ((change,),) = file.execute(_LAST_CHANGE).fetchall()
            return change, {each: _answered(file, each, too_old, change) for each in questions}

        return await self._changes.read(
            lambda: self._query(step), lambda: self._write(self._next_change)
        )

    async def remove(self, name: str) -> bool:
        """See `TopicTables`."""

        def step(file: sqlite3.Connection) -> bool:
            return self._remove(file, file.execute(_NAMED, (name,)).fetchall(), expired=0)

        return await self._write(step)

    async def touch(self, names: Collection[str]) -> None:
        """See `TopicTables`."""
        now = time.time()
        await self._write(lambda file: file.executemany(_TOUCH, [(now, name) for name in names]))

    async def sweep(self, unused_for: float) -> bool:
        """See `TopicTables`."""
        now = time.time()

        def step(file: sqlite3.Connection) -> bool:
            old = self._drop_old(file, now - self._limits.kept_seconds)
            unused = file.execute(_UNUSED, (now - unused_for, _SLICE)).fetchall()
            self._remove(file, unused, expired=1)
            gone = self._forget_counters(file, now - FORGET_AFTER)
            return old or len(unused) == _SLICE or gone

        def has_work(file: sqlite3.Connection) -> bool:  # a read: an idle service writes nothing
            old = file.execute(_OLD, (now - self._limits.kept_seconds, 1)).fetchone()
            unused = file.execute(_UNUSED, (now - unused_for, 1)).fetchone()
            gone = file.execute(_GONE, (now - FORGET_AFTER, 1)).fetchone()
            return any((old, unused, gone))

        return await self._query(has_work) and await self._write(step)

    async def totals(self) -> Totals:
        """See `TopicTables`."""
        ((*values,),) = await self._query(lambda file: file.execute(_TOTALS).fetchall())
        return Totals(*values)

    # --- parts of a transaction -------------------------------------------------------------

    def _drop_old(self, file: sqlite3.Connection, too_old: float) -> bool:
        """Drop messages by age; return whether there may be more to drop."""
        in_all = 0
        for key, last in file.execute(_OLD, (too_old, _SLICE)).fetchall():
            ((dropped, size),) = file.execute(_UP_TO, (key, last)).fetchall()
            file.execute(DROP, (key, last))
            file.execute(SHRINK, (dropped, int(size), key))
            file.execute(_COUNT_DROPPED, (int(size), dropped))
            in_all += dropped
        return in_all >= _SLICE

    def _remove(
        self, file: sqlite3.Connection, topics: list[tuple[int, str, int, int]], *, expired: int
    ) -> bool:
        """Remove *topics*; return whether there was at least one.

        Args:
            file: The connection.
            topics: Id and name of each topic, with the size and the number of its messages.
            expired: 1 if the topics have expired, 0 if a client removes them.
        """
        if not topics:
            return False
        change = self._next_change(file)
        now = time.time()
        for key, name, size, kept in topics:
            file.execute(_REMOVE_MESSAGES, (key,))
            file.execute(_REMOVE_TOPIC, (key,))
            file.execute(_NOTE_REMOVED, (name, now))
            file.execute(_COUNT_REMOVED, (size, expired * kept, expired))
            self.counters.advance_in(file, PREFIX + name, change)
        return True

    def _forget_counters(self, file: sqlite3.Connection, until: float) -> bool:
        """Delete counters of topics removed by *until*; return whether there may be more."""
        names = [name for (name,) in file.execute(_GONE, (until, _SLICE)).fetchall()]
        for name in names:
            if file.execute(_EXISTS, (name,)).fetchone() is None:
                self.counters.forget_in(file, [PREFIX + name])
            file.execute(_FORGET_REMOVED, (name,))
        return len(names) == _SLICE

    # --- the tables -------------------------------------------------------------------------

    def _next_change(self, file: sqlite3.Connection) -> int:
        """Number the transaction; begin new epochs if the file has lost changes."""
        change: int
        ((change,),) = file.execute(_NEXT_CHANGE).fetchall()
        if self._changes.shows_loss(change):
            file.execute(_NEW_EPOCHS)
            self.counters.begin_anew_in(file)
            numbers = (self._changes.highest + 1, time.time_ns() // 1_000)
            ((change,),) = file.execute(_LEAP, numbers).fetchall()
            self._changes.replace(change)
        return change

    async def _write(self, step: Callable[[sqlite3.Connection], T]) -> T:
        def prepared(file: sqlite3.Connection) -> tuple[int, T]:
            self._changes.taken()  # that of a transaction that was rolled back
            if file is not self._writing:
                if file.execute(_MADE).fetchone() is None:
                    for statement in _TABLES:
                        file.execute(statement)
                self._writing = file
            result = step(file)
            return self._changes.taken(), result

        change, result = await self.counters.write(prepared)
        self._changes.note(change)
        return result

    async def _query(self, step: Callable[[sqlite3.Connection], T]) -> T:
        def prepared(file: sqlite3.Connection) -> T:
            if file is not self._reading:
                if file.execute(_MADE).fetchone() is None:
                    raise _TablesMissingError
                self._reading = file
            return step(file)

        try:
            return await self.counters.query(prepared)
        except _TablesMissingError:
            await self.prepare()
            return await self.counters.query(prepared)


def _answered(file: sqlite3.Connection, question: Question, too_old: float, change: int) -> News:
    row = file.execute(_STORED, (question.name,)).fetchone()
    if row is None:
        return news_of(question, None, (), too_old=too_old, change=change)
    stored = StoredTopic(*row)
    messages = file.execute(_AFTER, (stored.key, stored.since(question.has) or 0))
    return news_of(question, stored, messages, too_old=too_old, change=change)
