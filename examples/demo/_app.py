"""The demo's long-poll application. Needs the `web` extra.

A client polls a topic; the request waits in a purgatory until the topic has a message, or until the
timeout. An `IdleDetector`, touched at the end of each request, finds idle connections.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator
from pathlib import Path

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from aiowheel import DelayedOperation, IdleDetector, Purgatory, Timer
from aiowheel.trace import TraceRecorder

PURGATORY = "long-poll"


class Poll(DelayedOperation[list[str]]):
    """An operation that waits until its topic has more messages than the client has seen."""

    def __init__(self, messages: list[str], seen: int, timeout: float) -> None:
        super().__init__(timeout=timeout)
        self._messages = messages
        self._seen = seen

    def try_complete(self) -> bool:
        """Complete if there are new messages."""
        return len(self._messages) > self._seen and self.force_complete()

    def on_complete(self) -> list[str]:
        """Return the new messages; an empty list after the timeout."""
        return self._messages[self._seen :]


class LongPollApp:
    """An application with topics, long polls and a list of idle connections.

    Attributes:
        asgi: The ASGI application.
    """

    def __init__(self, trace_folder: Path, *, idle_timeout: float) -> None:
        self._trace_folder = trace_folder
        self._idle_timeout = idle_timeout
        self._topics: dict[str, list[str]] = {}
        self._idle: list[str] = []  # idle connections, in the order of their detection
        self._purgatory: Purgatory
        self._detector: IdleDetector[str]
        routes = [
            Route("/topics/{topic}", self._poll, methods=["GET"]),
            Route("/topics/{topic}", self._publish, methods=["POST"]),
            Route("/ping", self._ping),
            Route("/idle", self._list_idle),
            Route("/statistics", self._statistics),
        ]
        self.asgi: ASGIApp = self._touching(Starlette(routes=routes, lifespan=self._lifespan))

    @contextlib.asynccontextmanager
    async def _lifespan(self, _app: Starlette) -> AsyncGenerator[None, None]:
        async with (
            TraceRecorder(self._trace_folder) as recorder,
            Timer(tick=0.001) as timer,
            Purgatory(PURGATORY, timer=timer, instruments=(recorder,)) as purgatory,
        ):
            self._purgatory = purgatory
            self._detector = IdleDetector(self._idle_timeout, self._idle.append, timer=timer)
            yield

    def _touching(self, app: ASGIApp) -> ASGIApp:
        """Wrap *app* so that the detector watches each connection between its requests."""

        async def watched(scope: Scope, receive: Receive, send: Send) -> None:
            if scope["type"] != "http":
                await app(scope, receive, send)
                return
            host, port = scope["client"]
            connection = f"{host}:{port}"
            self._detector.discard(connection)
            try:
                await app(scope, receive, send)
            finally:
                self._detector.touch(connection)

        return watched

    async def _poll(self, request: Request) -> Response:
        topic = request.path_params["topic"]
        query = request.query_params
        messages = self._topics.setdefault(topic, [])
        poll = Poll(messages, int(query.get("seen", 0)), float(query["timeout"]))
        news = await self._purgatory.watch(poll, keys=[("topic", topic)])
        return JSONResponse(news) if news else Response(status_code=204)

    async def _publish(self, request: Request) -> Response:
        topic = request.path_params["topic"]
        self._topics.setdefault(topic, []).append((await request.body()).decode())
        return JSONResponse({"answered": self._purgatory.check_and_complete(("topic", topic))})

    async def _ping(self, _request: Request) -> Response:
        return Response(status_code=204)

    async def _list_idle(self, _request: Request) -> Response:
        return JSONResponse(self._idle)

    async def _statistics(self, _request: Request) -> Response:
        statistics = self._purgatory.statistics()
        return JSONResponse(
            {
                "pending": statistics.pending,
                "completed": statistics.completed,
                "expired": statistics.expired,
            }
        )
