"""The interface of topics in a database, and the answers made from their rows. Rank 5.

The database numbers its write transactions, in ascending order; the number is called the change. A
write sets the counter of each topic that it concerns to its change, in the same transaction. A read
returns the last change. A client then waits for a counter above it, and so misses no write.

A database may come back in an earlier state: after a failover to a replica that lagged behind, or
from a backup. Versions would then be used again. Each process therefore remembers the highest
change that it has seen. If the database has a lower one, all topics and counters get new epochs.
The number of the next change is then the time in microseconds, so that it is above the changes that
the other processes have seen, and above those of a history that is lost later.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from aiowheel.errors import StoreUnavailableError
from aiowheel.serve._limits import Limits
from aiowheel.serve._parameters import Seen
from aiowheel.serve._refusal import Refusal
from aiowheel.serve._topic_store import News, Totals, no_topic
from aiowheel.serve._topics import OVERHEAD, answer, framed, too_many_topics
from aiowheel.shared import CounterStore

T = TypeVar("T")

FORGET_AFTER = 60.0  #: seconds after which the counter of a removed topic is deleted


_ATTEMPTS = 3  # reads of a database that comes back in an earlier state again and again


@dataclass(frozen=True, slots=True)
class Question:
    """A read of one topic; see `TopicStore.news` for the fields."""

    name: str
    has: Seen
    most: int | None


@dataclass(frozen=True, slots=True)
class StoredTopic:
    """A topic in the tables: its primary key, its epoch and the version of its last message."""

    key: int
    epoch: str
    version: int

    def since(self, has: Seen) -> int | None:
        """Return the version that the client has seen; None if this epoch does not have it."""
        known = has.version <= self.version and has.epoch in {None, self.epoch}
        return has.version if known else None


@dataclass(slots=True)
class GrowingTopic:
    """The state of a topic while one transaction appends messages to it.

    Attributes:
        key: Primary key of the topic.
        epoch: Epoch of the topic.
        version: Number of the last message.
        kept: Number of kept messages.
        size: Size of the kept messages, in bytes, with `OVERHEAD` for each.
        dropped_to: Version of the last dropped message; 0 if none was dropped.
    """

    key: int
    epoch: str
    version: int
    kept: int
    size: int
    dropped_to: int = 0

    def add(self, size: int) -> None:
        """Count a new message of *size* bytes."""
        self.version += 1
        self.kept += 1
        self.size += size

    def drop(self, version: int, size: int) -> None:
        """Count the oldest message as dropped; *version* and *size* are those of the message."""
        self.kept -= 1
        self.size -= size
        self.dropped_to = version

    def is_too_large(self, limits: Limits) -> bool:
        """Return whether the oldest message must be dropped; the last message is always kept."""
        is_full = self.kept > limits.kept_messages or self.size > limits.kept_bytes
        return is_full and self.kept > 1


@dataclass(slots=True)
class Growth:
    """The topics to which one transaction appends messages, and the totals that it changes.

    Attributes:
        limits: Limits of topics, messages and bytes.
        count: Number of existing topics.
        size: Size of all kept messages, in bytes, with `OVERHEAD` for each.
        topics: The topics of the transaction, by name.
        dropped: Number of messages that the transaction drops.
    """

    limits: Limits
    count: int
    size: int
    topics: dict[str, GrowingTopic] = field(default_factory=dict[str, GrowingTopic])
    dropped: int = 0

    def append(
        self, messages: Sequence[tuple[str, bytes]]
    ) -> tuple[list[tuple[str, int] | Refusal], list[tuple[int, int, int, bytes]]]:
        """Append messages; those whose topic is not in `topics` are refused.

        Returns:
            The results of `TopicTables.append`; and topic, version, size and data of new messages.
        """
        results: list[tuple[str, int] | Refusal] = []
        rows: list[tuple[int, int, int, bytes]] = []
        for name, data in messages:
            topic = self.topics.get(name)
            if topic is None:
                results.append(too_many_topics(name, self.limits.topics))
                continue
            size = len(data) + OVERHEAD
            topic.add(size)
            self.size += size
            rows.append((topic.key, topic.version, size, data))
            results.append((topic.epoch, topic.version))
        return results, rows

    def trim(self, topic: GrowingTopic, oldest: Iterable[tuple[int, int]]) -> None:
        """Drop messages, given as version and size, while a topic is above its limits."""
        for version, size in oldest:
            if not topic.is_too_large(self.limits):
                return
            topic.drop(version, size)
            self.dropped += 1
            self.size -= size

    def make_room(
        self, kept: int, in_all: int, oldest: Iterable[tuple[int, int]]
    ) -> tuple[int, int, int]:
        """Drop the oldest messages of a topic until all topics are within the limit of bytes.

        Args:
            kept: Number of the topic's messages.
            in_all: Their size.
            oldest: Version and size of the oldest ones; none if another program has deleted them.

        Returns:
            Number and size of the dropped messages, and the version of the last one.
        """
        dropped, size, last = 0, 0, 0
        for version, each in oldest:
            if self.size - size <= self.limits.kept_bytes_in_all:
                break
            dropped, size, last = dropped + 1, size + each, version
        if not dropped:
            dropped, size = kept, in_all
        self.dropped += dropped
        self.size -= size
        return dropped, size, last


class Changes:
    """The highest change that this process has seen in committed transactions.

    Attributes:
        highest: That change; 0 before the first one.
    """

    __slots__ = ("_writing", "highest")

    def __init__(self) -> None:
        self.highest = 0
        self._writing = 0  # change of the write transaction that is under way; 0 if it has none

    def shows_loss(self, change: int) -> bool:
        """Record the change of a new write transaction; return whether the database went back.

        If so, the caller begins new epochs in the same transaction, and calls `replace`.
        """
        self._writing = change
        return change <= self.highest

    def replace(self, change: int) -> None:
        """Replace the number of the write transaction that is under way."""
        self._writing = change

    def taken(self) -> int:
        """Return the change of the write transaction that ends, for `note` after the commit."""
        change, self._writing = self._writing, 0
        return change

    def note(self, change: int) -> None:
        """Record the change of a committed transaction."""
        self.highest = max(self.highest, change)

    async def read(
        self, read: Callable[[], Awaitable[tuple[int, T]]], repair: Callable[[], Awaitable[object]]
    ) -> T:
        """Return the result of *read*; if its change is too low, call *repair* and read again.

        Args:
            read: Returns the last change, and the result.
            repair: Makes a write transaction with a change.
        """
        for _ in range(_ATTEMPTS):
            # Taken before the read, because a write may be committed during the read.
            highest = self.highest
            change, result = await read()
            if change >= highest:
                self.note(change)
                return result
            await repair()
        raise StoreUnavailableError("the store came back in an earlier state again and again")


class TopicTables(Protocol):
    """Topics, their messages and their counters in one database; each process has one object.

    Every coroutine raises `StoreUnavailableError` if the database does not answer; a write may then
    have been carried out. If the database refuses an operation, it raises the error of the driver.
    """

    @property
    def counters(self) -> CounterStore:
        """The counters that `append`, `remove` and `sweep` advance."""
        ...

    def key(self, name: str) -> str:
        """Return the key of a topic's counter."""
        ...

    async def prepare(self) -> None:
        """Create the tables that are missing."""
        ...

    async def append(
        self, messages: Sequence[tuple[str, bytes]]
    ) -> list[tuple[str, int] | Refusal]:
        """Append messages, given as topic name and JSON data, in one transaction.

        Returns:
            For each message its epoch and version, or the refusal.
        """
        ...

    async def read(self, questions: Collection[Question]) -> dict[Question, News]:
        """Read topics; the threshold of each `News` is the last change plus one, or None."""
        ...

    async def remove(self, name: str) -> bool:
        """Remove a topic and its messages; return whether the topic existed."""
        ...

    async def touch(self, names: Collection[str]) -> None:
        """Set the time of the last use of the existing topics among *names* to now."""
        ...

    async def sweep(self, unused_for: float) -> bool:
        """Remove a bounded number of old messages and unused topics.

        Args:
            unused_for: Seconds after the last touch or message after which a topic is removed.

        Returns:
            Whether there may be more to remove.
        """
        ...

    async def totals(self) -> Totals:
        """Return the totals of the tables."""
        ...


def news_of(
    question: Question,
    stored: StoredTopic | None,
    messages: Iterable[tuple[int, float, bytes]],
    *,
    too_old: float,
    change: int,
) -> News:
    """Return the answer for a topic.

    Args:
        question: The read.
        stored: The topic; None if it does not exist.
        messages: Version, time and data of the messages after `stored.since`, in order. They are
            consumed up to the first message that the answer has no room for.
        too_old: Messages of this time or before are left out.
        change: The last change.
    """
    if stored is None:
        return no_topic(question.name, question.has, change + 1)
    since = stored.since(question.has)
    seen = since or 0
    first = last = None
    room = question.most
    texts: list[bytes] = []
    for version, time, data in messages:
        if first is None and time <= too_old:
            continue
        text = framed(version, data)
        if room is not None:
            if texts and len(text) > room:
                break
            room -= len(text)
        first = version if first is None else first
        last = version
        texts.append(text)
    last = stored.version if last is None else last
    missed = (stored.version if first is None else first - 1) - seen
    text = answer(
        question.name, stored.epoch, last, b",".join(texts), missed=missed, reset=since is None
    )
    is_new = since is None or stored.version > seen
    return News(text, Seen(last, stored.epoch), None if is_new else change + 1)
