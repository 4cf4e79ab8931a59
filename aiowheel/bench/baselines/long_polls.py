"""Ways to wait for news of topics, as services write them: events, conditions, a purgatory. Rank 5.

Sources: for the events Ray Serve's LongPollHost, written anew; for the conditions the
standard library's documentation.
"""

import asyncio
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Mapping
from contextlib import suppress

from aiowheel import DelayedOperation, Purgatory


class LongPolls(ABC):
    """Topics with versions, and the requests that wait for later ones.

    Attributes:
        versions: By topic.
        waiting: Requests that wait; the server counts them.
    """

    def __init__(self) -> None:
        self.waiting = 0
        self.versions: defaultdict[int, int] = defaultdict(int)

    @abstractmethod
    async def publish(self, topic: int) -> None:
        """Raise the topic's version, and wake the requests that wait for it."""

    @abstractmethod
    async def wait(self, seen: Mapping[int, int], seconds: float) -> None:
        """Wait until `changed`, or for so long."""

    def changed(self, seen: Mapping[int, int]) -> dict[int, int]:
        """The topics with later versions than the ones seen."""
        versions = self.versions
        return {topic: versions[topic] for topic in seen if versions[topic] > seen[topic]}


class Poll(DelayedOperation[None]):
    """One request that waits."""

    def __init__(self, polls: LongPolls, seen: Mapping[int, int], seconds: float) -> None:
        super().__init__(seconds)
        self.polls = polls
        self.seen = seen

    def try_complete(self) -> bool:
        """Complete when there is news."""
        return bool(self.polls.changed(self.seen)) and self.force_complete()


class PurgatoryPolls(LongPolls):
    """An operation of a purgatory for each request."""

    def __init__(self) -> None:
        super().__init__()
        self._purgatory = Purgatory("long-poll")

    async def publish(self, topic: int) -> None:
        """Have the topic's operations look again."""
        self.versions[topic] += 1
        self._purgatory.check_and_complete(topic)

    async def wait(self, seen: Mapping[int, int], seconds: float) -> None:
        """Watch the topics."""
        await self._purgatory.watch(Poll(self, seen, seconds), seen)


class CounterPolls(PurgatoryPolls):
    """Counters of a purgatory, and thresholds to be reached."""

    async def publish(self, topic: int) -> None:
        """Advance the topic's counter."""
        self.versions[topic] += 1
        self._purgatory.advance(topic, self.versions[topic])

    async def wait(self, seen: Mapping[int, int], seconds: float) -> None:
        """Wait for any of the counters."""
        wanted = {topic: version + 1 for topic, version in seen.items()}
        await self._purgatory.wait_until(wanted, seconds, mode="any")


class EventPolls(LongPolls):
    """An event and a task for each topic of a request, and the first of them completed."""

    def __init__(self) -> None:
        super().__init__()
        self._events: defaultdict[int, set[asyncio.Event]] = defaultdict(set)

    async def publish(self, topic: int) -> None:
        """Set the topic's events, and forget them."""
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
                if topic in self._events:  # else it was set
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
        """Wait for the topic's condition; for several topics in a task for each."""
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
