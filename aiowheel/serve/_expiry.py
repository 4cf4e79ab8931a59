"""Retention by age: messages grow old, and topics fall out of use. Rank 5."""

from __future__ import annotations

from collections.abc import Callable

from aiowheel.recipes import IdleDetector
from aiowheel.serve._topics import Topic, Topics
from aiowheel.timer import Timer, TimerHandle


class Expiry:
    """Drops messages that are too old, and topics that have not been used for as long.

    Each topic has two deadlines on the service's timer: of its oldest message, and of its last use.

    Args:
        topics: The topics whose messages it drops.
        timer: Open.
        seconds: How long a message is kept, and a topic that is not used.
        is_waited_for: Whether a client waits for the topic of that name, which is a use.
        remove: Called with the name of a topic that was not used.

    Attributes:
        expired: Topics ever removed because they were not used.
    """

    def __init__(
        self,
        topics: Topics,
        timer: Timer,
        seconds: float,
        is_waited_for: Callable[[str], bool],
        remove: Callable[[str], object],
    ) -> None:
        self._topics = topics
        self._timer = timer
        self._seconds = seconds
        self._is_waited_for = is_waited_for
        self._remove = remove
        self._unused: IdleDetector[str] = IdleDetector(seconds, self._expire, timer=timer)
        self._oldest: dict[str, TimerHandle] = {}  # by topic: when its oldest message is too old
        self.expired = 0

    def note_published(self, topic: Topic) -> None:
        """Note that *topic* got a message just now."""
        if topic.name not in self._unused:
            self._unused.touch(topic.name)
        if topic.name not in self._oldest:
            self._arm(topic)

    def note_used(self, name: str) -> None:
        """Note that a client uses the topic of that name, if there is one.

        Call this before a message is published: a topic that was due to be removed, at a timer that
        is late, is removed by this call and not behind the message.
        """
        if name in self._unused:
            self._unused.touch(name)
            if self._topics.get(name) is None:
                self._unused.discard(name)

    def note_removed(self, name: str) -> None:
        """Note that the topic of that name exists no more."""
        self._unused.discard(name)
        handle = self._oldest.pop(name, None)
        if handle is not None:
            handle.cancel()

    def _arm(self, topic: Topic) -> None:
        if topic.oldest is not None:
            when = topic.oldest + self._seconds
            handle = self._timer.call_at(when, self._drop_old, topic, topic.oldest)
            self._oldest[topic.name] = handle

    def _drop_old(self, topic: Topic, due: float) -> None:
        del self._oldest[topic.name]
        # The deadline was one message's; it may have been dropped since, to make room.
        self._topics.drop_until(topic, max(due, self._timer.time() - self._seconds))
        self._arm(topic)

    def _expire(self, name: str) -> None:
        if self._is_waited_for(name):
            self._unused.touch(name)
        else:
            self.expired += 1
            self.note_removed(name)
            self._remove(name)
