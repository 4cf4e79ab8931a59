"""The web server of the service: uvicorn, on uvloop if it is installed. Rank 5."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import logging
import os
import signal
import socket
import sys
from collections.abc import Callable, Generator, Sequence
from functools import partial
from pathlib import Path
from ssl import SSLContext
from tempfile import TemporaryDirectory, gettempdir
from types import FrameType

import uvicorn

from aiowheel._arguments import MOST, checked_int, checked_str
from aiowheel._signals import handled_by
from aiowheel.errors import AiowheelError, BadInputError
from aiowheel.serve._app import TopicApp
from aiowheel.serve._certificate import Certificate
from aiowheel.serve._listen import address_of, listeners
from aiowheel.serve._protocol import TopicProtocol, TopicSocket
from aiowheel.serve._workers import REPLACED, Workers, run_worker, worker_setup

_BACKLOG = 4_096
_GRACE = 4  # seconds for open requests to end when the service stops
_LONG_GRACE = 60  # the same for a replaced worker, whose end delays nothing
_LAST_REQUESTS = 1.0  # seconds for the first request of a new connection to arrive
#: Bytes; the path of a Unix socket, here `metrics/NUMBER-PID.sock`, has at most 103 on macOS.
_LONGEST_FOLDER = 75


def _ignore_notice(_line: str) -> None:
    """Ignore the notice."""


class TopicServer(uvicorn.Server):
    """A uvicorn server that answers the waiting clients before it shuts down.

    On SIGHUP the server calls *reload* on the event loop, at uvicorn's next tick.

    A replaced worker loses no request. It stops accepting connections and answers the waiting
    requests as at the end of their timeout. One second later it closes the idle connections.

    Args:
        config: Configuration of uvicorn.
        app: The application to serve.
        ready: Called once clients can connect.
        reload: See `serve`. None: SIGHUP keeps its handler.
        channel: In a worker, the socket to its parent. When it becomes readable, the worker stops;
            the worker then handles no signal except SIGTERM.
    """

    def __init__(
        self,
        config: uvicorn.Config,
        app: TopicApp,
        ready: Callable[[], None],
        reload: Callable[[], object] | None,
        channel: socket.socket | None = None,
    ) -> None:
        super().__init__(config)
        self._topic_app = app
        self._ready = ready
        self._reload = reload
        self._channel = channel
        self._is_replaced = False
        self._must_reload = False
        self._has_signal = False

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.should_exit:  # the application failed to start
            return
        if self._channel is not None:
            asyncio.get_running_loop().add_reader(self._channel, self._take_stop, self._channel)
        self._ready()

    def _take_stop(self, channel: socket.socket) -> None:
        asyncio.get_running_loop().remove_reader(channel)
        try:
            self._is_replaced = channel.recv(1) == REPLACED
        except ConnectionError:  # the parent was killed before it had read the last report
            self._is_replaced = False
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
            for connection in list(self.server_state.connections):
                if isinstance(connection, TopicProtocol):
                    connection.refuse_partial_request()
        await super().shutdown(sockets)

    def is_news(self, record: logging.LogRecord) -> bool:
        """Return whether an error of uvicorn is more than work that the shutdown has cut off."""
        error = record.exc_info[1] if record.exc_info else None
        return not (self.force_exit or isinstance(error, asyncio.CancelledError))

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        """Stop on the first signal, and at once on the second.

        uvicorn's own method would also raise the signals again after the shutdown.
        """

        def stop(_number: int, _frame: FrameType | None) -> None:
            self.force_exit = self._has_signal
            self._has_signal = self.should_exit = True

        def hang_up(_number: int, _frame: FrameType | None) -> None:
            self._must_reload = True

        with contextlib.ExitStack() as stack:
            stack.enter_context(handled_by(stop, signal.SIGTERM))
            if self._channel is None:
                stack.enter_context(handled_by(stop, signal.SIGINT))
            if self._reload is not None and sys.platform != "win32":
                stack.enter_context(handled_by(hang_up, signal.SIGHUP))
            yield


def serve(
    app: TopicApp,
    host: str,
    port: int,
    ready: Callable[[str], None],
    *,
    unix: str | None = None,
    certificate: Certificate | None = None,
    reload: Callable[[], None] | None = None,
    workers: int = 1,
    command: Sequence[str] = (),
    notice: Callable[[str], None] | None = None,
) -> None:
    """Serve until SIGTERM or SIGINT.

    If a supervisor passes sockets (`LISTEN_FDS`), the service listens on them, and ignores *host*,
    *port* and *unix*.

    Args:
        app: The application to serve, whose limits of connections and times the server keeps.
        host: Address or host name to listen on.
        port: TCP port; 0 chooses a free one.
        ready: Called with each address, once clients can connect.
        unix: Path of a Unix socket to listen on, in place of *host* and *port*. The permissions of
            the file decide which users can connect.
        certificate: Certificate for TLS. None: no TLS.
        reload: Called on SIGHUP, which then does not end the process. It raises `AiowheelError` if
            the new settings cannot be used. With several workers, new workers then replace all of
            them.
        workers: Number of worker processes. More than one requires an *app* with a store and a
            POSIX system, and a call in the main thread. The limits hold for each worker.
        command: Command of a worker process. It must call this function with the same arguments;
            the call then runs a worker.
        notice: Called with a line for the operator about a reload, or a worker that has died.
            None: the lines are dropped.

    Raises:
        AiowheelError: The service cannot listen on the address, or cannot use the store.
        BadInputError: *workers* is above 1 without a store, a POSIX system or a command.
        TypeError, ValueError: *host*, *port* or *workers* is wrong.
    """
    notice = notice or _ignore_notice
    checked_str("host", host)
    checked_int("port", port, 0, 65_535)
    checked_int("workers", workers, 1, MOST)
    if workers > 1:
        _check_workers(workers, app, command)
    silence = max(app.limits.heartbeat, app.limits.receive_timeout)
    config = _config(app, certificate)
    setup = worker_setup()
    if setup is not None:

        def work(
            sockets: list[socket.socket], channel: socket.socket, serves: Callable[[], None]
        ) -> None:
            app.be_worker(Path(setup.folder), setup.number)
            _serve_on(sockets, TopicServer(config, app, serves, None, channel), app)

        run_worker(setup, work)
        return
    with listeners(host, port, unix, silence) as sockets:

        def listening() -> None:
            for each in sockets:
                ready(address_of(each, tls=certificate is not None))

        if workers > 1:
            renew = partial(_try_reload, reload or (lambda: None), notice)
            with _folder_of_workers() as folder:
                Workers(workers, command, sockets, folder, listening, renew, notice).run()
            return

        def reload_and_report(settings: Callable[[], None]) -> None:
            if _try_reload(settings, notice):
                notice("reloaded")

        again = None if reload is None else partial(reload_and_report, reload)
        _serve_on(sockets, TopicServer(config, app, listening, again), app)


def _check_workers(workers: int, app: TopicApp, command: Sequence[str]) -> None:
    """Refuse several workers if they cannot share topics, or cannot be started."""
    for is_lacking, where in (
        (app.store is None, "without a store"),
        (os.name != "posix", "on this system"),
        (not command, "without a command"),
    ):
        if is_lacking:
            raise BadInputError(f"workers must be 1 {where}, got {workers}")


@contextlib.contextmanager
def _folder_of_workers() -> Generator[Path]:
    """Make a folder for the sockets that connect the workers, and remove it after the block."""
    with TemporaryDirectory(prefix="aiowheel-") as folder:
        if len(os.fsencode(folder)) > _LONGEST_FOLDER:
            raise BadInputError(
                f"the folder of temporary files (TMPDIR) must have a shorter path, because "
                f"workers make Unix sockets in it, got {gettempdir()}"
            )
        yield Path(folder)


def _try_reload(reload: Callable[[], None], notice: Callable[[str], None]) -> bool:
    """Call *reload*; return whether it succeeded."""
    try:
        reload()
    except AiowheelError as error:
        notice(f"not reloaded: {error}")
        return False
    return True


def _serve_on(sockets: list[socket.socket], server: TopicServer, app: TopicApp) -> None:
    log = logging.getLogger("uvicorn.error")
    log.addFilter(server.is_news)
    try:
        with asyncio.Runner(loop_factory=_loop_factory()) as runner:
            # Here an error of the store is raised to the caller; uvicorn would log it.
            runner.run(app.check_store())
            runner.run(server.serve(sockets=sockets))
    finally:
        log.removeFilter(server.is_news)


def _config(app: TopicApp, certificate: Certificate | None) -> uvicorn.Config:
    limits = app.limits

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
        ws_max_size=4_096,  # the service ignores messages of subscribers
        ws_ping_interval=limits.heartbeat,
        ws_ping_timeout=limits.heartbeat,
        workers=1,  # without it, uvicorn reads WEB_CONCURRENCY
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
