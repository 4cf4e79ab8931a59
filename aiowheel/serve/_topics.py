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

    __slots__ = ("_answer", "_messages", "epoch", "name", "size", "version")

    def __init__(self, name: str) -> None:
        self.name = name
        self.epoch = secrets.token_hex(4)
        self.version = 0
        self.size = 0
        self._messages: deque[bytes] = deque()  # as JSON objects, oldest first
        self._answer: tuple[int, bytes] | None = None  # a crowd has seen the same version

    def __len__(self) -> int:
        return len(self._messages)

    def append(self, data: bytes) -> None:
        """Keep one more message; *data* is a JSON value."""
        self.version += 1
        self._messages.append(b'{"version":%d,"data":%b}' % (self.version, data))
        self.size += len(self._messages[-1]) + OVERHEAD
        self._answer = None

    def drop_oldest(self) -> int:
        """Keep one less; returns what it counted."""
        size = len(self._messages.popleft()) + OVERHEAD
        self.size -= size
        self._answer = None
        return size

    def knows(self, version: int, epoch: str | None) -> bool:
        """Whether a client may have seen *version* of this life of the topic."""
        return version <= self.version and epoch in {None, self.epoch}

    def since(self, version: int, epoch: str | None = None) -> bytes:
        """The answer for a client that has seen *version* in *epoch*, as JSON.

        One that cannot have seen it in this life of the topic gets all that is kept.
        """
        known = self.knows(version, epoch)
        key = version if known else -1
        if self._answer is None or self._answer[0] != key:
            self._answer = key, self._rendered(version if known else 0, reset=not known)
        return self._answer[1]

    def _rendered(self, version: int, *, reset: bool) -> bytes:
        first = self.version - len(self._messages)  # the version before the oldest kept
        news = b",".join(islice(self._messages, max(0, version - first), None))
        missed = max(0, first - version)
        return answer(self.name, self.epoch, self.version, news, missed=missed, reset=reset)


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

    def publish(self, name: str, data: bytes) -> Topic:
        """Append *data*, a JSON value, to the topic, which is made when missing.

        Raises:
            Refusal: There are as many topics as may be.
        """
        topic = self._by_name.get(name)
        if topic is None:
            topic = self._made(name)
        before = topic.size
        topic.append(data)
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
