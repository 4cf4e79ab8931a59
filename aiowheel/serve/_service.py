"""The service: topics, and the requests that wait for their news. Rank 5."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from aiowheel.purgatory import Purgatory
from aiowheel.serve._access import Access
from aiowheel.serve._crowd import Crowd, retry_after
from aiowheel.serve._expiry import Expiry
from aiowheel.serve._limits import Limits
from aiowheel.serve._parameters import (
    Seen,
    checked_query,
    last_event,
    message,
    timeout,
    topic_name,
)
from aiowheel.serve._refusal import Refusal
from aiowheel.serve._topics import Topics, answer
from aiowheel.serve._wait import answered
from aiowheel.timer import Timer

PURGATORY = "topics"
_PAGE = 65_536  # bytes of messages that a subscriber gets at once


class Service:
    """What the addresses of the service do; a topic's version is a counter of the purgatory.

    Attributes:
        limits: What it allows.
        access: Who may use it; may be replaced at any time.
        topics: What it keeps.
        crowd: Counts the clients that wait.
        purgatory: Holds their requests.
        expiry: What ends messages and topics by age.
        stopping: Whether it is shutting down.
    """

    def __init__(self, limits: Limits, access: Access) -> None:
        self.limits = limits
        self.access = access
        self.topics = Topics(limits)
        self.crowd = Crowd(limits)
        self.purgatory: Purgatory  # once the application has started
        self.expiry: Expiry
        self.stopping = False

    def start(self, timer: Timer, purgatory: Purgatory) -> None:
        """Begin to serve; both are open."""
        self.purgatory = purgatory
        seconds = self.limits.kept_seconds
        self.expiry = Expiry(self.topics, timer, seconds, self._is_waited_for, self._forget)
        self._time = timer.time  # the clock by which messages grow old

    async def poll(self, request: Request) -> Response:
        """GET: news since a version, at once or as soon as there is some."""
        query = checked_query(request, "since", "epoch", "timeout")
        name = topic_name(request, self.limits)
        has = last_event(request, query)
        seconds = timeout(query, self.limits)
        self.refuse_when_stopping()
        self.expiry.note_used(name)
        if seconds > 0 and not self.has_answer(name, has):
            with self.crowd.seat(request):
                waiting = self.purgatory.wait_until({name: has.version + 1}, seconds)
                if not await answered(waiting, request.receive):
                    return Response(status_code=499)  # the client has left: for the log
            self.refuse_when_stopping()
            self.expiry.note_used(name)
        return Response(self.answer(name, has), media_type="application/json")

    def has_answer(self, name: str, has: Seen) -> bool:
        """Whether a client that has seen this much need not wait."""
        topic = self.topics.get(name)
        if topic is None:
            return has.version > 0 or has.epoch is not None
        return topic.version > has.version or not topic.knows(has.version, has.epoch)

    def answer(self, name: str, has: Seen) -> bytes:
        """The answer for a client that has seen this much, as JSON."""
        topic = self.topics.get(name)
        if topic is not None:
            return topic.since(has.version, has.epoch)
        gone = has.version > 0 or has.epoch is not None
        return answer(name, "", 0, b"", missed=0, reset=gone)

    def page(self, name: str, has: Seen) -> tuple[bytes, Seen]:
        """As `answer`, but at most one page; and what the client has seen with it."""
        self.expiry.note_used(name)
        topic = self.topics.get(name)
        if topic is None:
            return self.answer(name, has), Seen(0, None)
        text, version = topic.page(has.version, has.epoch, _PAGE)
        return text, Seen(version, topic.epoch)

    async def publish(self, request: Request) -> Response:
        """POST: one more message."""
        checked_query(request)
        name = topic_name(request, self.limits)
        data = await message(request, self.limits)
        self.refuse_when_stopping()
        self.expiry.note_used(name)
        topic = self.topics.publish(name, data, self._time())
        self.expiry.note_published(topic)
        completed = self.purgatory.advance(name, topic.version)
        body = {"topic": name, "epoch": topic.epoch, "version": topic.version, "woken": completed}
        return JSONResponse(body, 201)

    async def remove(self, request: Request) -> Response:
        """DELETE: the topic and its messages; requests that wait for it are answered."""
        checked_query(request)
        name = topic_name(request, self.limits)
        self.refuse_when_stopping()
        if self.topics.get(name) is None:
            raise Refusal(404, "no_such_topic", f"nothing was published to {name!r}")
        self.expiry.note_removed(name)
        self._forget(name)
        return Response(status_code=204)

    def _forget(self, name: str) -> None:
        self.topics.remove(name)
        self.purgatory.forget(name)
        for operation in list(self.purgatory.pending(name)):
            operation.force_complete()

    def _is_waited_for(self, name: str) -> bool:
        return next(self.purgatory.pending(name), None) is not None

    async def live(self, _request: Request) -> Response:
        """GET /live: that it answers, whether or not it takes requests."""
        return JSONResponse({"status": "ok"})

    async def health(self, _request: Request) -> Response:
        """GET /health: whether it takes requests."""
        self.refuse_when_stopping()
        body = {"status": "ok", "topics": len(self.topics), "waiters": len(self.crowd)}
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

    async def stop(self) -> None:
        """Answer every request that waits, and refuse every later one."""
        self.stopping = True
        await self.purgatory.aclose(drain="expire")
