"""Topics and their messages in memory, within the limits. Rank 5.

The size of a message is the bytes of its data plus `OVERHEAD`, so that the limits bound empty
messages too.
"""

from __future__ import annotations

import secrets
from collections import OrderedDict, deque
from itertools import islice

from aiowheel.serve._limits import Limits
from aiowheel.serve._refusal import Refusal, shortened

OVERHEAD = 200  #: bytes of memory per message, in addition to its own bytes


class Topic:
    """One topic and its last messages, which are numbered from 1.

    Attributes:
        name: The topic's name.
        epoch: Random id of the topic. A topic that is removed, or lost in a restart, and then
            created again, has another epoch.
        version: Number of the last message: how many were published in this epoch.
        size: Size of the kept messages, in bytes, with `OVERHEAD` for each.
    """

    __slots__ = ("_messages", "_times", "epoch", "name", "size", "version")

    def __init__(self, name: str) -> None:
        self.name = name
        self.epoch = secrets.token_hex(4)
        self.version = 0
        self.size = 0
        self._messages: deque[bytes] = deque()  # as JSON objects, oldest first
        self._times: deque[float] = deque()  # time of publication of each message

    def __len__(self) -> int:
        return len(self._messages)

    @property
    def oldest(self) -> float | None:
        """Time of publication of the oldest kept message; None if no message is kept."""
        return self._times[0] if self._times else None

    def append(self, data: bytes, time: float) -> None:
        """Append a message: *data* is a JSON value, *time* the time of its publication."""
        self.version += 1
        self._messages.append(framed(self.version, data))
        self._times.append(time)
        self.size += len(data) + OVERHEAD

    def drop_oldest(self) -> int:
        """Drop the oldest message, and return its size."""
        version = self.version - len(self._messages) + 1
        size = len(self._messages.popleft()) - len(framed(version, b"")) + OVERHEAD
        self._times.popleft()
        self.size -= size
        return size

    def knows(self, version: int, epoch: str | None) -> bool:
        """Return whether *version* exists in this epoch; *epoch* None means this epoch."""
        return version <= self.version and epoch in {None, self.epoch}

    def page(self, version: int | None, most: int | None) -> tuple[bytes, int]:
        """Return the JSON answer for a client, and the version of its last message.

        Args:
            version: Last version that the client has seen; None if this epoch does not have it, and
                the answer begins with the oldest kept message.
            most: Maximum bytes of messages; the page holds at least one message. None: no limit.
        """
        seen = version or 0
        first = self.version - len(self._messages)  # the version before the oldest kept one
        missed = max(0, first - seen)
        news = list(islice(self._messages, max(0, seen - first), None))
        last = self.version
        if most is not None:
            room = most - len(news[0]) if news else most
            count = 1
            while count < len(news) and len(news[count]) <= room:
                room -= len(news[count])
                count += 1
            last -= len(news[count:])
            del news[count:]
        text = b",".join(news)
        reset = version is None
        return answer(self.name, self.epoch, last, text, missed=missed, reset=reset), last


def framed(version: int, data: bytes) -> bytes:
    """Return a message as it is in an answer."""
    return b'{"version":%d,"data":%b}' % (version, data)


def answer(name: str, epoch: str, version: int, news: bytes, *, missed: int, reset: bool) -> bytes:
    """Return the answer to a poll, as JSON; *name* must hold no character that JSON escapes."""
    return b'{"topic":"%b","epoch":"%b","version":%d,"missed":%d,"reset":%b,"messages":[%b]}' % (
        name.encode(),
        epoch.encode(),
        version,
        missed,
        b"true" if reset else b"false",
        news,
    )


def too_many_topics(name: str, most: int) -> Refusal:
    """Return the refusal of a new topic where *most* topics exist."""
    detail = f"at most {most} topics may exist, got {shortened(name)} as topic {most + 1}"
    return Refusal(429, "too_many_topics", detail)


class Topics:
    """All topics, and the totals of their messages.

    Attributes:
        published: Number of messages that were published.
        dropped: Number of messages that were dropped, by size or by age.
        size: Size of all kept messages, in bytes, with `OVERHEAD` for each.
    """

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._by_name: dict[str, Topic] = {}
        # Topics with messages; the topic with the oldest last publish is first.
        self._kept: OrderedDict[str, Topic] = OrderedDict()
        # Cached answers of the topic that was read last, by (version seen, maximum bytes): most of
        # its clients have seen the same version.
        self._last_read: Topic | None = None
        self._answers: dict[tuple[int | None, int | None], tuple[bytes, int]] = {}
        self.published = 0
        self.dropped = 0
        self.size = 0

    def __len__(self) -> int:
        return len(self._by_name)

    def get(self, name: str) -> Topic | None:
        """Return the topic *name*; None if it does not exist."""
        return self._by_name.get(name)

    def page(
        self, topic: Topic, version: int, epoch: str | None, most: int | None
    ) -> tuple[bytes, int]:
        """Return the answer of *topic* for a client; see `Topic.page`.

        *version* is the last version that the client has seen, and *epoch* the epoch of it.

        Only the topic that was read last keeps its answers for further clients, who are woken in
        one turn of the loop. Those of all topics would need more memory than the messages.
        """
        if topic is not self._last_read:
            self._answers.clear()
            self._last_read = topic
        key = version if topic.knows(version, epoch) else None, most
        found = self._answers.get(key)
        if found is None:
            if len(self._answers) > 1:  # room for one answer to polls and one to subscriptions
                self._answers.clear()
            found = self._answers[key] = topic.page(*key)
        return found

    def _forget_answers(self, topic: Topic) -> None:
        if topic is self._last_read:
            self._answers.clear()
            self._last_read = None

    def publish(self, name: str, data: bytes, time: float = 0.0) -> Topic:
        """Append *data*, a JSON value, to the topic *name*; create the topic if it is missing.

        *time* is the time of the publication, in seconds; it must not decrease between calls.

        Raises:
            Refusal: The topic is missing, and the limit of topics is reached.
        """
        topic = self._by_name.get(name)
        if topic is None:
            topic = self._create(name)
        self._forget_answers(topic)
        before = topic.size
        topic.append(data, time)
        self.size += topic.size - before
        self.published += 1
        self._kept[name] = topic
        self._kept.move_to_end(name)
        self._make_room(topic)
        return topic

    def _create(self, name: str) -> Topic:
        if len(self._by_name) >= self._limits.topics:
            raise too_many_topics(name, self._limits.topics)
        topic = self._by_name[name] = Topic(name)
        return topic

    def _make_room(self, topic: Topic) -> None:
        limits = self._limits
        while len(topic) > 1 and (
            len(topic) > limits.kept_messages or topic.size > limits.kept_bytes
        ):
            self._drop_oldest(topic)
        while self.size > limits.kept_bytes_in_all and len(self._kept) > 1:
            name, oldest = next(iter(self._kept.items()))
            self._drop_oldest(oldest)
            if not len(oldest):
                del self._kept[name]

    def drop_until(self, topic: Topic, time: float) -> None:
        """Drop the messages of *topic* that were published at or before *time*."""
        while topic.oldest is not None and topic.oldest <= time:
            self._drop_oldest(topic)
        if not len(topic):
            self._kept.pop(topic.name, None)

    def _drop_oldest(self, topic: Topic) -> None:
        self._forget_answers(topic)
        self.size -= topic.drop_oldest()
        self.dropped += 1

    def remove(self, name: str) -> Topic | None:
        """Remove the topic *name* and its messages; return it, or None if it does not exist."""
        topic = self._by_name.pop(name, None)
        if topic is not None:
            self._forget_answers(topic)
            self._kept.pop(name, None)
            self.size -= topic.size
        return topic
