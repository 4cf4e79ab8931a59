"""Topics in a place that several processes reach: the interface, and an answer from what it holds.

Rank 5. Each write has a number, which grows: its change. A write gives the topics that it concerns,
in the same transaction, their counters in the store: the number of the change. A read returns the
number of the last change, so that a client waits for a counter above it and misses no change.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from aiowheel.serve._limits import Limits
from aiowheel.serve._parameters import Seen
from aiowheel.serve._refusal import Refusal, shortened
from aiowheel.serve._topic_store import News, Totals
from aiowheel.serve._topics import answer
from aiowheel.shared import CounterStore

FORGET_AFTER = 60.0  #: seconds for which the counter of a topic that is gone stays


@dataclass(frozen=True, slots=True)
class Question:
    """What a client wants to know: news of a topic since what it has seen, in *most* bytes."""

    name: str
    has: Seen
    most: int | None


@dataclass(frozen=True, slots=True)
class Life:
    """A topic that exists: its epoch, the version of its last message, its key in the tables."""

    key: int
    epoch: str
    version: int

    def since(self, has: Seen) -> int | None:
        """The version that the client has seen; None if that was not in this life."""
        known = has.version <= self.version and has.epoch in {None, self.epoch}
        return has.version if known else None


@dataclass(slots=True)
class GrowingTopic:
    """A topic that gets messages in a transaction; its size is in bytes, with `OVERHEAD`."""

    key: int
    epoch: str
    version: int
    kept: int
    size: int
    dropped_to: int = 0

    def add(self, size: int) -> None:
        """Count one more message."""
        self.version += 1
        self.kept += 1
        self.size += size

    def drop(self, version: int, size: int) -> None:
        """Take note that the oldest message, of that version, is dropped."""
        self.kept -= 1
        self.size -= size
        self.dropped_to = version

    def is_too_large(self, limits: Limits) -> bool:
        """Whether it must lose its oldest message; the last one stays."""
        is_full = self.kept > limits.kept_messages or self.size > limits.kept_bytes
        return is_full and self.kept > 1


class TopicTables(Protocol):
    """Topics, their messages and counters in one store; one object is the access of one process.

    Every call raises `StoreUnavailableError` if the store does not answer. The write may then have
    been made.

    """

    @property
    def counters(self) -> CounterStore:
        """Where `append`, `remove` and `sweep` publish their changes."""
        ...

    def key(self, name: str) -> str:
        """The key of a topic's counter."""
        ...

    async def prepare(self) -> None:
        """Make the tables where they are missing."""
        ...

    async def append(
        self, messages: Sequence[tuple[str, bytes]]
    ) -> list[tuple[str, int] | Refusal]:
        """Append messages to topics, all in one transaction.

        Returns:
            For each the epoch and the version; or why it is refused.
        """
        ...

    async def read(self, questions: Collection[Question]) -> dict[Question, News]:
        """Answer questions; the threshold of each `News` is one above the last change."""
        ...

    async def remove(self, name: str) -> bool:
        """Remove a topic and its messages; return whether there was one."""
        ...

    async def touch(self, names: Collection[str]) -> None:
        """Note that the topics of these names are in use now, where there are such."""
        ...

    async def sweep(self, unused_for: float) -> bool:
        """Remove some of what is too old; return whether there may be more.

        Args:
            unused_for: Seconds after the last touch or message after which a topic is removed.
        """
        ...

    async def totals(self) -> Totals:
        """What the tables hold in all."""
        ...


def too_many_topics(name: str, most: int) -> Refusal:
    """The refusal of one topic more than may exist."""
    detail = f"{shortened(name)} would be topic {most + 1}, at most {most} may exist"
    return Refusal(429, "too_many_topics", detail)


def no_topic(question: Question, change: int) -> News:
    """The answer where there is no such topic, after the change of that number."""
    gone = question.has.version > 0 or question.has.epoch is not None
    text = answer(question.name, "", 0, b"", missed=0, reset=gone)
    return News(text, Seen(0, None), None if gone else change + 1)


def news_of(
    question: Question,
    life: Life,
    messages: Iterable[tuple[int, float, bytes]],
    *,
    too_old: float,
    change: int,
) -> News:
    """The answer of a topic that exists.

    Args:
        question: The client's.
        life: The topic.
        messages: Version, time and data of those after `life.since`, in order; only as many are
            taken as the answer holds.
        too_old: The time of the latest message that is not kept any more.
        change: The number of the last change.
    """
    since = life.since(question.has)
    seen = since or 0
    first = last = None
    room = question.most
    texts: list[bytes] = []
    for version, time, data in messages:
        if first is None and time <= too_old:
            continue
        text = b'{"version":%d,"data":%b}' % (version, data)
        if room is not None:
            if texts and len(text) > room:
                break
            room -= len(text)
        first = version if first is None else first
        last = version
        texts.append(text)
    last = life.version if last is None else last
    missed = (life.version if first is None else first - 1) - seen
    text = answer(
        question.name, life.epoch, last, b",".join(texts), missed=missed, reset=since is None
    )
    is_new = since is None or life.version > seen
    return News(text, Seen(last, life.epoch), None if is_new else change + 1)
