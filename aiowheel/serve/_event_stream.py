"""A topic as server-sent events: an event for each page, a comment after silence. Rank 5.

Source: the WHATWG HTML standard, 9.2. A browser's `EventSource` reconnects by itself, and then
sends the last event's `id` as `Last-Event-ID`.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from aiowheel.errors import StoreUnavailableError
from aiowheel.serve._crowd import retry_seconds
from aiowheel.serve._feed import feed
from aiowheel.serve._parameters import Seen, checked_query, last_event, topic_name
from aiowheel.serve._service import Service
from aiowheel.serve._topic_store import News

MEDIA_TYPE = "text/event-stream"
_HEADERS = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}  # the latter: for nginx
_SILENCE = b":\n\n"


def wants_events(request: Request) -> bool:
    """Whether the client accepts server-sent events; `*/*` is no such wish."""
    accepted = request.headers.get("accept", "").lower()
    if request.method != "GET" or MEDIA_TYPE not in accepted:
        return False
    return MEDIA_TYPE in {each.partition(";")[0].strip() for each in accepted.split(",")}


def event_stream(service: Service, request: Request) -> Response:
    """GET: the topic as server-sent events, until the client leaves or the service stops.

    Raises:
        Refusal: Something in the request is out of range, or the service is shutting down.
    """
    query = checked_query(request, "since", "epoch")
    name = topic_name(request, service.limits)
    has = last_event(request, query)
    service.refuse_when_stopping()
    return _EventStream(service, request, name, has)


class _EventStream(Response):
    """Holds its seat while it streams; a refusal of one comes before the answer has begun."""

    def __init__(self, service: Service, request: Request, name: str, has: Seen) -> None:
        super().__init__()
        self._service = service
        self._request = request
        self._name = name
        self._has = has

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self._service.crowd.seat(self._request):
            stream = StreamingResponse(self._events(), headers=_HEADERS, media_type=MEDIA_TYPE)
            await stream(scope, receive, send)

    async def _events(self) -> AsyncGenerator[bytes, None]:
        # All clients lose the connection at once when the service stops; they come back one by one.
        yield b"retry: %d\n\n" % (1_000 * retry_seconds())
        with suppress(StoreUnavailableError):  # the client comes back
            async with aclosing(feed(self._service, self._name, self._has)) as pages:
                async for page in pages:
                    yield _SILENCE if page is None else _event(page)


def _event(page: News) -> bytes:
    # Of a topic that does not exist the id is empty: what comes next is a start.
    epoch, version = page.seen.epoch, page.seen.version
    position = f"{epoch}-{version}" if epoch else ""
    return b"id: %b\ndata: %b\n\n" % (position.encode(), page.text)
