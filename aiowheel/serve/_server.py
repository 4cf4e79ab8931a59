"""The web server: uvicorn on uvloop, and how it stops. Rank 5."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import signal
import socket
from collections.abc import Callable, Generator
from types import FrameType

import uvicorn

from aiowheel._signals import handled_by
from aiowheel.errors import AiowheelError
from aiowheel.serve._app import TopicApp
from aiowheel.serve._limits import Limits
from aiowheel.serve._protocol import TopicProtocol, TopicSocket

_BACKLOG = 4_096
_GRACE = 4  # seconds for the answers to leave when the service stops


class TopicServer(uvicorn.Server):
    """uvicorn, but it answers who waits before it waits for them, and a signal ends it well."""

    def __init__(self, config: uvicorn.Config, app: TopicApp, ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._topic_app = app
        self._ready = ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._ready()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        await self._topic_app.stop()
        await super().shutdown(sockets)

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        """Stop at a signal, at once at a second one; uvicorn would also raise it afterwards."""

        def stop(_number: int, frame: FrameType | None) -> None:
            self.handle_exit(signal.SIGINT, frame)

        with handled_by(stop, signal.SIGINT, signal.SIGTERM):
            yield


def serve(
    app: TopicApp, limits: Limits, host: str, port: int, ready: Callable[[str], None]
) -> None:
    """Serve until SIGTERM or SIGINT.

    Args:
        app: What to serve.
        limits: Its limits, for what the server itself keeps.
        host: Address or name to listen on.
        port: 0 for one that is free.
        ready: Called with the address, once clients can connect.

    Raises:
        AiowheelError: The address cannot be listened on.
    """
    listener = _listen(host, port)
    server = TopicServer(_config(app, limits), app, lambda: ready(_address(listener)))
    with listener, asyncio.Runner(loop_factory=_loop_factory()) as runner:
        runner.run(server.serve(sockets=[listener]))


def _config(app: TopicApp, limits: Limits) -> uvicorn.Config:
    class Protocol(TopicProtocol):
        receive_timeout = limits.receive_timeout

    return uvicorn.Config(
        app,
        http=Protocol,
        ws=TopicSocket,
        ws_max_size=4_096,  # subscribers have nothing to say
        ws_ping_interval=limits.heartbeat,
        ws_ping_timeout=limits.heartbeat,
        lifespan="on",
        log_config=None,
        log_level="error",
        access_log=False,
        server_header=False,
        backlog=_BACKLOG,
        timeout_graceful_shutdown=_GRACE,
    )


def _listen(host: str, port: int) -> socket.socket:
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listener = socket.socket(family, kind, protocol)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(address)
            listener.setblocking(False)
        except BaseException:
            listener.close()
            raise
    except (OSError, UnicodeError) as error:  # the latter: no name of a host can be made of it
        reason = getattr(error, "strerror", None) or error
        raise AiowheelError(f"cannot listen on {host} port {port}: {reason}") from error
    return listener


def _address(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop]:
    if importlib.util.find_spec("uvloop") is None:
        return asyncio.new_event_loop
    import uvloop

    return uvloop.new_event_loop
