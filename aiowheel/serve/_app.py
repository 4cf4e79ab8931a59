"""The service as an ASGI application. Rank 5; needs the extras `web` and `metrics`."""

from __future__ import annotations

import contextlib
from asyncio import CancelledError
from collections.abc import AsyncGenerator
from pathlib import Path
from signal import SIGINT, SIGTERM

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import Route, WebSocketRoute
from starlette.types import ASGIApp, Receive, Scope, Send
from starlette.websockets import WebSocket

from aiowheel._arguments import checked_str, safe_repr
from aiowheel._build import __version__
from aiowheel._units import FOREVER
from aiowheel.dashboard import Dashboard
from aiowheel.errors import AiowheelError, StoreUnavailableError
from aiowheel.integrations._stop_signals import task_at_signal
from aiowheel.purgatory import Purgatory
from aiowheel.serve._access import Access, Guarded
from aiowheel.serve._access_log import AccessLog
from aiowheel.serve._event_stream import event_stream, wants_events
from aiowheel.serve._limits import Limits
from aiowheel.serve._metrics import Metrics
from aiowheel.serve._openapi import document
from aiowheel.serve._refusal import (
    Refusal,
    answer_http_exception,
    answer_refusal,
    answer_store_unavailable,
)
from aiowheel.serve._service import PURGATORY, Service
from aiowheel.serve._store_address import topic_store
from aiowheel.serve._subscription import subscribe
from aiowheel.serve._topic_store import Totals
from aiowheel.timer import Timer


class TopicApp:
    """ASGI application of named topics that clients publish to, poll and subscribe to.

    An object serves one run of one server. Its lifespan opens a timer and a purgatory, and puts the
    timer into the lifespan's state as `timer`.

    Subscriptions never end by themselves, and would delay a server that waits for its requests when
    it shuts down. The service therefore stops on SIGINT and SIGTERM, beside the server's own
    handlers. Call `stop` if your server is stopped in another way.

    Args:
        limits: Limits of connections, waiting clients, topics and messages.
        access: The clients that may use the service. Default: every client, except web pages of
            another origin.
        dashboard: Whether /dashboard shows the wheels of all workers to clients on this machine.
        access_log: Whether each request is logged at its end, as `aiowheel.request`.
        store: Address of the store of the topics, which several processes need: see `serve`.
            Default: the memory of this process.

    Raises:
        TypeError: An argument has the wrong type.
        BadInputError: *store* is malformed.
        MissingExtraError: *store* needs a package that is not installed.
    """

    def __init__(
        self,
        limits: Limits | None = None,
        *,
        access: Access | None = None,
        dashboard: bool = False,
        access_log: bool = False,
        store: str | None = None,
    ) -> None:
        limits = Limits() if limits is None else limits
        if not isinstance(limits, Limits):  # pyright: ignore[reportUnnecessaryIsInstance] - users pass anything
            raise TypeError(f"limits must be a Limits or None, got {safe_repr(limits)}")
        access = Access() if access is None else _checked_access(access)
        self._store = None if store is None else checked_str("store", store)
        self._service = Service(limits, access, topic_store(store, limits))
        self._with_dashboard = dashboard
        self._with_access_log = access_log
        self._dashboard: Dashboard | None = None
        self._metrics: Metrics
        self._has_begun = False  # whether the lifespan has begun
        self._worker: tuple[Path, int] | None = None
        self._app = Starlette(
            routes=[
                Route("/", self._about),
                Route("/topics/{name}", self._topic, methods=["GET", "POST", "DELETE"]),
                WebSocketRoute("/topics/{name}", self._subscribe),
                Route("/live", self._service.live),
                Route("/health", self._service.health),
                Route("/metrics", self._read_metrics),
                Route("/openapi.json", self._openapi),
            ],
            exception_handlers={
                Refusal: answer_refusal,
                HTTPException: answer_http_exception,
                ClientDisconnect: _answer_disconnected,
                StoreUnavailableError: answer_store_unavailable,
            },
            lifespan=self._lifespan,
        )
        # A redirect would name a wrong scheme behind a proxy that ends TLS.
        self._app.router.redirect_slashes = False
        self._entry = self._with_middleware()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if not self._has_begun and scope["type"] != "lifespan":
            raise AiowheelError(
                "the lifespan of TopicApp has not run: an application in which it is mounted must "
                "run it, and the server must not turn lifespans off"
            )
        await self._entry(scope, receive, send)

    @property
    def access(self) -> Access:
        """The clients that may use the service; a new value holds from the next request on."""
        return self._service.access

    @access.setter
    def access(self, access: Access) -> None:
        self._service.access = _checked_access(access)
        self._entry = self._with_middleware()

    @property
    def access_log(self) -> bool:
        """Whether each request is logged."""
        return self._with_access_log

    @property
    def limits(self) -> Limits:
        """The limits of connections, waiting clients, topics, messages and times."""
        return self._service.limits

    @property
    def store(self) -> str | None:
        """The address of the store of the topics; None: the memory of this process."""
        return self._store

    def be_worker(self, folder: Path, number: int) -> None:
        """Make this application one of several workers; call it before the application starts.

        Metrics and dashboard then cover all workers.

        Args:
            folder: Folder of the sockets that connect the workers; only this user may have access.
            number: Number of this worker, from 1; a replacement has the number of the dead worker.
        """
        self._worker = folder, number

    async def check_store(self) -> None:
        """Open the store of the topics and close it again.

        Raises:
            AiowheelError: The store does not answer, or cannot be used.
        """
        store = topic_store(self._store, self._service.limits)
        try:
            async with Timer() as timer, Purgatory(PURGATORY, timer=timer) as purgatory:
                await store.open(timer, purgatory)
                await store.aclose()
        except Exception as error:  # each store raises its own errors, as for a missing file
            raise AiowheelError(f"cannot use the store: {error}") from error

    def _with_middleware(self) -> ASGIApp:
        guarded = Guarded(self._app, self._service.access)
        return AccessLog(guarded) if self._with_access_log else guarded

    async def stop(self, *, replaced: bool = False) -> None:
        """Answer all waiting requests, and later ones, with 503 and `Retry-After`.

        Call it when the server begins to stop, before it waits for the end of its requests.

        Args:
            replaced: Whether another worker accepts the new connections. If so, waiting requests,
                and new ones over open connections, are answered as at the end of their timeout.
        """
        if self._dashboard is not None:
            self._dashboard.close()
        await self._service.stop(replaced=replaced)

    @contextlib.asynccontextmanager
    async def _lifespan(self, app: Starlette) -> AsyncGenerator[dict[str, object], None]:
        service = self._service
        most = service.limits.waiters if service.limits.waiters < FOREVER else None
        async with (
            Timer() as timer,
            Purgatory(PURGATORY, timer=timer, max_pending=most) as purgatory,
            contextlib.AsyncExitStack() as stack,
        ):
            service.purgatory = purgatory
            await service.store.open(timer, purgatory)
            stack.push_async_callback(service.store.aclose)
            self._metrics = Metrics(service, timer, self._worker)
            stack.callback(self._metrics.close)
            self._has_begun = True
            if self._with_dashboard:
                self._dashboard = Dashboard(
                    timer,
                    [purgatory],
                    folder=None if self._worker is None else self._worker[0] / "dashboard",
                    example=_example(service.access),
                )
                stack.callback(self._dashboard.close)
                app.mount("/dashboard", self._dashboard)
                app.add_route("/dashboard", _to_dashboard)
            stack.enter_context(task_at_signal((SIGINT, SIGTERM), self.stop))
            yield {"timer": timer}

    async def _topic(self, request: Request) -> Response:
        # One route for all methods, so that a 405 lists all of them in `Allow`.
        service = self._service
        publishing = request.method in {"POST", "DELETE"}
        service.access.refuse_without_token(request, publishing=publishing)
        try:
            if request.method == "POST":
                return await service.publish(request)
            if request.method == "DELETE":
                return await service.remove(request)
            if wants_events(request):
                return event_stream(service, request)
            return await service.poll(request)
        except CancelledError:
            # A server that stops cancels the requests that the store has not answered by then.
            if not (service.stopping or service.replaced):
                raise
            raise StoreUnavailableError("no answer before the end of the service") from None

    async def _subscribe(self, socket: WebSocket) -> None:
        await subscribe(self._service, socket)

    async def _read_metrics(self, _request: Request) -> Response:
        totals: Totals | None = None
        with contextlib.suppress(StoreUnavailableError):
            totals = await self._service.store.totals()
        return await self._metrics.answer(totals)

    async def _openapi(self, _request: Request) -> Response:
        return JSONResponse(document(self._service.limits, self._service.access))

    async def _about(self, _request: Request) -> Response:
        about = {
            "service": "aiowheel serve",
            "version": __version__,
            "about": "Named topics to publish to, to poll and to subscribe to.",
            "addresses": ["/topics/NAME", "/live", "/health", "/metrics", "/openapi.json"],
        }
        return JSONResponse(about)


def _checked_access(access: object) -> Access:
    if not isinstance(access, Access):
        raise TypeError(f"access must be an Access or None, got {safe_repr(access)}")
    return access


async def _to_dashboard(_request: Request) -> Response:
    return RedirectResponse("dashboard/")  # relative, because a proxy may add a prefix


async def _answer_disconnected(_request: Request, _exc: Exception) -> Response:
    return Response(status_code=400)  # the client never gets it


def _example(access: Access) -> str:
    """Return a shell command that starts polls of different lengths, for an empty dashboard."""
    token = ' -H "Authorization: Bearer $AIOWHEEL_TOKEN"' if access.subscribe_tokens else ""
    poll = f'curl -s -o /dev/null{token} "{{origin}}/topics/demo?timeout=$s"'
    return f"for s in 1 2 4 8 16 30; do {poll} & done; wait"
