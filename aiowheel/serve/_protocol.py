"""One connection, with a deadline for a client that is slow, in either direction. Rank 5.

uvicorn waits for ever for the end of a request; a client that sends a byte a minute would hold a
connection each. Here a request must have arrived, body included, some seconds after the connection
was made or its first byte came. The deadline is armed once, not at each byte.

It also waits for ever for a client that takes nothing of what it is sent: a transport that is
closed keeps its connection, and its buffer, until that has left. Here it is aborted.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

import h11
from uvicorn.config import Config
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle
from uvicorn.protocols.utils import ClientDisconnected
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from uvicorn.server import ServerState

from aiowheel._events import emit_info
from aiowheel.serve._crowd import retry_after
from aiowheel.timer import Timer, TimerHandle

if TYPE_CHECKING:
    from uvicorn._types import ASGISendEvent


class TopicProtocol(H11Protocol):
    """Takes the timer from the lifespan's state, and the seconds as `receive_timeout`.

    As long may pass without any progress of an answer that its client is slow to take. A connection
    beyond `most_connections` is refused. What is refused here is in the
    access log as well, if `logs_refusals`.
    """

    receive_timeout: float = 10.0
    most_connections: int = sys.maxsize
    logs_refusals: bool = False

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self._timer: Timer = app_state["timer"]
        self._deadline: TimerHandle | None = None
        self._look: TimerHandle | None = None  # at an answer that is slow to leave

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.client = self.client or _here(self.server)
        if len(self.connections) > self.most_connections:
            detail = f"{self.most_connections} connections are open, that is all there may be"
            self._refuse(503, "too_many_connections", detail, retry_after())
            self._close()
        else:
            self._arm()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self._is_receiving():
            self._arm()
        else:
            self._disarm()

    def connection_lost(self, exc: Exception | None) -> None:
        self._disarm()
        self._look_no_more()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._look_at_it_leave(sys.maxsize)

    def resume_writing(self) -> None:
        super().resume_writing()
        if not self.transport.is_closing():
            self._look_no_more()

    def timeout_keep_alive_handler(self) -> None:
        super().timeout_keep_alive_handler()
        self._look_at_it_leave(sys.maxsize)

    def _look_at_it_leave(self, before: int) -> None:
        self._look_no_more()
        left = self.transport.get_write_buffer_size()
        if left >= before:
            self.transport.abort()
        else:
            self._look = self._timer.call_later(self.receive_timeout, self._look_at_it_leave, left)

    def _look_no_more(self) -> None:
        if self._look is not None:
            self._look.cancel()
            self._look = None

    def _request(self) -> RequestResponseCycle | None:
        return cast("RequestResponseCycle | None", self.cycle)  # uvicorn's types leave None out

    def _is_receiving(self) -> bool:
        """Whether a request has begun and not arrived."""
        if self.transport.get_protocol() is not self:  # it is a websocket now
            return False
        cycle = self._request()
        return cycle is None or cycle.response_complete or cycle.more_body

    def _arm(self) -> None:
        if self._deadline is None:
            self._deadline = self._timer.call_later(self.receive_timeout, self._give_up)

    def _disarm(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _give_up(self) -> None:
        self._deadline = None
        cycle = self._request()
        if not self._is_receiving() or self.transport.is_closing():
            return
        if cycle is None or cycle.response_complete or not cycle.response_started:
            detail = f"a request must have arrived within {self.receive_timeout:g} s"
            self._refuse(408, "too_slow", detail)
        self._close()

    def send_400_response(self, msg: str) -> None:
        """Refuse what is no HTTP; called while the parser's error is handled."""
        error = sys.exception()
        status = error.error_status_hint if isinstance(error, h11.RemoteProtocolError) else 400
        self._refuse(status, "bad_request", f"{msg} {error or ''}".strip())
        self._close()

    def _close(self) -> None:
        self.transport.close()
        self._look_at_it_leave(sys.maxsize)

    def _refuse(
        self, status: int, error: str, detail: str, more: Mapping[str, str] | None = None
    ) -> None:
        # Past the parser: it may be in any state, and the connection is closed behind this.
        body = json.dumps({"error": error, "detail": detail[:200]})
        headers = {
            "Content-Type": "application/json",
            "Content-Length": str(len(body)),
            "Connection": "close",
            **(more or {}),
        }
        head = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        self.transport.write(f"HTTP/1.1 {status} \r\n{head}\r\n{body}".encode())
        if self.logs_refusals:
            client = self.client[0] if self.client else None
            emit_info("aiowheel.connection_refused", client=client, status=status, error=error)


class TopicSocket(WebSocketsSansIOProtocol):
    """A subscriber's connection, which is gone when a ping was not answered."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self.client = self.client or _here(self.server)

    def send_receive_event_to_app(self) -> None:
        """Refuse text that is no UTF-8 as uvicorn does, without a traceback in the log for each."""
        if self.close_sent or self.curr_msg_data_type != "text" or _is_utf8(self.frames):
            super().send_receive_event_to_app()
            return
        self.frames = []
        self.conn.send_close(1007)
        self.handle_parser_exception()

    async def send(self, message: ASGISendEvent) -> None:
        if self.close_sent and message["type"] == "websocket.send":
            # The connection was given up in this turn of the loop; the application learns of it in
            # the next one. To uvicorn that is an error of the application.
            raise ClientDisconnected
        await super().send(message)
        if message["type"] == "websocket.http.response.body":
            self.handshake_complete = True  # else it logs that a refusal was no handshake

    def keepalive_timeout(self) -> None:
        super().keepalive_timeout()
        self.transport.abort()  # see the head of this file


def _is_utf8(frames: list[bytes]) -> bool:
    try:
        b"".join(frames).decode()
    except UnicodeDecodeError:
        return False
    return True


def _here(server: tuple[str, int | None] | None) -> tuple[str, int] | None:
    """The address of the client of a Unix socket, which has none: it is on this machine."""
    is_unix = server is not None and server[1] is None
    return ("127.0.0.1", 0) if is_unix else None
