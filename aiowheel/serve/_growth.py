"""The topics to which one transaction appends messages, within the limits. Rank 5."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from aiowheel.serve._limits import Limits
from aiowheel.serve._refusal import Refusal
from aiowheel.serve._topics import OVERHEAD, too_many_topics


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
