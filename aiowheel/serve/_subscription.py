"""A topic over a websocket: every message as it comes, heartbeats when none does. Rank 5."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from starlette.websockets import WebSocket, WebSocketDisconnect

from aiowheel.errors import PurgatoryClosedError
from aiowheel.serve._parameters import Seen, checked_query, seen, topic_name
from aiowheel.serve._refusal import Refusal
from aiowheel.serve._service import Service
from aiowheel.serve._wait import left

HEARTBEAT = '{"heartbeat":true}'


async def subscribe(service: Service, socket: WebSocket) -> None:
    """Serve one subscriber until it leaves, or the service stops.

    A request that is refused is answered before the handshake is over, as any other would be.
    """
    try:
        query = checked_query(socket, "since", "epoch")
        name = topic_name(socket, service.limits)
        has = seen(query)
        service.refuse_when_stopping()
        with service.crowd.seat(socket):
            await socket.accept()
            await _serve(service, socket, name, has)
    except Refusal as refusal:
        await socket.send_denial_response(refusal.answer())


async def _serve(service: Service, socket: WebSocket, name: str, has: Seen) -> None:
    feed = asyncio.create_task(_feed(service, socket, name, has))
    leaving = asyncio.create_task(left(socket.receive))
    try:
        await asyncio.wait({feed, leaving}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        leaving.cancel()
        feed.cancel()
        with suppress(asyncio.CancelledError, PurgatoryClosedError, WebSocketDisconnect):
            await feed


async def _feed(service: Service, socket: WebSocket, name: str, has: Seen) -> None:
    while not service.stopping:
        if service.has_answer(name, has):
            news = service.answer(name, has).decode()
            topic = service.topics.get(name)  # now: sending lasts, and more may come meanwhile
            has = Seen(0, None) if topic is None else Seen(topic.version, topic.epoch)
            await socket.send_text(news)
            continue
        wanted = {name: has.version + 1}
        has_come = await service.purgatory.wait_until(wanted, service.limits.heartbeat)
        if not has_come and not service.stopping:
            await socket.send_text(HEARTBEAT)
    await socket.close(1012, "the service is shutting down")
