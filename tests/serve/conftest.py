"""The service in this process, without a server, and as a process of its own."""

import asyncio
import contextlib
import re
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncGenerator, Callable, Generator, Iterator
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass

import httpx
import pytest

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")
pytest.importorskip("websockets")
pytest.importorskip("prometheus_client")

from aiowheel.serve import Limits, TopicApp

Serving = Callable[..., AbstractAsyncContextManager[httpx.AsyncClient]]


@contextlib.asynccontextmanager
async def started(app: TopicApp) -> AsyncGenerator[TopicApp]:
    """*app* between its start and its end."""
    async with app._app.router.lifespan_context(app._app):
        yield app


@pytest.fixture
def serving() -> Serving:
    """Open a client of a service with some limits, as `async with` a call that names them."""

    @contextlib.asynccontextmanager
    async def serve(
        app: TopicApp | None = None, **limits: int
    ) -> AsyncGenerator[httpx.AsyncClient]:
        app = TopicApp(Limits(**limits)) if app is None else app
        async with (
            started(app),
            httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://test") as client,
        ):
            yield client

    return serve


@dataclass(frozen=True, slots=True)
class Process:
    """`aiowheel serve` and where it listens."""

    process: subprocess.Popen[str]
    port: int

    @property
    def url(self) -> str:
        """Of its root, without a slash."""
        return f"http://127.0.0.1:{self.port}"

    def connect(self) -> socket.socket:
        """Open a plain connection; reads on it time out after a minute."""
        return socket.create_connection(("127.0.0.1", self.port), timeout=60)

    def send(self, request: bytes) -> bytes:
        """What the server answers to *request* before it closes the connection."""
        with self.connect() as connection:
            connection.sendall(request)
            return read_to_end(connection)

    def stop(self, number: int = signal.SIGTERM) -> tuple[int, str]:
        """Signal it; its exit code and what it wrote to stderr."""
        self.process.send_signal(number)
        _, errors = self.process.communicate(timeout=60)
        return self.process.returncode, errors


async def waiters_reach(server: Process, wanted: int) -> None:
    """Wait until *wanted* clients wait there, by the service's own count."""
    async with httpx.AsyncClient() as client:
        while True:
            if (await client.get(f"{server.url}/health")).json()["waiters"] == wanted:
                return
            await asyncio.sleep(0.01)


def read_to_end(connection: socket.socket) -> bytes:
    """Everything until the other side closes."""
    received = b""
    while chunk := connection.recv(65_536):
        received += chunk
    return received


@contextlib.contextmanager
def process(*arguments: str) -> Generator[Process]:
    """`aiowheel serve` on a free port."""
    command = [sys.executable, "-m", "aiowheel", "serve", "--port", "0", *arguments]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as child:
        try:
            assert child.stdout is not None
            line = child.stdout.readline()
            found = re.search(r":(\d+)/topics/", line)
            assert found, line
            yield Process(child, int(found[1]))
        finally:
            if child.poll() is None:
                child.kill()


@pytest.fixture(scope="module")
def server() -> Iterator[Process]:
    """One process for the tests of a module."""
    with process("--dashboard", "--heartbeat", "1", "--max-body", "1000") as running:
        yield running


@pytest.fixture(scope="module")
def impatient_server() -> Iterator[Process]:
    """One that gives a request little time to arrive."""
    with process("--receive-timeout", "0.6") as running:
        yield running
