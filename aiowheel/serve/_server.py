"""The web server: uvicorn on uvloop, and how it stops. Rank 5."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import os
import signal
import socket
import sys
from collections.abc import Callable, Generator, Sequence
from functools import partial
from pathlib import Path
from ssl import SSLContext
from tempfile import TemporaryDirectory
from types import FrameType

import uvicorn

from aiowheel._signals import handled_by
from aiowheel.errors import AiowheelError, BadInputError
from aiowheel.serve._app import TopicApp
from aiowheel.serve._certificate import Certificate
from aiowheel.serve._limits import Limits
from aiowheel.serve._listen import address_of, listeners
from aiowheel.serve._protocol import TopicProtocol, TopicSocket
from aiowheel.serve._workers import REPLACED, Workers, post_of_this_process, work_at

_BACKLOG = 4_096
_GRACE = 4  # seconds for the answers to leave when the service stops
_LONG_GRACE = 60  # the same for a worker that is replaced, which nothing waits for
_LAST_REQUESTS = 1.0  # seconds for the first request of a connection that was just made


def _keep_quiet(_line: str) -> None:
    """Show nothing."""


class TopicServer(uvicorn.Server):
    """A uvicorn server that answers the waiting clients before it shuts down.

    SIGHUP calls *reload*, between two turns of the loop.

    A worker that is replaced loses no request: it takes no more connections, answers the waiting
    requests as if the time were over, and closes connections without a request a second later.

    Args:
        config: Of uvicorn.
        app: What it serves.
        ready: Called once clients can connect.
        reload: See `serve`; None: SIGHUP is left alone.
        line: In a worker, what has something to read when it is to end; signals but SIGTERM are
            then left to the parent.
    """

    def __init__(
        self,
        config: uvicorn.Config,
        app: TopicApp,
        ready: Callable[[], None],
        reload: Callable[[], object] | None,
        line: socket.socket | None = None,
    ) -> None:
        super().__init__(config)
        self._topic_app = app
        self._ready = ready
        self._reload = reload
        self._line = line
        self._is_replaced = False
        self._must_reload = False
        self._has_signal = False

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.should_exit:  # the application could not start
            return
        if self._line is not None:
            asyncio.get_running_loop().add_reader(self._line, self._end, self._line)
        self._ready()

    def _end(self, line: socket.socket) -> None:
        asyncio.get_running_loop().remove_reader(line)
        self._is_replaced = line.recv(1) == REPLACED
        self.should_exit = True

    async def on_tick(self, counter: int) -> bool:
        if self._must_reload and self._reload is not None:
            self._must_reload = False
            self._reload()
        return await super().on_tick(counter)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        if self._is_replaced:
            for server in self.servers:
                server.close()
            await self._topic_app.stop(replaced=True)
            await asyncio.sleep(_LAST_REQUESTS)
            self.config.timeout_graceful_shutdown = _LONG_GRACE
        else:
            await self._topic_app.stop()
        await super().shutdown(sockets)

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        """Stop at a signal, at once at a second one; uvicorn would also raise it afterwards."""

        def stop(_number: int, _frame: FrameType | None) -> None:
            self.force_exit = self._has_signal
            self._has_signal = self.should_exit = True

        def hang_up(_number: int, _frame: FrameType | None) -> None:
            self._must_reload = True

        with contextlib.ExitStack() as stack:
            stack.enter_context(handled_by(stop, signal.SIGTERM))
            if self._line is None:
                stack.enter_context(handled_by(stop, signal.SIGINT))
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
    workers: int = 1,
    command: Sequence[str] = (),
    notice: Callable[[str], None] = _keep_quiet,
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
        reload: Called at SIGHUP, which then does not end the process; it raises `AiowheelError`
            where the new settings cannot be used. Several workers are then replaced by new ones.
        workers: Processes that serve. More than one need an *app* with a store, and a POSIX system;
            call this in the main thread. The limits hold in each.
        command: Starts a process that calls this with the same arguments; it serves then as one of
            the workers.
        notice: Called with a line for the operator: what SIGHUP did, and which worker has died.

    Raises:
        AiowheelError: The address cannot be listened on, or the store cannot be used.
        BadInputError: There are several workers, and no store or no POSIX system.
    """
    if workers > 1 and app.store is None:
        raise BadInputError(f"several workers need a store, got {workers} workers and no store")
    if workers > 1 and os.name != "posix":
        raise BadInputError(f"workers must be 1 on this system, got {workers}")
    if workers > 1 and not command:
        raise BadInputError(f"several workers need a command, got {workers} workers and none")
    silence = max(limits.heartbeat, limits.receive_timeout)
    config = _config(app, limits, certificate)
    post = post_of_this_process()
    if post is not None:

        def work(
            sockets: list[socket.socket], line: socket.socket, serves: Callable[[], None]
        ) -> None:
            app.be_worker(Path(post.folder), post.number)
            _serve_on(sockets, TopicServer(config, app, serves, None, line), app)

        work_at(post, work)
        return
    with listeners(host, port, unix, silence) as sockets:

        def listening() -> None:
            for each in sockets:
                ready(address_of(each, tls=certificate is not None))

        if workers > 1:
            renew = partial(_renewed, reload or _keep_settings, notice)
            with TemporaryDirectory(prefix="aiowheel-") as folder:
                Workers(workers, command, sockets, Path(folder), listening, renew, notice).run()
            return

        def renewed(settings: Callable[[], None]) -> None:
            if _renewed(settings, notice):
                notice("reloaded")

        again = None if reload is None else partial(renewed, reload)
        _serve_on(sockets, TopicServer(config, app, listening, again), app)


def _keep_settings() -> None:
    """Renew nothing."""


def _renewed(reload: Callable[[], None], notice: Callable[[str], None]) -> bool:
    """Reload, and return whether that succeeded."""
    try:
        reload()
    except AiowheelError as error:
        notice(f"not reloaded: {error}")
        return False
    return True


def _serve_on(sockets: list[socket.socket], server: TopicServer, app: TopicApp) -> None:
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        runner.run(app.check_store())  # uvicorn would log an error of the lifespan
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
