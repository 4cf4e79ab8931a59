"""A subscription to a topic over a websocket: messages, and heartbeats between them. Rank 5."""

from __future__ import annotations

from contextlib import aclosing

from starlette.websockets import WebSocket, WebSocketDisconnect

from aiowheel.errors import StoreUnavailableError
from aiowheel.integrations._hangup import send_until_disconnect
from aiowheel.serve._feed import feed
from aiowheel.serve._parameters import Seen, checked_query, seen, topic_name
from aiowheel.serve._refusal import Refusal
from aiowheel.serve._service import Service

HEARTBEAT = '{"heartbeat":true}'


async def subscribe(service: Service, socket: WebSocket) -> None:
    """Serve one subscriber until it disconnects or the service stops.

    A refused request gets an HTTP response in place of the websocket handshake.
    """
    try:
        query = checked_query(socket, "since", "epoch")
        name = topic_name(socket, service.limits)
        has = seen(query)
        service.access.refuse_without_token(socket, publishing=False)
        service.refuse_when_stopping()
        with service.waiters.admit(socket):
            await socket.accept()
            sending = _send(service, socket, name, has)
            await send_until_disconnect(sending, socket.receive, WebSocketDisconnect)
    except Refusal as refusal:
        await socket.send_denial_response(refusal.answer())


async def _send(service: Service, socket: WebSocket, name: str, has: Seen) -> None:
    try:
        async with aclosing(feed(service, name, has)) as pages:
            async for page in pages:
                await socket.send_text(HEARTBEAT if page is None else page.text.decode())
    except StoreUnavailableError:
        await socket.close(1013, "the store of the topics is unavailable")
    else:
        await socket.close(1012, "the service is shutting down")
