"""Ways to wait for updates of topics: events, conditions, a purgatory.

Sources: the events follow Ray Serve's LongPollHost, reimplemented; the conditions follow the
documentation of the standard library.
"""

import asyncio
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Mapping
from contextlib import suppress

from aiowheel import DelayedOperation, Purgatory


class LongPolls(ABC):
    """Topics with versions, and the requests that wait for later versions.

    Attributes:
        versions: The version of each topic.
        waiting: Number of waiting requests; the server updates it.
    """

    def __init__(self) -> None:
        self.waiting = 0
        self.versions: defaultdict[int, int] = defaultdict(int)

    @abstractmethod
    async def publish(self, topic: int) -> None:
        """Increment the topic's version and wake the requests that wait for it."""

    @abstractmethod
    async def wait(self, seen: Mapping[int, int], seconds: float) -> None:
        """Wait until `changed` is not empty, or for *seconds*."""

    def changed(self, seen: Mapping[int, int]) -> dict[int, int]:
        """Return the topics with later versions than the seen ones."""
        versions = self.versions
        return {topic: versions[topic] for topic in seen if versions[topic] > seen[topic]}


class Poll(DelayedOperation[None]):
    """One waiting request."""

    def __init__(self, polls: LongPolls, seen: Mapping[int, int], seconds: float) -> None:
        super().__init__(seconds)
        self.polls = polls
        self.seen = seen

    def try_complete(self) -> bool:
        """Complete if a topic has changed."""
        return bool(self.polls.changed(self.seen)) and self.force_complete()


class PurgatoryPolls(LongPolls):
    """An operation of a purgatory for each request."""

    def __init__(self) -> None:
        super().__init__()
        self._purgatory = Purgatory("long-poll")

    async def publish(self, topic: int) -> None:
        """Check the operations of the topic."""
        self.versions[topic] += 1
        self._purgatory.check_and_complete(topic)

    async def wait(self, seen: Mapping[int, int], seconds: float) -> None:
        """Watch the topics with an operation."""
        await self._purgatory.watch(Poll(self, seen, seconds), seen)


class CounterPolls(PurgatoryPolls):
    """Counters of a purgatory with thresholds."""

    async def publish(self, topic: int) -> None:
        """Advance the topic's counter."""
        self.versions[topic] += 1
        self._purgatory.advance(topic, self.versions[topic])

    async def wait(self, seen: Mapping[int, int], seconds: float) -> None:
        """Wait until a counter reaches its threshold."""
        wanted = {topic: version + 1 for topic, version in seen.items()}
        await self._purgatory.wait_until(wanted, seconds, mode="any")


class EventPolls(LongPolls):
    """An event and a task for each topic of a request; the first one completes the request."""

    def __init__(self) -> None:
        super().__init__()
        self._events: defaultdict[int, set[asyncio.Event]] = defaultdict(set)

    async def publish(self, topic: int) -> None:
        """Set the topic's events and remove them."""
        self.versions[topic] += 1
        for event in self._events.pop(topic, ()):
            event.set()

    async def wait(self, seen: Mapping[int, int], seconds: float) -> None:
        """Wait for the first of the events; cancel the others."""
        if any(self.versions[topic] > version for topic, version in seen.items()):
            return
        events = {topic: asyncio.Event() for topic in seen}
        for topic, event in events.items():
            self._events[topic].add(event)
        tasks = [asyncio.create_task(event.wait()) for event in events.values()]
        try:
            await asyncio.wait(tasks, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            for topic, event in events.items():
                if topic in self._events:  # otherwise the event was set and removed
                    self._events[topic].discard(event)


class ConditionPolls(LongPolls):
    """A condition for each topic."""

    def __init__(self) -> None:
        super().__init__()
        self._conditions: defaultdict[int, asyncio.Condition] = defaultdict(asyncio.Condition)

    async def publish(self, topic: int) -> None:
        """Notify all."""
        async with self._conditions[topic]:
            self.versions[topic] += 1
            self._conditions[topic].notify_all()

    async def wait(self, seen: Mapping[int, int], seconds: float) -> None:
        """Wait for the topic's condition; for several topics, in one task each."""
        if len(seen) == 1:
            ((topic, version),) = seen.items()
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._wait_for(topic, version)
            return
        tasks = [asyncio.create_task(self._wait_for(*each)) for each in seen.items()]
        try:
            await asyncio.wait(tasks, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()

    async def _wait_for(self, topic: int, version: int) -> None:
        async with self._conditions[topic]:
            await self._conditions[topic].wait_for(lambda: self.versions[topic] > version)


DESIGNS: dict[str, type[LongPolls]] = {
    "aiowheel, wait_until": CounterPolls,
    "aiowheel, watch": PurgatoryPolls,
    "Event and FIRST_COMPLETED": EventPolls,
    "Condition a topic": ConditionPolls,
}
