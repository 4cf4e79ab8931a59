"""The interface of topics in a database, and the answers made from their rows. Rank 5.

The database numbers its write transactions, in ascending order; the number is called the change. A
write sets the counter of each topic that it concerns to its change, in the same transaction. A read
returns the last change. A client then waits for a counter above it, and so misses no write.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from aiowheel.serve._parameters import Seen
from aiowheel.serve._refusal import Refusal
from aiowheel.serve._topic_store import News, Totals, no_topic
from aiowheel.serve._topics import answer, framed
from aiowheel.shared import CounterStore

FORGET_AFTER = 60.0  #: seconds after which the counter of a removed topic is deleted


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
