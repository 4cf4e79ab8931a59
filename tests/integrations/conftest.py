"""An HTTP request without a network: what an ASGI server would do, one message at a time."""

import asyncio
import json
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest
from starlette.applications import Starlette
from starlette.types import ASGIApp, Message, Scope


class Exchange:
    """One request to *app*, under way; the client says when its body comes and when it leaves."""

    def __init__(self, app: ASGIApp, scope: Scope) -> None:
        self.sent: list[Message] = []
        self._inbox: asyncio.Queue[Message] = asyncio.Queue()
        self.task = asyncio.create_task(run(app, scope, self._inbox, self.sent))

    def send_body(self, chunk: bytes, *, more: bool = False) -> None:
        """The client sends a piece of its body."""
        self._inbox.put_nowait({"type": "http.request", "body": chunk, "more_body": more})

    def disconnect(self) -> None:
        """The client leaves."""
        self._inbox.put_nowait({"type": "http.disconnect"})

    @property
    def status(self) -> int:
        """Of the response."""
        return int(self.sent[0]["status"])

    @property
    def headers(self) -> dict[str, str]:
        """Of the response, names in lower case."""
        return {name.decode(): value.decode() for name, value in self.sent[0]["headers"]}

    @property
    def body(self) -> bytes:
        """Of the response."""
        return b"".join(message.get("body", b"") for message in self.sent[1:])

    def json(self) -> Any:
        """The body, read as JSON."""
        return json.loads(self.body)


async def run(
    app: ASGIApp, scope: Scope, inbox: asyncio.Queue[Message], sent: list[Message]
) -> None:
    """What the server does; knows no exchange, so that the task of one is in no cycle with it."""

    async def send(message: Message) -> None:
        sent.append(message)

    await app(scope, inbox.get, send)


Ask = Callable[..., Exchange]


@pytest.fixture
def ask() -> Ask:
    """Begin a request: `ask(app, "/path?query", headers={...}, state={...})`.

    The body of a GET is empty; of any other method the test sends it.
    """

    def begin(
        app: ASGIApp,
        target: str = "/",
        *,
        headers: dict[str, str] | None = None,
        state: dict[str, object] | None = None,
        method: str = "GET",
    ) -> Exchange:
        path, _, query = target.partition("?")
        scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": method,
            "path": path,
            "query_string": query.encode(),
            "headers": [(name.encode(), each.encode()) for name, each in (headers or {}).items()],
            "state": dict(state or {}),
        }
        exchange = Exchange(app, scope)
        if method == "GET":
            exchange.send_body(b"")
        return exchange

    return begin


@asynccontextmanager
async def running(app: Starlette) -> AsyncGenerator[httpx.AsyncClient]:
    """A client of *app*, whose lifespan is under way; no server, no socket."""
    async with app.router.lifespan_context(app) as state:
        transport = httpx.ASGITransport(with_state(app, dict(state or {})))
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
            yield client


def with_state(app: Starlette, state: dict[str, Any]) -> Any:
    """What a server does with what a lifespan yields."""

    async def call(scope: Any, receive: Any, send: Any) -> None:
        await app({**scope, "state": state.copy()}, receive, send)

    return call
