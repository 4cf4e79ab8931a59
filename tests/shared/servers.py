"""Real servers in temporary folders, which a test may stop, crash, fail over and start again."""

from __future__ import annotations

import asyncio
import shutil
import signal
import socket
import struct
import subprocess
import tempfile
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Self

import pytest

from benchmarks._postgres import PostgresMissingError
from benchmarks._postgres import PostgresServer as PostgresServer
from benchmarks._redis import RedisMissingError

PATIENCE = 60.0  # seconds; long enough for a slow machine


async def holds(condition: Callable[[], object]) -> None:
    """Wait until a condition holds."""
    async with asyncio.timeout(PATIENCE):
        while not condition():  # noqa: ASYNC110 - the condition has no event
            await asyncio.sleep(0.02)


def _free_port_of_a_node() -> int:
    """Return a port that is free now, as well as the one 10,000 above, for a Cluster's nodes."""
    while True:
        with socket.socket() as probe, socket.socket() as above:
            probe.bind(("127.0.0.1", 0))
            port: int = probe.getsockname()[1]
            if port > 50_000:
                continue
            with suppress(OSError):
                above.bind(("127.0.0.1", port + 10_000))
                return port


class RedisServer:
    """A redis-server on its own port, without persistence unless *words* enable it."""

    def __init__(self, folder: Path, *words: str) -> None:
        program = shutil.which("redis-server")
        if program is None:
            raise RedisMissingError(
                "Redis is not installed; on Debian: apt-get install redis-server"
            )
        self.port = _free_port_of_a_node()
        self.address = f"redis://127.0.0.1:{self.port}"
        self._folder = folder / str(self.port)
        self._folder.mkdir()
        self._command = [
            *(program, "--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(self._folder)),
            *("--save", "", "--daemonize", "no", "--repl-diskless-sync-delay", "0", *words),
        ]
        self._process: subprocess.Popen[bytes] | None = None

    def become_sentinel(self, master: RedisServer) -> None:
        """Configure the server as a Sentinel for a master; call this before the start."""
        file = self._folder / "sentinel.conf"
        file.write_text(
            f"port {self.port}\ndir {self._folder}\n"
            f"sentinel monitor main 127.0.0.1 {master.port} 1\n"
            "sentinel down-after-milliseconds main 300\nsentinel failover-timeout main 5000\n"
        )
        self._command = [self._command[0], str(file), "--sentinel"]

    @property
    def runs(self) -> bool:
        """Whether the server was started and not killed."""
        return self._process is not None

    def start(self) -> None:
        """Start the server, and wait until it answers."""
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                process_group=0,
            )
        last_moment = time.monotonic() + PATIENCE
        while self.ask("PING") != "PONG":
            assert self._process.poll() is None, (self._folder / "log").read_text()
            assert time.monotonic() < last_moment
            time.sleep(0.01)

    def ask(self, *words: str) -> str:
        """Send a command by redis-cli; return the answer, or "" if there is none."""
        command = ["redis-cli", "-p", str(self.port), *words]
        answer = subprocess.run(command, capture_output=True, text=True, check=False, timeout=30)
        return answer.stdout.strip()

    def kill(self) -> None:
        """Kill the server."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()


@contextmanager
def folder_for(what: str) -> Generator[Path]:
    """Create a temporary folder with a short path that another account may enter."""
    folder = Path(tempfile.mkdtemp(prefix=f"aiowheel-{what}-", dir="/tmp"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def postgres_that_stops() -> Generator[PostgresServer]:
    """Run a PostgreSQL server during the block."""
    with folder_for("postgres") as folder:
        server = PostgresServer(folder)
        try:
            server.start()
            yield server
        finally:
            server.stop(signal.SIGQUIT)


@contextmanager
def missing_is_skipped() -> Generator[None]:
    """Skip the test if PostgreSQL or Redis is not installed."""
    try:
        yield
    except (PostgresMissingError, RedisMissingError) as missing:
        pytest.skip(str(missing))


@contextmanager
def redis_that_stops(*words: str) -> Generator[RedisServer]:
    """Run a Redis server during the block."""
    with folder_for("redis") as folder:
        server = RedisServer(folder, *words)
        server.start()
        try:
            yield server
        finally:
            server.kill()


@contextmanager
def sentinel_with_a_replica() -> Generator[tuple[RedisServer, RedisServer, RedisServer]]:
    """Run a master, its replica and a Sentinel during the block."""
    with folder_for("sentinel") as folder:
        master = RedisServer(folder)
        replica = RedisServer(folder, "--replicaof", "127.0.0.1", str(master.port))
        sentinel = RedisServer(folder)
        sentinel.become_sentinel(master)
        servers = (master, replica, sentinel)
        try:
            for server in servers:
                server.start()
            yield servers
        finally:
            for server in servers:
                server.kill()


class Proxy:
    """A TCP proxy that can drop all data without closing a connection, as a cut cable does."""

    def __init__(self, port: int) -> None:
        self._target = port
        self._open = asyncio.Event()
        self._open.set()
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._clients: list[asyncio.StreamWriter] = []
        self.port = 0

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        assert self._server is not None
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def cut(self) -> None:
        """Drop all data from now on."""
        self._open.clear()

    def mend(self) -> None:
        """Serve new connections; data that was dropped on the old ones is lost."""
        for task in self._tasks:
            task.cancel()
        self._open.set()

    def lead_to(self, port: int) -> None:
        """Connect new clients to another server, as a name in the DNS does after a failover."""
        self._target = port

    def reset(self) -> None:
        """Reset the connections of the clients, as a firewall does after some idle minutes."""
        linger = struct.pack("ii", 1, 0)
        for client in self._clients:
            if not client.is_closing():
                client.get_extra_info("socket").setsockopt(
                    socket.SOL_SOCKET, socket.SO_LINGER, linger
                )
                client.transport.abort()
        self._clients.clear()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._clients.append(writer)
        await self._open.wait()
        try:
            theirs, ours = await asyncio.open_connection("127.0.0.1", self._target)
        except OSError:
            writer.close()
            return
        for source, target in ((reader, ours), (theirs, writer)):
            task = asyncio.create_task(self._pump(source, target))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _pump(self, source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        try:
            with suppress(OSError):
                while data := await source.read(65536):
                    if not self._open.is_set():
                        await asyncio.Event().wait()  # drops this data and all later data
                    target.write(data)
                    await target.drain()
        finally:
            target.close()


def cluster_nodes(folder: Path, count: int) -> list[RedisServer]:
    """Start the nodes of a Cluster: three masters, and with six nodes a replica for each."""
    words = ("--cluster-enabled", "yes", "--cluster-node-timeout", "1000")
    nodes = [RedisServer(folder, *words) for _ in range(count)]
    for node in nodes:
        node.start()
    addresses = [f"127.0.0.1:{node.port}" for node in nodes]
    replicas = "1" if count >= 6 else "0"
    create = ["redis-cli", "--cluster", "create", *addresses, "--cluster-replicas", replicas]
    subprocess.run([*create, "--cluster-yes"], check=True, capture_output=True, timeout=PATIENCE)
    last_moment = time.monotonic() + PATIENCE
    while not all("cluster_state:ok" in node.ask("CLUSTER", "INFO") for node in nodes):
        assert time.monotonic() < last_moment
        time.sleep(0.05)
    return nodes
