"""The service as an ASGI application. Rank 5; needs the extras `web` and `metrics`."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route, WebSocketRoute
from starlette.types import Receive, Scope, Send
from starlette.websockets import WebSocket

from aiowheel.dashboard import Dashboard
from aiowheel.purgatory import Purgatory
from aiowheel.serve._limits import Limits
from aiowheel.serve._metrics import Metrics
from aiowheel.serve._openapi import document
from aiowheel.serve._refusal import Refusal, answer_http_exception, answer_refusal
from aiowheel.serve._service import PURGATORY, Service
from aiowheel.serve._subscription import subscribe
from aiowheel.timer import Timer


class TopicApp:
    """Named topics to publish to, to poll and to subscribe to; for one run of one server.

    Its lifespan opens a timer and a purgatory; the timer is in the lifespan's state as `timer`.

    Args:
        limits: What it allows and keeps.
        dashboard: Whether /dashboard shows the wheels, to clients on this machine.
    """

    def __init__(self, limits: Limits | None = None, *, dashboard: bool = False) -> None:
        self._service = Service(Limits() if limits is None else limits)
        self._with_dashboard = dashboard
        self._dashboard: Dashboard | None = None
        self._document = document(self._service.limits)
        self._metrics: Metrics
        self._app = Starlette(
            routes=[
                Route("/topics/{name}", self._topic, methods=["GET", "POST", "DELETE"]),
                WebSocketRoute("/topics/{name}", self._subscribe),
                Route("/health", self._service.health),
                Route("/metrics", self._read_metrics),
                Route("/openapi.json", self._openapi),
            ],
            exception_handlers={
                Refusal: answer_refusal,
                HTTPException: answer_http_exception,
                ClientDisconnect: _answer_nobody,
            },
            lifespan=self._lifespan,
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._app(scope, receive, send)

    async def stop(self) -> None:
        """Answer everybody who waits with 503 and `Retry-After`; refuse every later request.

        To be called when the server has been told to stop, before it waits for its requests.
        """
        if self._dashboard is not None:
            self._dashboard.close()
        await self._service.stop()

    @contextlib.asynccontextmanager
    async def _lifespan(self, app: Starlette) -> AsyncGenerator[dict[str, object], None]:
        service = self._service
        async with (
            Timer() as timer,
            Purgatory(PURGATORY, timer=timer, max_pending=service.limits.waiters) as purgatory,
        ):
            service.purgatory = purgatory
            self._metrics = Metrics(service, timer)
            if self._with_dashboard:
                self._dashboard = Dashboard(timer, [purgatory])
                app.mount("/dashboard", self._dashboard)
            yield {"timer": timer}

    async def _topic(self, request: Request) -> Response:
        # One route, so that a refused method is told of all the others.
        if request.method == "POST":
            return await self._service.publish(request)
        if request.method == "DELETE":
            return await self._service.remove(request)
        return await self._service.poll(request)

    async def _subscribe(self, socket: WebSocket) -> None:
        await subscribe(self._service, socket)

    async def _read_metrics(self, _request: Request) -> Response:
        return self._metrics.answer()

    async def _openapi(self, _request: Request) -> Response:
        return JSONResponse(self._document)


async def _answer_nobody(_request: Request, _exc: Exception) -> Response:
    return Response(status_code=400)  # the client has left
