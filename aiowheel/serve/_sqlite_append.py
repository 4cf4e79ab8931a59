"""The transaction that appends messages to topics in a SQLite file. Rank 5."""

from __future__ import annotations

import secrets
import sqlite3
import time
from collections.abc import Sequence

from aiowheel.serve._limits import Limits
from aiowheel.serve._refusal import Refusal
from aiowheel.serve._topic_tables import GrowingTopic
from aiowheel.serve._topics import OVERHEAD, too_many_topics
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
_ADD = "INSERT INTO aiowheel_messages VALUES (?, ?, ?, ?, ?)"
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
        self._limits = limits
        self._file = file
        self._time = time.time()
        self._topics: dict[str, GrowingTopic] = {}
        self._dropped = 0
        self._change = change
        ((self._count, self._size),) = file.execute(_SUMS).fetchall()

    def run(self, messages: Sequence[tuple[str, bytes]]) -> list[tuple[str, int] | Refusal]:
        """Append messages; return for each its epoch and version, or the refusal."""
        results: list[tuple[str, int] | Refusal] = []
        rows: list[tuple[int, int, float, int, bytes]] = []
        for name, data in messages:
            topic = self._topic(name)
            if topic is None:
                results.append(too_many_topics(name, self._limits.topics))
                continue
            size = len(data) + OVERHEAD
            topic.add(size)
            self._size += size
            rows.append((topic.key, topic.version, self._time, size, data))
            results.append((topic.epoch, topic.version))
        self._file.executemany(_ADD, rows)
        for name, topic in self._topics.items():
            self._trim(topic)
            values = (topic.version, topic.kept, topic.size, self._change, self._time, topic.key)
            self._file.execute(_SET_TOPIC, values)
            self._counters.advance_in(self._file, PREFIX + name, self._change)
        self._make_room()
        self._file.execute(_COUNT, (self._count, self._size, len(rows), self._dropped))
        return results

    def _topic(self, name: str) -> GrowingTopic | None:
        """Return the topic *name*, created if it is missing; None at the limit of topics."""
        topic = self._topics.get(name)
        if topic is not None:
            return topic
        row = self._file.execute(_TOPIC, (name,)).fetchone()
        if row is None:
            if self._count >= self._limits.topics:
                return None
            self._count += 1
            epoch = secrets.token_hex(4)
            ((key,),) = self._file.execute(_NEW_TOPIC, (name, epoch)).fetchall()
            topic = GrowingTopic(key, epoch, 0, 0, 0)
        else:
            topic = GrowingTopic(*row)
        self._topics[name] = topic
        return topic

    def _trim(self, topic: GrowingTopic) -> None:
        """Drop the oldest messages of a topic above the limits per topic."""
        if not topic.is_too_large(self._limits):
            return
        kept, size = topic.kept, topic.size
        for version, each in self._file.execute(_SIZES, (topic.key,)):
            if not topic.is_too_large(self._limits):
                break
            topic.drop(version, each)
        self._drop(topic.key, topic.dropped_to, kept - topic.kept, size - topic.size)

    def _make_room(self) -> None:
        """Drop messages of the topics with the oldest last publish, down to the limit of bytes."""
        most = self._limits.kept_bytes_in_all
        while self._size > most:
            topics = self._file.execute(_LONGEST_AGO).fetchall()
            if len(topics) < 2:
                return
            key, kept, in_all = topics[0]
            dropped, size, last = 0, 0, 0
            for version, each in self._file.execute(_SIZES, (key,)):
                if self._size - size <= most:
                    break
                dropped, size, last = dropped + 1, size + each, version
            if not dropped:  # another program has deleted the messages
                dropped, size = kept, in_all
            self._drop(key, last, dropped, size)
            self._file.execute(SHRINK, (dropped, size, key))

    def _drop(self, key: int, last: int, dropped: int, size: int) -> None:
        self._file.execute(DROP, (key, last))
        self._dropped += dropped
        self._size -= size
