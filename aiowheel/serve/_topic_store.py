"""What keeps topics for the service: the interface, and what its calls return. Rank 5."""

from __future__ import annotations

from collections.abc import Awaitable
from dataclasses import dataclass
from typing import Protocol

from starlette.requests import Request
from starlette.responses import Response

from aiowheel.purgatory import Purgatory
from aiowheel.serve._crowd import retry_after
from aiowheel.serve._parameters import Seen
from aiowheel.serve._refusal import Refusal
from aiowheel.timer import Timer


@dataclass(frozen=True, slots=True)
class News:
    """What a topic has for a client.

    Attributes:
        text: The answer, as JSON.
        seen: What the client has seen with it.
        threshold: What `TopicStore.wait` takes to wait for news; None if the answer holds some.
    """

    text: bytes
    seen: Seen
    threshold: int | None


@dataclass(frozen=True, slots=True)
class Receipt:
    """A message that was published.

    Attributes:
        epoch: The life of the topic.
        version: The number of the message.
        woken: Clients of this process that waited for it.
    """

    epoch: str
    version: int
    woken: int


@dataclass(frozen=True, slots=True)
class Totals:
    """What a store holds in all, and what ever became of it.

    Attributes:
        topics: Topics that exist.
        size: What all kept messages count, in bytes.
        published: Messages ever published.
        dropped: Messages ever dropped, to make room or by age.
        expired: Topics ever removed because they were not used.
    """

    topics: int
    size: int
    published: int
    dropped: int
    expired: int


class TopicStore(Protocol):
    """The topics of a service: in memory, or in a place that several processes reach.

    Its own calls but `open` and `aclose` raise `StoreUnavailableError` if that place does not
    answer.
    """

    async def open(self, timer: Timer, purgatory: Purgatory) -> None:
        """Begin; both are open, and stay open until after `aclose`.

        Raises:
            StoreUnavailableError: The store does not answer.
        """
        ...

    async def publish(self, name: str, data: bytes) -> Receipt:
        """Append *data*, a JSON value, to the topic, which is made when missing.

        Raises:
            Refusal: There are as many topics as may be.
        """
        ...

    async def news(self, name: str, has: Seen, most: int | None = None) -> News:
        """What the topic has for a client that has seen this much; counts as a use of the topic.

        Args:
            name: Of the topic, which need not exist.
            has: What the client has seen.
            most: Bytes of messages in the answer, but at least one message; None: all that is kept.
        """
        ...

    def wait(self, name: str, threshold: int, seconds: float) -> Awaitable[bool]:
        """Wait for what is newer than a `News` without any; False on timeout.

        The wait is registered by the call. It may complete without news.

        Raises:
            PurgatoryClosedError: The service is stopping.
        """
        ...

    async def remove(self, name: str) -> bool:
        """Forget the topic, complete the waits for it, and return whether there was one."""
        ...

    async def totals(self) -> Totals:
        """What the store holds in all."""
        ...

    async def aclose(self) -> None:
        """End the store, after the publishes under way; idempotent."""
        ...


async def answer_store_unavailable(request: Request, _exc: Exception) -> Response:
    """Exception handler for `StoreUnavailableError`, whose text may hold the store's address."""
    detail = "the topics cannot be reached at present"
    if request.method != "GET":
        detail += "; whether this has been done is not known"
    return Refusal(503, "store_unavailable", detail, retry_after()).answer()
