"""The interface of the stores of topics, and the types that their calls return. Rank 5."""

from __future__ import annotations

from asyncio import Future
from dataclasses import dataclass
from typing import Protocol

from aiowheel.purgatory import Purgatory
from aiowheel.serve._parameters import Seen
from aiowheel.serve._topics import answer
from aiowheel.timer import Timer


@dataclass(frozen=True, slots=True)
class News:
    """The answer of a topic to one client.

    Attributes:
        text: The answer, as JSON.
        seen: The client's position in the topic after this answer.
        threshold: The argument for `TopicStore.wait`, if the answer holds nothing new; otherwise
            None.
    """

    text: bytes
    seen: Seen
    threshold: int | None


@dataclass(frozen=True, slots=True)
class Receipt:
    """The receipt for a published message.

    Attributes:
        epoch: Epoch of the topic.
        version: Number of the message in the epoch, from 1.
        woken: Number of clients of this process that waited for the topic.
    """

    epoch: str
    version: int
    woken: int


@dataclass(frozen=True, slots=True)
class Totals:
    """Totals of a store.

    Attributes:
        topics: Number of existing topics.
        size: Size of all kept messages, in bytes, with an overhead for each.
        published: Number of messages that were published.
        dropped: Number of messages that were dropped, by size or by age.
        expired: Number of topics that were removed because they were unused.
    """

    topics: int
    size: int
    published: int
    dropped: int
    expired: int


class TopicStore(Protocol):
    """The topics of a service: in memory, or in a database that several processes share.

    Every method except `aclose` raises `StoreUnavailableError` if the database does not answer, or
    refuses an operation.
    """

    async def open(self, timer: Timer, purgatory: Purgatory) -> None:
        """Open the store. Both arguments must be open, and stay open until after `aclose`.

        Raises:
            StoreUnavailableError: The store does not answer.
        """
        ...

    async def publish(self, name: str, data: bytes) -> Receipt:
        """Append *data*, a JSON value, to the topic *name*; create the topic if it is missing.

        Raises:
            Refusal: The topic is missing, and the limit of topics is reached.
        """
        ...

    async def news(self, name: str, has: Seen, most: int | None = None) -> News:
        """Return the answer for a client with the position *has*; counts as a use of the topic.

        Args:
            name: Name of the topic, which need not exist.
            has: The last version that the client has seen, and its epoch.
            most: Maximum bytes of messages in the answer; it holds at least one message if there
                is one. None: all kept messages.
        """
        ...

    def wait(self, name: str, threshold: int, seconds: float) -> Future[bool]:
        """Wait for messages above a `News.threshold`; the result is False on a timeout.

        The wait is registered before this call returns. It may complete although the topic has no
        new message.

        Raises:
            PurgatoryClosedError: The service is stopping.
        """
        ...

    async def remove(self, name: str) -> bool:
        """Remove the topic and complete the waits for it; return whether the topic existed."""
        ...

    async def totals(self) -> Totals:
        """Return the totals of the store."""
        ...

    async def aclose(self) -> None:
        """Close the store after the publishes in progress have ended. Idempotent."""
        ...


def no_topic(name: str, has: Seen, threshold: int) -> News:
    """Return the answer of a topic that does not exist; *threshold* is as in `News`."""
    was_removed = has.version > 0 or has.epoch is not None
    text = answer(name, "", 0, b"", missed=0, reset=was_removed)
    return News(text, Seen(0, None), None if was_removed else threshold)
