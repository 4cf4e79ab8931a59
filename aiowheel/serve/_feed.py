"""What a subscriber gets, whatever it subscribed over: pages of news, and silence. Rank 5."""

from __future__ import annotations

from collections.abc import AsyncGenerator

from aiowheel.errors import EpochChangedError, PurgatoryClosedError, SharedCountersClosedError
from aiowheel.serve._parameters import Seen
from aiowheel.serve._service import Service
from aiowheel.serve._topic_store import News

_PAGE = 65_536  # bytes of messages that a subscriber gets at once


async def feed(service: Service, name: str, has: Seen) -> AsyncGenerator[News | None, None]:
    """Yield every message after *has*, in pages; None after each heartbeat's time of silence.

    It ends when the service stops. A page is made when the one before was taken, so a subscriber
    that is slow to read costs one page, not all that has been published since.

    Raises:
        StoreUnavailableError: What keeps the topics does not answer.
    """
    while not service.stopping:
        news = await service.store.news(name, has, _PAGE)
        if news.threshold is None:
            has = news.seen
            yield news
            continue
        try:
            has_come = await service.store.wait(name, news.threshold, service.limits.heartbeat)
        except (PurgatoryClosedError, SharedCountersClosedError):
            return
        except EpochChangedError:  # the store lost its history: that is news
            has_come = True
        if not has_come and not service.stopping:
            yield None
