"""The access log: one log event per request. Rank 5."""

from __future__ import annotations

import asyncio

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from aiowheel._events import emit_info

_MOST_PATH = 200  # characters


class AccessLog:
    """ASGI middleware that logs `aiowheel.request` at the end of each request.

    The log leaves out the query, because it may hold private data of the client.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in {"http", "websocket"}:
            await self._app(scope, receive, send)
            return
        status: int | None = None  # stays None if the client disconnects before a response

        async def note_status(message: Message) -> None:
            nonlocal status
            if message["type"].endswith("http.response.start"):
                status = message["status"]
            elif message["type"] == "websocket.accept":
                status = 101
            elif message["type"] == "websocket.close" and status is None:
                status = 403  # the server's answer to a handshake that is not accepted
            await send(message)

        loop = asyncio.get_running_loop()
        begun = loop.time()
        try:
            await self._app(scope, receive, note_status)
        finally:
            client = scope.get("client")
            emit_info(
                "aiowheel.request",
                client=client[0] if client else None,
                method=scope.get("method", "WEBSOCKET"),
                path=scope["path"][:_MOST_PATH],
                status=status,
                seconds=round(loop.time() - begun, 6),
            )
