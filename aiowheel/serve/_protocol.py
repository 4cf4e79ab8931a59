"""The connections of the service, with timeouts for slow clients. Rank 5.

uvicorn has no timeout for reading a request, so that a client can hold a connection open by sending
one byte per minute. Here the whole request, with its body, must arrive within `receive_timeout`
seconds after the connection was made, or after the first byte of the request. Further bytes do not
extend that deadline.

uvicorn has no timeout for writing either: a closed transport keeps the connection and its buffer
until the client has read everything. Here a transport is aborted if its client reads nothing for
`receive_timeout` seconds.

uvicorn takes the absolute form of a target, as in `GET http://host/path`, for a path. Here it
becomes the usual form.

Above the limit of connections, a few further ones are read, and answered if they ask for the state
of the service: a supervisor would restart a service that is full of waiting clients but healthy.
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, cast

import h11
from uvicorn.config import Config
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle
from uvicorn.protocols.utils import ClientDisconnected
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from uvicorn.server import ServerState

from aiowheel._events import emit_info
from aiowheel.serve._refusal import SHUTTING_DOWN, retry_after
from aiowheel.timer import Timer, TimerHandle

if TYPE_CHECKING:
    from uvicorn._types import ASGISendEvent
    from websockets.frames import Frame
    from websockets.http11 import Request


_MOST_UNREAD: Final = 65_536  # bytes
_MOST_EXTRA: Final = 32  # connections above the limit whose request is read
_PROBED: Final = frozenset({b"/live", b"/health", b"/metrics"})
_ABSOLUTE = re.compile(rb"https?://([^/?@]+)(/?.*)", re.IGNORECASE)


class _ConnectionLimitError(h11.RemoteProtocolError):
    """A connection above the limit requests something other than the state of the service."""


class _Connection(h11.Connection):
    """A parser of requests that returns each target in the form of a path.

    Attributes:
        is_extra: Whether the connection is above the limit. It then has at most one request.
    """

    is_extra = False

    def next_event(self) -> h11.Event | type[h11.NEED_DATA | h11.PAUSED]:
        event = super().next_event()
        if not isinstance(event, h11.Request):
            return event
        request = event if event.target.startswith(b"/") else _with_path(event)
        return _sole_probe(request) if self.is_extra else request


def _sole_probe(request: h11.Request) -> h11.Request:
    """Return a request for the state of the service as one that closes the connection.

    Raises:
        _ConnectionLimitError: It is another request.
    """
    if request.target.partition(b"?")[0] not in _PROBED:
        raise _ConnectionLimitError("the limit of connections is reached")
    return h11.Request(
        method=request.method,
        target=request.target,
        headers=[*request.headers, (b"connection", b"close")],
        http_version=request.http_version,
    )


def _with_path(request: h11.Request) -> h11.Request:
    """Return a request for an absolute URL as one for a path of the URL's host.

    Source: RFC 9112, 3.2.2. The host of the URL replaces the header field.
    """
    found = _ABSOLUTE.fullmatch(request.target)
    if found is None:
        return request
    host, rest = found.groups()
    headers = [(name, value) for name, value in request.headers if name != b"host"]
    return h11.Request(
        method=request.method,
        target=rest if rest.startswith(b"/") else b"/" + rest,
        headers=[(b"host", host), *headers],
        http_version=request.http_version,
    )


class TopicProtocol(H11Protocol):
    """An HTTP connection of uvicorn with timeouts; it takes the timer from the lifespan's state.

    Attributes:
        receive_timeout: Seconds within which a request must arrive; also the seconds after which
            the connection is aborted if its client has read nothing of a response.
        most_connections: Maximum number of open connections; further ones are refused, except for
            the probes of a supervisor.
        logs_refusals: Whether requests that are refused here are in the access log.
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
        most = config.h11_max_incomplete_event_size
        self._parser = _Connection(h11.SERVER) if most is None else _Connection(h11.SERVER, most)
        self.conn = self._parser
        self._timer: Timer = app_state["timer"]
        self._deadline: TimerHandle | None = None
        self._write_check: TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.client = _client_of(self.client, self.server)
        extra = len(self.connections) - self.most_connections
        if extra > _MOST_EXTRA:
            self._refuse_above_limit()
        else:
            self._parser.is_extra = extra > 0
            self._arm()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self._is_receiving():
            self._arm()
        else:
            self._disarm()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        cycle = self._request()
        # The next request of a pipeline may have begun. Without one, the keep-alive timeout runs.
        if self._is_receiving() and cycle is not None and not cycle.response_complete:
            self._arm()

    def connection_lost(self, exc: Exception | None) -> None:
        self._disarm()
        self._cancel_write_check()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._check_write_progress(sys.maxsize)

    def resume_writing(self) -> None:
        super().resume_writing()
        if not self.transport.is_closing():
            self._cancel_write_check()

    def handle_websocket_upgrade(self, event: h11.Request) -> None:
        if _has_body(event):  # for which websockets would wait without a timeout
            self._refuse(400, "bad_request", "the handshake of a websocket must have no body")
            self._close()
            return
        self._cancel_write_check()  # the websocket has its own limit, and learns of the resume
        super().handle_websocket_upgrade(event)
        socket = self.transport.get_protocol()
        flaw = socket.flaw_of_handshake() if isinstance(socket, TopicSocket) else None
        if flaw is not None:
            self._refuse(400, "bad_request", f"the handshake of a websocket is refused: {flaw}")
            self._close()

    def timeout_keep_alive_handler(self) -> None:
        super().timeout_keep_alive_handler()
        self._check_write_progress(sys.maxsize)

    def _check_write_progress(self, before: int) -> None:
        """Abort if the write buffer has not shrunk below *before* bytes; else check again later."""
        self._cancel_write_check()
        unsent = self.transport.get_write_buffer_size()
        if unsent >= before:
            self.transport.abort()
        else:
            self._write_check = self._timer.call_later(
                self.receive_timeout, self._check_write_progress, unsent
            )

    def _cancel_write_check(self) -> None:
        if self._write_check is not None:
            self._write_check.cancel()
            self._write_check = None

    def _request(self) -> RequestResponseCycle | None:
        return cast("RequestResponseCycle | None", self.cycle)  # uvicorn's types omit None

    def _is_receiving(self) -> bool:
        """Return whether the connection waits for a request, or for the rest of one."""
        if self.transport.get_protocol() is not self:  # it has become a websocket
            return False
        cycle = self._request()
        return cycle is None or cycle.response_complete or cycle.more_body

    def _arm(self) -> None:
        if self._deadline is None:
            self._deadline = self._timer.call_later(self.receive_timeout, self._end_slow_request)

    def _disarm(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _end_slow_request(self) -> None:
        self._deadline = None
        cycle = self._request()
        if not self._is_receiving() or self.transport.is_closing():
            return
        if cycle is None or cycle.response_complete or not cycle.response_started:
            detail = f"the request did not arrive within {self.receive_timeout:g} s"
            self._refuse(408, "too_slow", detail)
        self._close()

    def refuse_partial_request(self) -> None:
        """Refuse a request whose body has not arrived, because the service is shutting down."""
        cycle = self._request()
        if cycle is not None and cycle.more_body and not cycle.response_started:
            self._refuse(503, "shutting_down", SHUTTING_DOWN, retry_after())
            self._close()

    def send_400_response(self, msg: str) -> None:
        """Refuse what the parser refuses; uvicorn calls this while it handles the error."""
        error = sys.exception()
        if isinstance(error, _ConnectionLimitError):
            self._refuse_above_limit()
            return
        status = error.error_status_hint if isinstance(error, h11.RemoteProtocolError) else 400
        self._refuse(status, "bad_request", f"{msg} {error or ''}".strip())
        self._close()

    def _refuse_above_limit(self) -> None:
        detail = f"the limit of {self.most_connections} connections is reached"
        self._refuse(503, "too_many_connections", detail, retry_after())
        self._close()

    def _close(self) -> None:
        self.transport.close()
        self._check_write_progress(sys.maxsize)

    def _refuse(
        self, status: int, error: str, detail: str, more: Mapping[str, str] | None = None
    ) -> None:
        # Written without h11, which may be in any state; the connection is closed afterwards.
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
    """A websocket connection, which is aborted if its client does not answer a ping.

    It is also aborted if it has been closed, and its client does not read the rest within the time
    for an answer to a ping, and if its client sends pings without reading the answers: uvicorn
    would keep all of them.
    """

    _unread = 0  # bytes of answers since the client has stopped reading

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self.client = _client_of(self.client, self.server)

    def data_received(self, data: bytes) -> None:
        before = self.transport.get_write_buffer_size()
        super().data_received(data)
        if not self.writable.is_set():
            self._unread += self.transport.get_write_buffer_size() - before
            if self._unread > _MOST_UNREAD:
                self.transport.abort()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._unread = 0

    def flaw_of_handshake(self) -> str | None:
        """Return why no handshake was read, for which uvicorn sends no answer; else None.

        websockets takes fewer and shorter header fields than h11.
        """
        flaw = self.conn.handshake_exc
        if flaw is None or self.handshake_initiated:
            return None
        self._drop_handshake()
        return f"{flaw} {flaw.__cause__ or ''}".strip()

    def send_receive_event_to_app(self) -> None:
        """Refuse text that is not UTF-8, as uvicorn does but without a traceback in the log."""
        if self.close_sent or self.curr_msg_data_type != "text" or _is_utf8(self.frames):
            super().send_receive_event_to_app()
            return
        self.frames = []
        self.conn.fail(1007)
        self.handle_parser_exception()

    def handle_parser_exception(self) -> None:
        """Close the connection, also if its handshake is not answered: uvicorn would raise."""
        if self.conn.close_sent is not None:
            super().handle_parser_exception()
            return
        self.queue.put_nowait({"type": "websocket.disconnect", "code": 1006})
        self._drop_handshake()
        self.transport.close()

    def handle_close(self, event: Frame) -> None:
        super().handle_close(event)
        if not self.handshake_complete:
            self._drop_handshake()

    def _drop_handshake(self) -> None:
        """Send no answer to a handshake whose client has closed the connection already."""
        self.close_sent = True
        self.handshake_complete = True  # without it, uvicorn logs the end as an error

    async def send(self, message: ASGISendEvent) -> None:
        if self.close_sent:
            # The connection was closed in this loop iteration, and the application receives the
            # disconnect in the next one. uvicorn would report the send as the application's error.
            raise ClientDisconnected
        await super().send(message)
        if message["type"] == "websocket.http.response.body":
            self.handshake_complete = True  # without it, uvicorn logs a refusal as an error

    def handle_connect(self, event: Request) -> None:
        super().handle_connect(event)
        if self.transport.is_closing():  # the handshake is malformed
            self._limit_closing()

    def on_task_complete(self, task: asyncio.Task[None]) -> None:
        super().on_task_complete(task)
        if not self.disconnected:
            self._limit_closing()

    def _limit_closing(self) -> None:
        assert self.ping_timeout is not None
        self.stop_keepalive()
        self.pong_timer = self.loop.call_later(self.ping_timeout, self.keepalive_timeout)

    def keepalive_timeout(self) -> None:
        super().keepalive_timeout()
        self.transport.abort()  # see the module docstring


def _has_body(request: h11.Request) -> bool:
    fields = dict(request.headers)  # with names in lower case; a second length is an error of h11
    return b"transfer-encoding" in fields or int(fields.get(b"content-length", b"0")) > 0


def _is_utf8(frames: list[bytes]) -> bool:
    try:
        b"".join(frames).decode()
    except UnicodeDecodeError:
        return False
    return True


def _client_of(
    client: tuple[str, int] | None, server: tuple[str, int | None] | None
) -> tuple[str, int] | None:
    """Return the address of a client as uvicorn's list of trusted proxies has it.

    A client of a Unix socket, which has no address, gets that of this machine. An IPv4 client of an
    IPv6 socket has an IPv6 address in which its own is mapped.
    """
    if client is None:
        is_unix = server is not None and server[1] is None
        return ("127.0.0.1", 0) if is_unix else None
    host, port = client
    return host.removeprefix("::ffff:") if "." in host else host, port
