"""The messages of one subscription, for websockets and server-sent events alike. Rank 5."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

from aiowheel.errors import EpochChangedError, PurgatoryClosedError, SharedCountersClosedError
from aiowheel.serve._parameters import Seen
from aiowheel.serve._service import Service
from aiowheel.serve._topic_store import News

_PAGE = 65_536  # bytes of messages per page
_PAUSE = 1.0  # seconds before the next wait, after a wait that ended without news


async def feed(service: Service, name: str, has: Seen) -> AsyncGenerator[News | None, None]:
    """Yield the messages after *has* in pages, and None as a heartbeat.

    A heartbeat follows `Limits.heartbeat` seconds without a message. The generator ends when the
    service stops. It reads a page only after the subscriber has taken the page before, so a slow
    subscriber costs the memory of one page, not of all new messages.

    Raises:
        StoreUnavailableError: The store of the topics does not answer.
    """
    may_have_news = False
    while not service.stopping:
        news = await service.store.news(name, has, _PAGE)
        if news.threshold is None:
            has, may_have_news = news.seen, False
            yield news
            continue
        if may_have_news:  # the counter stands above the version, so the next wait may end at once
            await asyncio.sleep(_PAUSE)
        try:
            may_have_news = await service.store.wait(name, news.threshold, service.limits.heartbeat)
        except (PurgatoryClosedError, SharedCountersClosedError):
            return
        except EpochChangedError:  # the store lost its history: the next read returns a reset
            may_have_news = True
        if not may_have_news and not service.stopping:
            yield None
