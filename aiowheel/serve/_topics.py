"""Topics and the messages kept of them, in memory and bounded. Rank 5.

A message counts with its bytes and `OVERHEAD`, so that a crowd of empty ones is bounded as well.
"""

from __future__ import annotations

import secrets
from collections import OrderedDict, deque
from itertools import islice

from aiowheel.serve._limits import Limits
from aiowheel.serve._refusal import Refusal, shortened

OVERHEAD = 200  #: bytes that a message costs beside its own


class Topic:
    """The last messages of one topic; the version is the number of the last one, from 1.

    Attributes:
        name: Its name.
        epoch: Tells this life of the topic from one before a restart or a removal.
        version: How many messages were ever published.
        size: What the kept messages count, in bytes.
    """

    __slots__ = ("_answers", "_messages", "_times", "epoch", "name", "size", "version")

    def __init__(self, name: str) -> None:
        self.name = name
        self.epoch = secrets.token_hex(4)
        self.version = 0
        self.size = 0
        self._messages: deque[bytes] = deque()  # as JSON objects, oldest first
        self._times: deque[float] = deque()  # of each message: when it was published
        # By (version seen, most bytes): a crowd has seen the same version.
        self._answers: dict[tuple[int, int | None], tuple[bytes, int]] = {}

    def __len__(self) -> int:
        return len(self._messages)

    @property
    def oldest(self) -> float | None:
        """When the oldest kept message was published; None where none is kept."""
        return self._times[0] if self._times else None

    def append(self, data: bytes, time: float) -> None:
        """Keep one more message; *data* is a JSON value, *time* that of its publication."""
        self.version += 1
        self._messages.append(b'{"version":%d,"data":%b}' % (self.version, data))
        self._times.append(time)
        self.size += len(self._messages[-1]) + OVERHEAD
        self._answers.clear()

    def drop_oldest(self) -> int:
        """Keep one less; returns what it counted."""
        size = len(self._messages.popleft()) + OVERHEAD
        self._times.popleft()
        self.size -= size
        self._answers.clear()
        return size

    def knows(self, version: int, epoch: str | None) -> bool:
        """Whether a client may have seen *version* of this life of the topic."""
        return version <= self.version and epoch in {None, self.epoch}

    def since(self, version: int, epoch: str | None = None) -> bytes:
        """The answer for a client that has seen *version* in *epoch*, as JSON.

        One that cannot have seen it in this life of the topic gets all that is kept.
        """
        return self.page(version, epoch, None)[0]

    def page(self, version: int, epoch: str | None, most: int | None) -> tuple[bytes, int]:
        """As `since`, with messages of *most* bytes, but at least one; and its last version."""
        known = self.knows(version, epoch)
        key = version if known else -1, most
        found = self._answers.get(key)
        if found is None:
            if len(self._answers) > 1:  # one for the polls, one for the subscriptions
                self._answers.clear()
            found = self._rendered(version if known else 0, most, reset=not known)
            self._answers[key] = found
        return found

    def _rendered(self, version: int, most: int | None, *, reset: bool) -> tuple[bytes, int]:
        first = self.version - len(self._messages)  # the version before the oldest kept
        missed = max(0, first - version)
        news = list(islice(self._messages, max(0, version - first), None))
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
        return answer(self.name, self.epoch, last, text, missed=missed, reset=reset), last


def answer(name: str, epoch: str, version: int, news: bytes, *, missed: int, reset: bool) -> bytes:
    """An answer to a poll, as JSON; *name* holds no character that JSON escapes."""
    return b'{"topic":"%b","epoch":"%b","version":%d,"missed":%d,"reset":%b,"messages":[%b]}' % (
        name.encode(),
        epoch.encode(),
        version,
        missed,
        b"true" if reset else b"false",
        news,
    )


class Topics:
    """All topics and what they keep in all.

    Attributes:
        published: Messages ever published.
        dropped: Messages ever dropped to make room.
        size: What all kept messages count, in bytes.
    """

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._by_name: dict[str, Topic] = {}
        self._kept: OrderedDict[str, Topic] = OrderedDict()  # those with messages; see `publish`
        self.published = 0
        self.dropped = 0
        self.size = 0

    def __len__(self) -> int:
        return len(self._by_name)

    def get(self, name: str) -> Topic | None:
        """The topic of that name, if anything was published to it."""
        return self._by_name.get(name)

    def publish(self, name: str, data: bytes, time: float = 0.0) -> Topic:
        """Append *data*, a JSON value, to the topic, which is made when missing.

        *time* is that of the publication, in seconds; it never goes back.

        Raises:
            Refusal: There are as many topics as may be.
        """
        topic = self._by_name.get(name)
        if topic is None:
            topic = self._made(name)
        before = topic.size
        topic.append(data, time)
        self.size += topic.size - before
        self.published += 1
        self._kept[name] = topic
        self._kept.move_to_end(name)
        self._make_room(topic)
        return topic

    def _made(self, name: str) -> Topic:
        most = self._limits.topics
        if len(self._by_name) >= most:
            detail = f"{shortened(name)} would be topic {most + 1}, at most {most} may exist"
            raise Refusal(429, "too_many_topics", detail)
        topic = self._by_name[name] = Topic(name)
        return topic

    def _make_room(self, topic: Topic) -> None:
        limits = self._limits
        while len(topic) > 1 and (
            len(topic) > limits.kept_messages or topic.size > limits.kept_bytes
        ):
            self._drop_oldest(topic)
        while self.size > limits.kept_bytes_in_all and len(self._kept) > 1:
            name, oldest = next(iter(self._kept.items()))  # published to longest ago
            self._drop_oldest(oldest)
            if not len(oldest):
                del self._kept[name]

    def drop_until(self, topic: Topic, time: float) -> None:
        """Drop the messages of *topic* that were published at *time* or before."""
        while topic.oldest is not None and topic.oldest <= time:
            self._drop_oldest(topic)
        if not len(topic):
            self._kept.pop(topic.name, None)

    def _drop_oldest(self, topic: Topic) -> None:
        self.size -= topic.drop_oldest()
        self.dropped += 1

    def remove(self, name: str) -> Topic | None:
        """Forget the topic and its messages; returns it if there was one."""
        topic = self._by_name.pop(name, None)
        if topic is not None:
            self._kept.pop(name, None)
            self.size -= topic.size
        return topic
