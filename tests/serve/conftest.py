"""Fixtures: the service in this process without a server, and as a process of its own."""

import asyncio
import contextlib
import json
import re
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncGenerator, Callable, Generator, Iterator, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

import httpx
import pytest

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")
pytest.importorskip("websockets")
pytest.importorskip("prometheus_client")

from aiowheel.serve import Limits, TopicApp
from benchmarks._redis import RedisMissingError, redis_server

Serving = Callable[..., AbstractAsyncContextManager[httpx.AsyncClient]]


@pytest.fixture(scope="package", autouse=True)
def no_certificate_authorities(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Let HTTP clients load no authorities: the usual hundred take 80 ms of CPU for each client.

    Tests of TLS name their own certificate.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("SSL_CERT_FILE", raising=False)
        patch.setenv("SSL_CERT_DIR", str(tmp_path_factory.mktemp("authorities")))
        yield


@contextlib.asynccontextmanager
async def started(app: TopicApp) -> AsyncGenerator[TopicApp]:
    """Run the lifespan of *app* during the block."""
    async with app._app.router.lifespan_context(app._app):
        yield app


@pytest.fixture
def serving() -> Serving:
    """Return a context manager that takes limits and opens a client of a service with them."""

    @contextlib.asynccontextmanager
    async def serve(
        app: TopicApp | None = None, **limits: int
    ) -> AsyncGenerator[httpx.AsyncClient]:
        app = TopicApp(Limits(**limits)) if app is None else app
        async with (
            started(app),
            httpx.AsyncClient(
                transport=httpx.ASGITransport(app), base_url="http://localhost"
            ) as client,
        ):
            yield client

    return serve


class Subscriber:
    """A websocket client that talks ASGI with the application, in place of a server."""

    def __init__(
        self,
        app: TopicApp,
        path: str,
        query: str = "",
        host: str = "10.0.0.1",
        room: int = 0,
        headers: Sequence[tuple[bytes, bytes]] = (),
    ) -> None:
        self._app = app
        self._scope: dict[str, Any] = {
            "type": "websocket",
            "asgi": {"version": "3.0", "spec_version": "2.4"},
            "path": path,
            "query_string": query.encode(),
            "headers": headers,
            "client": (host, 1),
            "subprotocols": [],
            "extensions": {"websocket.http.response": {}},
        }
        self.to_app: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self.from_app: asyncio.Queue[dict[str, Any]] = asyncio.Queue(room)

    async def __aenter__(self) -> Self:
        self.to_app.put_nowait({"type": "websocket.connect"})
        send: Any = self.from_app.put
        self.task = asyncio.ensure_future(self._app(self._scope, self.to_app.get, send))
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.leave()
        await self.task

    def leave(self) -> None:
        """Disconnect."""
        self.to_app.put_nowait({"type": "websocket.disconnect", "code": 1001})

    async def message(self) -> Any:
        """Return the next message, parsed."""
        got = await self.from_app.get()
        assert got["type"] == "websocket.send", got
        return json.loads(got["text"])

    async def accepted(self) -> None:
        """Wait until the application accepts the websocket."""
        assert (await self.from_app.get())["type"] == "websocket.accept"


@dataclass(frozen=True, slots=True)
class Process:
    """A running `aiowheel serve`, and the port that it listens on."""

    process: subprocess.Popen[str]
    port: int

    @property
    def url(self) -> str:
        """URL of the service, without a slash at the end."""
        return f"http://127.0.0.1:{self.port}"

    def connect(self) -> socket.socket:
        """Open a plain connection whose reads time out after a minute."""
        return socket.create_connection(("127.0.0.1", self.port), timeout=60)

    def send(self, request: bytes) -> bytes:
        """Send *request*; return everything up to the end of the connection."""
        with self.connect() as connection:
            connection.sendall(request)
            return read_to_end(connection)

    def stop(self, number: int = signal.SIGTERM) -> tuple[int, str]:
        """Send a signal; return the exit code and the text on stderr."""
        self.process.send_signal(number)
        _, errors = self.process.communicate(timeout=60)
        return self.process.returncode, errors


async def waiters_reach(server: Process, wanted: int) -> None:
    """Wait until the service counts *wanted* waiting clients."""
    async with httpx.AsyncClient(timeout=60) as client:
        while True:
            if (await client.get(f"{server.url}/health")).json()["waiters"] == wanted:
                return
            await asyncio.sleep(0.01)


def read_to_end(connection: socket.socket) -> bytes:
    """Return everything until the other side closes the connection."""
    received = b""
    while chunk := connection.recv(65_536):
        received += chunk
    return received


@contextlib.contextmanager
def process(
    *arguments: str,
    environment: dict[str, str] | None = None,
    stderr: int | IO[str] = subprocess.PIPE,
    program: Sequence[str] = ("-m", "aiowheel"),
) -> Generator[Process]:
    """Run `aiowheel serve` on a free port during the block."""
    command = [sys.executable, *program, "serve", "--port", "0", *arguments]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=stderr, text=True, env=environment
    ) as child:
        try:
            assert child.stdout is not None
            line = child.stdout.readline()
            found = re.search(r":(\d+)/topics/", line)
            assert found, line or (child.stderr and child.stderr.read())
            yield Process(child, int(found[1]))
        finally:
            if child.poll() is None:
                child.kill()


@pytest.fixture(scope="module")
def server() -> Iterator[Process]:
    """One process for all tests of a module."""
    with process("--dashboard", "--heartbeat", "1", "--max-body", "1000") as running:
        yield running


@pytest.fixture(scope="module")
def impatient_server() -> Iterator[Process]:
    """A process with a short receive timeout."""
    with process("--receive-timeout", "0.6") as running:
        yield running


@pytest.fixture(params=["sqlite", "postgres", "redis"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The address of an empty store, of each kind."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/topics.db"
    if request.param == "redis":
        return f"unix://{request.getfixturevalue('empty_redis')}"
    address: str = request.getfixturevalue("database")
    return address


@pytest.fixture(scope="session")
def redis() -> Iterator[str]:
    """The socket file of a Redis server."""
    try:
        with redis_server() as path:
            yield path
    except RedisMissingError as missing:
        pytest.skip(str(missing))


@pytest.fixture
def empty_redis(redis: str) -> str:
    """The socket file of a Redis server without keys."""
    subprocess.run(["redis-cli", "-s", redis, "FLUSHALL"], check=True, capture_output=True)
    return redis
