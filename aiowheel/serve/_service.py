"""The service: topics, and the requests that wait for their news. Rank 5."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from aiowheel.purgatory import Purgatory
from aiowheel.serve._access import Access
from aiowheel.serve._crowd import Crowd, retry_after
from aiowheel.serve._limits import Limits
from aiowheel.serve._parameters import (
    checked_query,
    last_event,
    message,
    timeout,
    topic_name,
)
from aiowheel.serve._refusal import Refusal
from aiowheel.serve._topic_store import TopicStore
from aiowheel.serve._wait import answered

PURGATORY = "topics"


class Service:
    """What the addresses of the service do.

    Attributes:
        limits: What it allows.
        access: Who may use it; may be replaced at any time.
        store: What keeps its topics.
        crowd: Counts the clients that wait.
        purgatory: Holds their requests.
        stopping: Whether it is shutting down.
        replaced: Whether another process serves on, and nothing waits here any more.
    """

    def __init__(self, limits: Limits, access: Access, store: TopicStore) -> None:
        self.limits = limits
        self.access = access
        self.store = store
        self.crowd = Crowd(limits)
        self.purgatory: Purgatory  # once the application has started
        self.stopping = False
        self.replaced = False

    async def poll(self, request: Request) -> Response:
        """GET: news since a version, at once or as soon as there is some."""
        query = checked_query(request, "since", "epoch", "timeout")
        name = topic_name(request, self.limits)
        has = last_event(request, query)
        seconds = timeout(query, self.limits)
        self.refuse_when_stopping()
        news = await self.store.news(name, has)
        if seconds > 0 and news.threshold is not None and not self.replaced:
            self.refuse_when_stopping()  # it may have begun while the store was read
            with self.crowd.seat(request):
                waiting = self.store.wait(name, news.threshold, seconds)
                if not await answered(waiting, request.receive):
                    return Response(status_code=499)  # the client has left: for the log
            self.refuse_when_stopping()
            news = await self.store.news(name, has)
        # A client that comes back reaches a process that waits.
        headers = {"Connection": "close"} if self.replaced else None
        return Response(news.text, headers=headers, media_type="application/json")

    async def publish(self, request: Request) -> Response:
        """POST: one more message."""
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
        """DELETE: the topic and its messages; requests that wait for it are answered."""
        checked_query(request)
        name = topic_name(request, self.limits)
        self.refuse_when_stopping()
        if not await self.store.remove(name):
            raise Refusal(404, "no_such_topic", f"nothing was published to {name!r}")
        return Response(status_code=204)

    async def live(self, _request: Request) -> Response:
        """GET /live: that it answers, whether or not it takes requests."""
        return JSONResponse({"status": "ok"})

    async def health(self, _request: Request) -> Response:
        """GET /health: whether it takes requests."""
        self.refuse_when_stopping()
        totals = await self.store.totals()
        body = {"status": "ok", "topics": totals.topics, "waiters": len(self.crowd)}
        return JSONResponse(body)

    def refuse_when_stopping(self) -> None:
        """Refuse a request; the clients come back one by one.

        Raises:
            Refusal: The service is shutting down.
        """
        if self.stopping:
            detail = "the service is shutting down; ask again"
            headers = {**retry_after(), "Connection": "close"}
            raise Refusal(503, "shutting_down", detail, headers)

    async def stop(self, *, replaced: bool) -> None:
        """Answer every request that waits, and refuse every later one unless *replaced*."""
        self.stopping, self.replaced = not replaced, replaced
        await self.purgatory.aclose(drain="expire")
