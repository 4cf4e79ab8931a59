"""The world of a long-poll service: documents with versions, and clients that leave.

The service uses `aiowheel.integrations.asgi` without sockets: a request is an object, and a client
that disconnects is a message. The oracle compares every client with the versions.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable, MutableMapping
from typing import Any, Literal

from starlette.requests import Request
from starlette.responses import Response

from aiowheel import Purgatory, Timer
from aiowheel.integrations.asgi import long_poll, long_poll_version
from aiowheel.testing.simulation import World, step

_DOCUMENTS: tuple[str, ...] = ("a", "b", "c")
_TIMEOUTS = (0.001, 0.5, 30.0, 600.0, None)
_TICK_NS = 1_000_000
_DRAINS: tuple[Literal["expire", "cancel"], ...] = ("expire", "cancel")


class Client:
    """One request."""

    def __init__(self, number: int, document: str, seen: int, seconds: float | None) -> None:
        self.number = number
        self.document = document
        self.seen = seen
        self.seconds = seconds
        self.gone = asyncio.Event()
        self.began_ns = 0
        self.waits = False

    async def receive(self) -> MutableMapping[str, Any]:
        """Return the message of a disconnect when the client has left."""
        await self.gone.wait()
        return {"type": "http.disconnect"}

    def request(self) -> Request:
        """Return the request."""
        headers = [(b"if-none-match", b'"%d"' % self.seen)]
        scope = {"type": "http", "method": "GET", "path": "/", "query_string": b""}
        return Request({**scope, "headers": headers}, self.receive)


class LongPollWorld(World):
    """A service of three documents, and the clients that wait for their next version."""

    faults = World.faults | {"hangup"}

    async def setup(self) -> None:
        """Open the service."""
        self.timer = await Timer(tick=_TICK_NS / 1e9).__aenter__()
        self.purgatory = Purgatory("polls", timer=self.timer, max_pending=30)
        self.versions = dict.fromkeys(_DOCUMENTS, 1)
        self.clients: dict[Client, None] = {}
        self.number = 0
        self.cancelled = 0

    # --- clients ----------------------------------------------------------------------------

    def client(self) -> Client:
        """Create a client that has seen the current version or another one."""
        self.number += 1
        document = self.random.choice(_DOCUMENTS)
        seen = self.versions[document] + self.random.choice((0, 0, 0, 0, -1, 1))
        return Client(self.number, document, seen, self.random.choice(_TIMEOUTS))

    @step(weight=5)
    def poll_version(self) -> None:
        """Poll for another version than the seen one."""
        client = self.client()
        document = client.document

        async def answer() -> Response:
            return await long_poll_version(
                client.request(),
                self.purgatory,
                document,
                version=lambda: self.versions[document],
                answer=lambda: self.versions[document],
                timeout=client.seconds,
            )

        self.spawn(self.serve(client, answer), f"version {client.number}")

    @step(weight=3)
    def poll_condition(self) -> None:
        """Poll for a newer version than the seen one."""
        client = self.client()
        document = client.document

        def ready() -> int | None:
            version = self.versions[document]
            return version if version != client.seen else None

        async def answer() -> Response:
            return await long_poll(
                client.request(),
                self.purgatory,
                keys=[document],
                ready=ready,
                timeout=client.seconds,
            )

        self.spawn(self.serve(client, answer), f"condition {client.number}")

    async def serve(self, client: Client, answer: Callable[[], Awaitable[Response]]) -> None:
        """Serve one request, and compare the answer with the oracle."""
        client.began_ns = self.now_ns
        client.waits = True
        self.clients[client] = None
        cancelled = self.cancelled
        try:
            response = await answer()
        finally:
            del self.clients[client]
        version = self.versions[client.document]
        self.note(f"{client.number} gets {response.status_code}")
        if response.status_code == 200:
            assert version != client.seen, "an answer without a new version"
            tag = response.headers.get("etag", f'"{version}"')
            assert tag == f'"{version}"', "an answer with an old version"
        elif response.status_code in {204, 304}:
            # A poll for a condition times out even if a new version comes in the same turn.
            is_old = version == client.seen or response.status_code == 204
            assert is_old, "a client did not get a new version"
            self.check_timeout(client)
        elif response.status_code == 499:
            assert client.gone.is_set(), "a connected client was treated as disconnected"
        else:
            assert response.status_code == 503
            refused = self.purgatory.closed or len(self.purgatory) >= 30
            assert refused or self.cancelled > cancelled, "refused without a reason"

    def check_timeout(self, client: Client) -> None:
        """Assert that a poll did not time out early."""
        if not self.purgatory.closed:
            assert client.seconds is not None, "a poll without a timeout timed out"
            early = client.began_ns + client.seconds * 1e9 - self.now_ns
            assert early <= 64, f"a poll timed out {early} ns early"

    # --- the service ------------------------------------------------------------------------

    @step(weight=5)
    def publish(self) -> None:
        """Write a new version, and complete the waiting polls."""
        document = self.random.choice(_DOCUMENTS)
        self.versions[document] += 1
        self.purgatory.advance(document, self.versions[document])
        self.purgatory.check_and_complete(document)

    @step
    def send_away(self) -> None:
        """Cancel the polls of one document."""
        document = self.random.choice(_DOCUMENTS)
        self.cancelled += 1
        self.purgatory.cancel_for_key(document)

    def strike(self, kind: str) -> None:
        """Disconnect a client."""
        assert kind == "hangup"
        if self.clients:
            self.loop.chance.choice(list(self.clients)).gone.set()

    # --- rules ------------------------------------------------------------------------------

    def idle(self) -> None:
        """Assert that no client waits without a reason, and that operations match clients."""
        if not hasattr(self, "cancelled"):
            return
        for client in self.clients:
            assert not client.gone.is_set(), "an operation waits for a client that has left"
            news = self.versions[client.document] - client.seen
            assert news == 0, f"client {client.number} waits although there is a new version"
            if client.seconds is not None:
                due_ns = client.began_ns + client.seconds * 1e9 + _TICK_NS
                assert self.now_ns < due_ns + 64, f"client {client.number} waits too long"
        assert len(self.purgatory) == len(self.clients), "operations and clients differ"

    def state(self) -> Hashable:
        """Return the number of waiting clients of each document."""
        waiting = [client.document for client in self.clients]
        return tuple(min(waiting.count(each), 6) for each in _DOCUMENTS)

    async def finish(self) -> None:
        """Stop the service; every client must then get an answer."""
        await self.purgatory.aclose(drain=self.random.choice(_DRAINS))
        await self.settle()
        assert not self.clients
        assert len(self.timer) == 0
        await self.timer.aclose()
