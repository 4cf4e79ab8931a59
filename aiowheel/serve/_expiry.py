"""Retention by age: old messages are dropped, and unused topics are removed. Rank 5."""

from __future__ import annotations

import math
from collections.abc import Callable

from aiowheel.recipes import IdleDetector
from aiowheel.serve._topics import Topic, Topics
from aiowheel.timer import Timer, TimerHandle


class TopicExpiry:
    """Drops messages of a given age, and removes topics that were unused for as long.

    Each topic has two timers: one for its oldest message, and one for its last use.

    Args:
        topics: The topics in memory.
        timer: The service's timer; it is open.
        seconds: Age at which a message is dropped, and time without use after which a topic is
            removed.
        is_waited_for: Takes a topic's name, and returns whether a client waits for the topic. Such
            a topic is in use.
        remove: Removes the topic of the given name.

    Attributes:
        expired: Number of topics that were removed because they were unused.
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
        self._oldest: dict[str, TimerHandle] = {}  # by topic: drops its oldest message
        self.expired = 0

    def note_published(self, topic: Topic) -> None:
        """Record that a message was published to *topic* just now."""
        if topic.name not in self._unused:
            self._unused.touch(topic.name)
        if topic.name not in self._oldest:
            self._arm(topic)

    def note_used(self, name: str) -> None:
        """Record that a client uses the topic *name*, if it exists.

        Call this before a message is published. If the timer is late and the topic is due for
        removal, this call removes it; otherwise the removal would take the new message with it.
        """
        if name in self._unused:
            self._unused.touch(name)
            if self._topics.get(name) is None:
                self._unused.discard(name)

    def note_removed(self, name: str) -> None:
        """Record that the topic *name* was removed."""
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
        # The message that this timer was for may have been dropped by size in the meantime.
        self._topics.drop_until(topic, max(due, self._timer.time() - self._seconds))
        self._arm(topic)

    def _expire(self, name: str) -> None:
        if self._is_waited_for(name):
            self._unused.touch(name)
        else:
            self.expired += 1
            self.note_removed(name)
            topic = self._topics.get(name)
            if topic is not None:  # a message may be younger than the last use
                self._topics.drop_until(topic, math.inf)  # which counts it
            self._remove(name)
