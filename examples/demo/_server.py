"""The demo's web server, on its own thread and event loop. Needs the `web` extra."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from types import TracebackType
from typing import Self

import uvicorn
from starlette.types import ASGIApp

from aiowheel.errors import AiowheelError

from ._loop import new_loop

_BACKLOG = 4_096


class ServerThread:
    """Serves an application on a free loopback port while the block runs.

    Attributes:
        port: The port of the server, chosen by the system.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._socket = socket.socket()
        self._socket.bind(("127.0.0.1", 0))
        self.port: int = self._socket.getsockname()[1]
        # No log configuration: the server must not print between the demo's paragraphs.
        config = uvicorn.Config(
            app,
            log_config=None,
            access_log=False,
            lifespan="on",
            backlog=_BACKLOG,
            timeout_keep_alive=600,  # long enough that the demo finds the idle connections
            timeout_graceful_shutdown=5,
        )
        self._server = uvicorn.Server(config)
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="aiowheel-demo-server", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        while not self._server.started:
            if not self._thread.is_alive():
                raise AiowheelError("the demo's web server did not start") from self._error
            time.sleep(0.01)
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._server.should_exit = True
        self._thread.join()
        self._socket.close()

    def _run(self) -> None:
        try:
            with asyncio.Runner(loop_factory=new_loop) as runner:
                runner.run(self._server.serve(sockets=[self._socket]))
        except (Exception, SystemExit) as error:  # uvicorn calls sys.exit after a failed start
            self._error = error
