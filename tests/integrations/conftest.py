"""HTTP requests without a network: an ASGI client that sends one message at a time."""

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
    """One running request to *app*.

    The test decides when the body arrives and when the client disconnects.
    """

    def __init__(self, app: ASGIApp, scope: Scope) -> None:
        self.sent: list[Message] = []
        self._inbox: asyncio.Queue[Message] = asyncio.Queue()
        self.task = asyncio.create_task(run(app, scope, self._inbox, self.sent))

    def send_body(self, chunk: bytes, *, more: bool = False) -> None:
        """Send a chunk of the body."""
        self._inbox.put_nowait({"type": "http.request", "body": chunk, "more_body": more})

    def disconnect(self) -> None:
        """Disconnect the client."""
        self._inbox.put_nowait({"type": "http.disconnect"})

    @property
    def status(self) -> int:
        """Status of the response."""
        return int(self.sent[0]["status"])

    @property
    def headers(self) -> dict[str, str]:
        """Headers of the response, with names in lower case."""
        return {name.decode(): value.decode() for name, value in self.sent[0]["headers"]}

    @property
    def body(self) -> bytes:
        """Body of the response."""
        return b"".join(message.get("body", b"") for message in self.sent[1:])

    def json(self) -> Any:
        """Return the body, parsed as JSON."""
        return json.loads(self.body)


async def run(
    app: ASGIApp, scope: Scope, inbox: asyncio.Queue[Message], sent: list[Message]
) -> None:
    """Run the application as a server does.

    The task refers to no exchange, so that an exchange and its task form no cycle.
    """

    async def send(message: Message) -> None:
        sent.append(message)

    await app(scope, inbox.get, send)


Ask = Callable[..., Exchange]


@pytest.fixture
def ask() -> Ask:
    """Return a function that begins a request.

    It is called as `ask(app, "/path?query", headers={...}, state={...})`. A header with line breaks
    has several lines. The body of a GET is empty; for any other method the test sends it.
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
            "headers": [
                (name.encode(), line.encode())
                for name, value in (headers or {}).items()
                for line in value.split("\n")
            ],
            "state": dict(state or {}),
        }
        exchange = Exchange(app, scope)
        if method == "GET":
            exchange.send_body(b"")
        return exchange

    return begin


@asynccontextmanager
async def running(app: Starlette) -> AsyncGenerator[httpx.AsyncClient]:
    """Return a context manager that runs the lifespan of *app* and opens a client."""
    async with app.router.lifespan_context(app) as state:
        transport = httpx.ASGITransport(with_state(app, dict(state or {})))
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
            yield client


def with_state(app: Starlette, state: dict[str, Any]) -> Any:
    """Pass the state that a lifespan yields to the requests, as a server does."""

    async def call(scope: Any, receive: Any, send: Any) -> None:
        await app({**scope, "state": state.copy()}, receive, send)

    return call
