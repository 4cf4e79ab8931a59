"""The transaction that appends messages to topics in a SQLite file. Rank 5."""

from __future__ import annotations

import secrets
import sqlite3
import time
from collections.abc import Sequence

from aiowheel.serve._growth import GrowingTopic, Growth
from aiowheel.serve._limits import Limits
from aiowheel.serve._refusal import Refusal
from aiowheel.shared import SqliteCounters

PREFIX = "topic:"  #: prefix of the keys of topics' counters; the file may hold other counters

_SUMS = "SELECT topics, size FROM aiowheel_topic_totals"
_COUNT = """
UPDATE aiowheel_topic_totals SET topics = ?, size = ?, published = published + ?,
    dropped = dropped + ?
"""
_TOPIC = "SELECT id, epoch, version, kept, size FROM aiowheel_topics WHERE name = ?"
_NEW_TOPIC = "INSERT INTO aiowheel_topics VALUES (NULL, ?, ?, 0, 0, 0, 0, 0) RETURNING id"
_SET_TOPIC = """
UPDATE aiowheel_topics SET version = ?, kept = ?, size = ?, change = ?, used = ? WHERE id = ?
"""
_ADD = "INSERT INTO aiowheel_messages (topic, version, size, data, time) VALUES (?, ?, ?, ?, ?)"
_SIZES = "SELECT version, size FROM aiowheel_messages WHERE topic = ? ORDER BY version"
DROP = "DELETE FROM aiowheel_messages WHERE topic = ? AND version <= ?"
_LONGEST_AGO = """
SELECT id, kept, size FROM aiowheel_topics WHERE kept > 0 ORDER BY change, id LIMIT 2
"""
SHRINK = "UPDATE aiowheel_topics SET kept = kept - ?, size = size - ? WHERE id = ?"


class Append:
    """One transaction that appends messages, on the thread of the connection; call `run` once.

    Args:
        counters: Advanced to the change of the transaction.
        limits: Limits of topics, messages and bytes.
        file: A connection in a transaction.
        change: Number of the transaction.
    """

    def __init__(
        self, counters: SqliteCounters, limits: Limits, file: sqlite3.Connection, change: int
    ) -> None:
        self._counters = counters
        self._file = file
        self._time = time.time()
        self._change = change
        ((count, size),) = file.execute(_SUMS).fetchall()
        self._growth = Growth(limits, count, size)

    def run(self, messages: Sequence[tuple[str, bytes]]) -> list[tuple[str, int] | Refusal]:
        """Append messages; return for each its epoch and version, or the refusal."""
        growth = self._growth
        for name in dict.fromkeys(name for name, _ in messages):
            self._find(name)
        results, rows = growth.append(messages)
        self._file.executemany(_ADD, [(*row, self._time) for row in rows])
        for name, topic in growth.topics.items():
            if topic.is_too_large(growth.limits):
                growth.trim(topic, self._file.execute(_SIZES, (topic.key,)))
                self._file.execute(DROP, (topic.key, topic.dropped_to))
            values = (topic.version, topic.kept, topic.size, self._change, self._time, topic.key)
            self._file.execute(_SET_TOPIC, values)
            self._counters.advance_in(self._file, PREFIX + name, self._change)
        self._make_room()
        self._file.execute(_COUNT, (growth.count, growth.size, len(rows), growth.dropped))
        return results

    def _find(self, name: str) -> None:
        """Read a topic, or create it below the limit of topics."""
        growth = self._growth
        row = self._file.execute(_TOPIC, (name,)).fetchone()
        if row is not None:
            growth.topics[name] = GrowingTopic(*row)
        elif growth.count < growth.limits.topics:
            growth.count += 1
            epoch = secrets.token_hex(4)
            ((key,),) = self._file.execute(_NEW_TOPIC, (name, epoch)).fetchall()
            growth.topics[name] = GrowingTopic(key, epoch, 0, 0, 0)

    def _make_room(self) -> None:
        """Drop messages of the topics with the oldest last publish, down to the limit of bytes."""
        growth = self._growth
        while growth.size > growth.limits.kept_bytes_in_all:
            topics = self._file.execute(_LONGEST_AGO).fetchall()
            if len(topics) < 2:
                return
            key, kept, size = topics[0]
            oldest = self._file.execute(_SIZES, (key,))
            dropped, size, last = growth.make_room(kept, size, oldest)
            self._file.execute(DROP, (key, last))
            self._file.execute(SHRINK, (dropped, size, key))
