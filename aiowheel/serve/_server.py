"""The web server: uvicorn on uvloop, and how it stops. Rank 5."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import signal
import socket
import sys
from collections.abc import Callable, Generator
from ssl import SSLContext
from types import FrameType

import uvicorn

from aiowheel._signals import handled_by
from aiowheel.serve._app import TopicApp
from aiowheel.serve._certificate import Certificate
from aiowheel.serve._limits import Limits
from aiowheel.serve._listen import address_of, listeners
from aiowheel.serve._protocol import TopicProtocol, TopicSocket

_BACKLOG = 4_096
_GRACE = 4  # seconds for the answers to leave when the service stops


class TopicServer(uvicorn.Server):
    """uvicorn, but it answers who waits before it waits for them, and a signal ends it well.

    SIGHUP calls *reload*, between two turns of the loop.
    """

    def __init__(
        self,
        config: uvicorn.Config,
        app: TopicApp,
        ready: Callable[[], None],
        reload: Callable[[], None] | None,
    ) -> None:
        super().__init__(config)
        self._topic_app = app
        self._ready = ready
        self._reload = reload
        self._must_reload = False

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._ready()

    async def on_tick(self, counter: int) -> bool:
        if self._must_reload and self._reload is not None:
            self._must_reload = False
            self._reload()
        return await super().on_tick(counter)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        await self._topic_app.stop()
        await super().shutdown(sockets)

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        """Stop at a signal, at once at a second one; uvicorn would also raise it afterwards."""

        def stop(_number: int, frame: FrameType | None) -> None:
            self.handle_exit(signal.SIGINT, frame)

        def hang_up(_number: int, _frame: FrameType | None) -> None:
            self._must_reload = True

        with contextlib.ExitStack() as stack:
            stack.enter_context(handled_by(stop, signal.SIGINT, signal.SIGTERM))
            if self._reload is not None and sys.platform != "win32":
                stack.enter_context(handled_by(hang_up, signal.SIGHUP))
            yield


def serve(
    app: TopicApp,
    limits: Limits,
    host: str,
    port: int,
    ready: Callable[[str], None],
    *,
    unix: str | None = None,
    certificate: Certificate | None = None,
    reload: Callable[[], None] | None = None,
) -> None:
    """Serve until SIGTERM or SIGINT.

    Sockets that a supervisor hands over (`LISTEN_FDS`) are used in place of *host* and *port*, or
    *unix*.

    Args:
        app: What to serve.
        limits: Its limits, for what the server itself keeps.
        host: Address or name to listen on.
        port: 0 for one that is free.
        ready: Called with each address, once clients can connect.
        unix: Path of a Unix socket to listen on, in place of *host* and *port*. Who may connect is
            what the file's permissions say.
        certificate: For TLS.
        reload: Called at SIGHUP, which then does not end the process.

    Raises:
        AiowheelError: The address cannot be listened on.
    """
    silence = max(limits.heartbeat, limits.receive_timeout)
    with listeners(host, port, unix, silence) as sockets:

        def listening() -> None:
            for each in sockets:
                ready(address_of(each, tls=certificate is not None))

        server = TopicServer(_config(app, limits, certificate), app, listening, reload)
        with asyncio.Runner(loop_factory=_loop_factory()) as runner:
            runner.run(server.serve(sockets=sockets))


def _config(app: TopicApp, limits: Limits, certificate: Certificate | None) -> uvicorn.Config:
    def context(_config: uvicorn.Config, _default: Callable[[], SSLContext]) -> SSLContext:
        assert certificate is not None
        return certificate.context

    class Protocol(TopicProtocol):
        receive_timeout = limits.receive_timeout
        most_connections = limits.connections
        logs_refusals = app.access_log

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
        ssl_context_factory=None if certificate is None else context,
    )


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop]:
    if importlib.util.find_spec("uvloop") is None:
        return asyncio.new_event_loop
    import uvloop

    return uvloop.new_event_loop
