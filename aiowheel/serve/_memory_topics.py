"""The store of topics in the memory of one process. Rank 5."""

from __future__ import annotations

from asyncio import Future

from aiowheel.purgatory import Purgatory
from aiowheel.serve._expiry import TopicExpiry
from aiowheel.serve._limits import Limits
from aiowheel.serve._parameters import Seen
from aiowheel.serve._topic_store import News, Receipt, Totals, no_topic
from aiowheel.serve._topics import Topics
from aiowheel.timer import Timer


class MemoryTopics:
    """A `TopicStore` in memory, whose coroutines never suspend.

    The version of each topic is a counter of the purgatory, for which clients wait.

    Attributes:
        topics: The topics and their messages.
        expiry: Drops messages and removes topics by age.
    """

    def __init__(self, limits: Limits) -> None:
        self.topics = Topics(limits)
        self.expiry: TopicExpiry  # set by `open`
        self._seconds = limits.kept_seconds
        self._purgatory: Purgatory

    async def open(self, timer: Timer, purgatory: Purgatory) -> None:
        """See `TopicStore`."""
        self._purgatory = purgatory
        self.expiry = TopicExpiry(
            self.topics, timer, self._seconds, self._is_waited_for, self._forget
        )
        self._time = timer.time  # the clock for the age of messages

    async def publish(self, name: str, data: bytes) -> Receipt:
        """See `TopicStore`."""
        self.expiry.note_used(name)
        topic = self.topics.publish(name, data, self._time())
        self.expiry.note_published(topic)
        woken = self._purgatory.advance(name, topic.version)
        return Receipt(topic.epoch, topic.version, woken)

    async def news(self, name: str, has: Seen, most: int | None = None) -> News:
        """See `TopicStore`."""
        self.expiry.note_used(name)
        topic = self.topics.get(name)
        if topic is None:
            return no_topic(name, has, 1)
        is_new = topic.version > has.version or not topic.knows(has.version, has.epoch)
        text, version = self.topics.page(topic, has.version, has.epoch, most)
        return News(text, Seen(version, topic.epoch), None if is_new else has.version + 1)

    def wait(self, name: str, threshold: int, seconds: float) -> Future[bool]:
        """See `TopicStore`."""
        return self._purgatory.wait_until({name: threshold}, seconds)

    async def remove(self, name: str) -> bool:
        """See `TopicStore`."""
        if self.topics.get(name) is None:
            return False
        self.expiry.note_removed(name)
        self._forget(name)
        return True

    async def totals(self) -> Totals:
        """See `TopicStore`."""
        topics = self.topics
        return Totals(
            len(topics), topics.size, topics.published, topics.dropped, self.expiry.expired
        )

    async def aclose(self) -> None:
        """See `TopicStore`; closing the timer cancels the timers of `TopicExpiry`."""

    def _forget(self, name: str) -> None:
        self.topics.remove(name)
        self._purgatory.forget(name)
        for operation in list(self._purgatory.pending(name)):
            operation.force_complete()

    def _is_waited_for(self, name: str) -> bool:
        return next(self._purgatory.pending(name), None) is not None
