"""What a subscriber gets, whatever it subscribed over: pages of news, and silence. Rank 5."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from dataclasses import dataclass

from aiowheel.errors import PurgatoryClosedError
from aiowheel.serve._parameters import Seen
from aiowheel.serve._service import Service


@dataclass(frozen=True, slots=True)
class Page:
    """One answer, as JSON, and what a client has seen with it."""

    text: bytes
    seen: Seen


async def feed(service: Service, name: str, has: Seen) -> AsyncGenerator[Page | None, None]:
    """Yield every message after *has*, in pages; None after each heartbeat's time of silence.

    It ends when the service stops. A page is made when the one before was taken, so a subscriber
    that is slow to read costs one page, not all that has been published since.
    """
    while not service.stopping:
        if service.has_answer(name, has):
            page = Page(*service.page(name, has))
            has = page.seen
            yield page
            continue
        wanted = {name: has.version + 1}
        try:
            has_come = await service.purgatory.wait_until(wanted, service.limits.heartbeat)
        except PurgatoryClosedError:
            return
        if not has_come and not service.stopping:
            yield None
