"""The web server: uvicorn on uvloop, and how it stops. Rank 5."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import os
import signal
import socket
import sys
from collections.abc import Callable, Generator
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
from aiowheel.serve._workers import Workers

_BACKLOG = 4_096
_GRACE = 4  # seconds for the answers to leave when the service stops


def _keep_quiet(_line: str) -> None:
    """Show nothing."""


class TopicServer(uvicorn.Server):
    """A uvicorn server that answers the waiting clients before it shuts down.

    SIGHUP calls *reload*, between two turns of the loop.

    Args:
        config: Of uvicorn.
        app: What it serves.
        ready: Called once clients can connect.
        reload: See `serve`; None: SIGHUP is left alone.
        lifeline: In a worker, what has something to read when it is to stop; -1: there is none.
            SIGINT is then left to the parent.
    """

    def __init__(
        self,
        config: uvicorn.Config,
        app: TopicApp,
        ready: Callable[[], None],
        reload: Callable[[], object] | None,
        lifeline: int = -1,
    ) -> None:
        super().__init__(config)
        self._topic_app = app
        self._ready = ready
        self._reload = reload
        self._lifeline = lifeline
        self._must_reload = False
        self._has_signal = False

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self._lifeline >= 0:
            asyncio.get_running_loop().add_reader(self._lifeline, self._end)
        self._ready()

    def _end(self) -> None:
        asyncio.get_running_loop().remove_reader(self._lifeline)
        self.should_exit = True

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

        def stop(_number: int, _frame: FrameType | None) -> None:
            self.force_exit = self._has_signal
            self._has_signal = self.should_exit = True

        def hang_up(_number: int, _frame: FrameType | None) -> None:
            self._must_reload = True

        with contextlib.ExitStack() as stack:
            stack.enter_context(handled_by(stop, signal.SIGTERM))
            if self._lifeline < 0:
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
        reload: Called at SIGHUP, which then does not end the process, in every worker as well; it
            raises `AiowheelError` where nothing was renewed.
        workers: Processes that serve. More than one need an *app* with a store, and a system with
            `fork`; call this in the main thread of a process without other threads. The limits
            hold in each.
        notice: Called with a line for the operator: what SIGHUP did, and which worker has died.

    Raises:
        AiowheelError: The address cannot be listened on, or the store cannot be used.
        BadInputError: There are several workers, and no store or no `fork`.
    """
    if workers > 1 and app.store is None:
        raise BadInputError(f"several workers need a store, got {workers} workers and no store")
    if workers > 1 and not hasattr(os, "fork"):
        raise BadInputError(f"workers must be 1 on this system, got {workers}")
    silence = max(limits.heartbeat, limits.receive_timeout)
    config = _config(app, limits, certificate)
    with listeners(host, port, unix, silence) as sockets:

        def listening() -> None:
            for each in sockets:
                ready(address_of(each, tls=certificate is not None))

        def work(folder: Path, serves: Callable[[], None], lifeline: int, number: int) -> None:
            app.be_worker(folder, number)
            again = None if reload is None else partial(_renewed, reload, notice, quiet=True)
            _serve_on(sockets, TopicServer(config, app, serves, again, lifeline), app)

        again = None if reload is None else partial(_renewed, reload, notice)
        if workers == 1:
            _serve_on(sockets, TopicServer(config, app, listening, again), app)
            return
        with TemporaryDirectory(prefix="aiowheel-") as folder:
            worker = partial(work, Path(folder))
            Workers(workers, worker, sockets, listening, again or bool, notice).run()


def _renewed(
    reload: Callable[[], None], notice: Callable[[str], None], *, quiet: bool = False
) -> bool:
    """Reload, and return whether that succeeded; with *quiet* only a failure is noticed."""
    try:
        reload()
    except AiowheelError as error:
        notice(f"not reloaded: {error}")
        return False
    if not quiet:
        notice("reloaded")
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
