"""The service: topics, and the requests that wait for their news. Rank 5."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from aiowheel.purgatory import Purgatory
from aiowheel.serve._crowd import Crowd, retry_after
from aiowheel.serve._limits import Limits
from aiowheel.serve._parameters import Seen, checked_query, message, seen, timeout, topic_name
from aiowheel.serve._refusal import Refusal
from aiowheel.serve._topics import Topics, answer
from aiowheel.serve._wait import answered

PURGATORY = "topics"


class Service:
    """What the addresses of the service do; a topic's version is a counter of the purgatory.

    Attributes:
        limits: What it allows.
        topics: What it keeps.
        crowd: Who waits.
        purgatory: Where they wait.
        stopping: Whether it is shutting down.
    """

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.topics = Topics(limits)
        self.crowd = Crowd(limits)
        self.purgatory: Purgatory  # once the application has started
        self.stopping = False

    async def poll(self, request: Request) -> Response:
        """GET: news since a version, at once or as soon as there is some."""
        query = checked_query(request, "since", "epoch", "timeout")
        name = topic_name(request, self.limits)
        has = seen(query)
        seconds = timeout(query, self.limits)
        self.refuse_when_stopping()
        if seconds > 0 and not self.has_answer(name, has):
            with self.crowd.seat(request):
                waiting = self.purgatory.wait_until({name: has.version + 1}, seconds)
                if not await answered(waiting, request.receive):
                    return Response()  # to nobody
            self.refuse_when_stopping()
        return Response(self.answer(name, has), media_type="application/json")

    def has_answer(self, name: str, has: Seen) -> bool:
        """Whether a client that has seen this much need not wait."""
        topic = self.topics.get(name)
        if topic is None:
            return has.version > 0 or has.epoch is not None
        return topic.version > has.version or not topic.knows(has.version, has.epoch)

    def answer(self, name: str, has: Seen) -> bytes:
        """What a client gets that has seen this much, as JSON."""
        topic = self.topics.get(name)
        if topic is not None:
            return topic.since(has.version, has.epoch)
        gone = has.version > 0 or has.epoch is not None
        return answer(name, "", 0, b"", missed=0, reset=gone)

    async def publish(self, request: Request) -> Response:
        """POST: one more message."""
        checked_query(request)
        name = topic_name(request, self.limits)
        data = await message(request, self.limits)
        self.refuse_when_stopping()
        topic = self.topics.publish(name, data)
        completed = self.purgatory.advance(name, topic.version)
        body = {"topic": name, "epoch": topic.epoch, "version": topic.version, "woken": completed}
        return JSONResponse(body, 201)

    async def remove(self, request: Request) -> Response:
        """DELETE: the topic and its messages; who waits for it is told so."""
        checked_query(request)
        name = topic_name(request, self.limits)
        self.refuse_when_stopping()
        if self.topics.remove(name) is None:
            raise Refusal(404, "no_such_topic", f"nothing was published to {name!r}")
        self.purgatory.forget(name)
        for operation in list(self.purgatory.pending(name)):
            operation.force_complete()
        return Response(status_code=204)

    async def health(self, _request: Request) -> Response:
        """GET /health: whether it takes requests."""
        self.refuse_when_stopping()
        body = {"status": "ok", "topics": len(self.topics), "waiters": len(self.crowd)}
        return JSONResponse(body)

    def refuse_when_stopping(self) -> None:
        """Send everybody away, not all back at the same time.

        Raises:
            Refusal: The service is shutting down.
        """
        if self.stopping:
            detail = "the service is shutting down; ask again"
            headers = {**retry_after(), "Connection": "close"}
            raise Refusal(503, "shutting_down", detail, headers)

    async def stop(self) -> None:
        """Answer everybody who waits, and take nothing more in."""
        self.stopping = True
        await self.purgatory.aclose(drain="expire")
