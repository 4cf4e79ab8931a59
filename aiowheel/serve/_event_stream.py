"""A subscription to a topic over server-sent events. Rank 5.

Each page of messages is one event; a comment is the heartbeat.

Source: the WHATWG HTML standard, 9.2. A browser's `EventSource` reconnects automatically, and then
sends the `id` of the last event in the header `Last-Event-ID`.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from aiowheel.errors import StoreUnavailableError
from aiowheel.serve._feed import feed
from aiowheel.serve._parameters import Seen, checked_query, last_event, topic_name
from aiowheel.serve._refusal import retry_seconds
from aiowheel.serve._service import POLL_HEADERS, Service
from aiowheel.serve._topic_store import News

MEDIA_TYPE = "text/event-stream"
# X-Accel-Buffering: nginx must not buffer the stream.
_HEADERS = {**POLL_HEADERS, "X-Accel-Buffering": "no"}
_SILENCE = b":\n\n"


def wants_events(request: Request) -> bool:
    """Return whether `Accept` names server-sent events explicitly; `*/*` does not count."""
    accepted = request.headers.get("accept", "").lower()
    if request.method != "GET" or MEDIA_TYPE not in accepted:
        return False
    return MEDIA_TYPE in {each.partition(";")[0].strip() for each in accepted.split(",")}


def event_stream(service: Service, request: Request) -> Response:
    """Handle GET: stream the topic until the client disconnects or the service stops.

    Raises:
        Refusal: A parameter is out of range, or the service is shutting down.
    """
    query = checked_query(request, "since", "epoch")
    name = topic_name(request, service.limits)
    has = last_event(request, query)
    service.refuse_when_stopping()
    return _EventStream(service, request, name, has)


class _EventStream(Response):
    """A streaming response that counts as a waiting client for as long as it streams.

    If the limit of waiting clients is reached, it raises `Refusal` before it sends anything.
    """

    def __init__(self, service: Service, request: Request, name: str, has: Seen) -> None:
        super().__init__()
        self._service = service
        self._request = request
        self._name = name
        self._has = has

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self._service.waiters.admit(self._request):
            stream = StreamingResponse(self._events(), headers=_HEADERS, media_type=MEDIA_TYPE)
            await stream(scope, receive, send)

    async def _events(self) -> AsyncGenerator[bytes, None]:
        # A random reconnection delay: when the service stops, all clients disconnect at once.
        yield b"retry: %d\n\n" % (1_000 * retry_seconds())
        with suppress(StoreUnavailableError):  # the stream ends, and the client reconnects
            async with aclosing(feed(self._service, self._name, self._has)) as pages:
                async for page in pages:
                    yield _SILENCE if page is None else _event(page)


def _event(page: News) -> bytes:
    # A topic that does not exist has an empty id, so that the client starts from the beginning.
    epoch, version = page.seen.epoch, page.seen.version
    position = f"{epoch}-{version}" if epoch else ""
    # JSON that was published may have line breaks, and a line break ends a field of an event.
    lines = b"\ndata: ".join(page.text.splitlines())
    return b"id: %b\ndata: %b\n\n" % (position.encode(), lines)
