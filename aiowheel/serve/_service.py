"""The request handlers of the service: poll, publish, remove, liveness, health. Rank 5."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from aiowheel.integrations._hangup import done_before_disconnect
from aiowheel.purgatory import Purgatory
from aiowheel.serve._access import Access
from aiowheel.serve._limits import Limits
from aiowheel.serve._parameters import (
    checked_query,
    last_event,
    message,
    timeout,
    topic_name,
)
from aiowheel.serve._refusal import SHUTTING_DOWN, Refusal, retry_after
from aiowheel.serve._topic_store import TopicStore
from aiowheel.serve._waiters import Waiters

PURGATORY = "topics"
#: Without this header a cache may store the answer to a GET.
NO_STORE = {"Cache-Control": "no-store"}
#: Accept chooses between a poll and a stream of events.
POLL_HEADERS = {**NO_STORE, "Vary": "Accept"}


class Service:
    """The state of the service, and a handler for each of its addresses.

    Attributes:
        limits: The limits of the service.
        access: The clients that may use the service; may be replaced at any time.
        store: The store of the topics.
        waiters: Counts the waiting requests.
        purgatory: Holds the waiting requests.
        stopping: Whether the service is shutting down.
        replaced: Whether another worker replaces this one; requests then no longer wait here.
    """

    def __init__(self, limits: Limits, access: Access, store: TopicStore) -> None:
        self.limits = limits
        self.access = access
        self.store = store
        self.waiters = Waiters(limits)
        self.purgatory: Purgatory  # set when the application starts
        self.stopping = False
        self.replaced = False

    async def poll(self, request: Request) -> Response:
        """Handle GET: return the messages after a version; wait if there are none yet."""
        query = checked_query(request, "since", "epoch", "timeout")
        name = topic_name(request, self.limits)
        has = last_event(request, query)
        seconds = timeout(query, self.limits)
        self.refuse_when_stopping()
        news = await self.store.news(name, has)
        if seconds > 0 and news.threshold is not None and not self.replaced:
            self.refuse_when_stopping()  # the stop may have begun during the read
            with self.waiters.admit(request):
                waiting = self.store.wait(name, news.threshold, seconds)
                if not await done_before_disconnect(waiting, request.receive):
                    return Response(status_code=499)  # disconnected; only the access log shows it
            self.refuse_when_stopping()
            news = await self.store.news(name, has)
        # The client must open a new connection, which reaches the new worker.
        headers = POLL_HEADERS | ({"Connection": "close"} if self.replaced else {})
        return Response(news.text, headers=headers, media_type="application/json")

    async def publish(self, request: Request) -> Response:
        """Handle POST: publish one message."""
        checked_query(request)
        name = topic_name(request, self.limits)
        data = await message(request, self.limits)
        self.refuse_when_stopping()
        receipt = await self.store.publish(name, data)
        body = {
            "topic": name,
            "epoch": receipt.epoch,
            "version": receipt.version,
            "woken": receipt.woken,
        }
        return JSONResponse(body, 201)

    async def remove(self, request: Request) -> Response:
        """Handle DELETE: remove the topic, and answer the requests that wait for it."""
        checked_query(request)
        name = topic_name(request, self.limits)
        self.refuse_when_stopping()
        if not await self.store.remove(name):
            raise Refusal(404, "no_such_topic", f"the topic {name!r} does not exist")
        return Response(status_code=204)

    async def live(self, _request: Request) -> Response:
        """Handle GET /live: return 200, also while the service shuts down."""
        return JSONResponse({"status": "ok"}, headers=NO_STORE)

    async def health(self, _request: Request) -> Response:
        """Handle GET /health: return 200 if the service accepts requests, otherwise 503."""
        self.refuse_when_stopping()
        totals = await self.store.totals()
        body = {"status": "ok", "topics": totals.topics, "waiters": len(self.waiters)}
        return JSONResponse(body, headers=NO_STORE)

    def refuse_when_stopping(self) -> None:
        """Refuse a request while the service shuts down.

        Raises:
            Refusal: 503, with a random `Retry-After`; the service is shutting down.
        """
        if self.stopping:
            headers = {**retry_after(), "Connection": "close"}
            raise Refusal(503, "shutting_down", SHUTTING_DOWN, headers)

    async def stop(self, *, replaced: bool) -> None:
        """Answer all waiting requests; refuse later ones, unless *replaced*."""
        self.stopping, self.replaced = not replaced, replaced
        await self.purgatory.aclose(drain="expire")
