"""The service of `examples/production` on real servers, with workers that are killed.

Every reader checks every answer: versions only grow, no version comes twice, no version is older
than one that was acknowledged before the request began, and the last version arrives.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, closing, suppress
from functools import partial
from pathlib import Path

import psutil
import pytest

pytest.importorskip("fastapi", reason="fastapi is not installed: see the dependency group `test`")

from benchmarks._ports import free_port
from examples.production.documents import open_documents
from tests.crowds import NO_TAG, Connection, busiest_of

from .conftest import Until
from .servers import PostgresServer

pytestmark = [pytest.mark.one_build, pytest.mark.realtime, pytest.mark.slow]

ROOT = Path(__file__).parent.parent.parent
APP = "examples.production.app:app"
BAD_READS = {
    "/documents/Weather": 422,
    f"/documents/{'x' * 101}": 422,
    "/documents/x?wait=-1": 422,
    "/documents/x?wait=61": 422,
    "/documents/x?wait=nan": 422,
    f"/documents/x?since={'x' * 101}": 422,
}
PATIENCE = 120.0  # seconds; long enough for a slow machine


class Readers:
    """The readers and writers of some documents.

    Attributes:
        seen: The last version of each reader; -1 before its first answer.
        acknowledged: The last acknowledged version of each document.
        written: The number of acknowledged publishes.
        lost_connections: The number of requests without an answer.
    """

    def __init__(self, port: int, readers: int, documents: int) -> None:
        self._port = port
        self._gate = asyncio.Semaphore(100)
        self.seen = [-1] * readers
        self.acknowledged = [0] * documents
        self.written = 0
        self.lost_connections = 0

    async def read(self, reader: int) -> None:
        """Follow one document until cancelled."""
        document = reader % len(self.acknowledged)
        connection = Connection(self._port, self._gate)
        tag, epoch = NO_TAG, ""
        try:
            while True:
                least = self.acknowledged[document]
                try:
                    status, new_tag, body = await connection.ask(
                        "GET", f"/documents/d-{document}?wait=60", tag
                    )
                except (OSError, EOFError):
                    await self._pause()
                    continue
                if status == 503:  # the worker is stopping, or its store does not answer yet
                    await self._pause()
                elif status == 304:
                    assert new_tag == tag
                    assert self.seen[reader] >= least
                else:
                    assert status == 200, body
                    version = json.loads(body)["version"]
                    assert version > self.seen[reader]
                    assert version >= least
                    epoch = epoch or new_tag.partition(":")[0]
                    tag = new_tag
                    assert tag in {f'{epoch}:{version}"', f'{epoch}:"'}
                    self.seen[reader] = version
        finally:
            connection.close()

    async def write(self, numbers: list[int]) -> None:
        """Publish these numbers to their documents, until each is acknowledged."""
        connection = Connection(self._port, self._gate)
        for number in numbers:
            document = number % len(self.acknowledged)
            while True:
                try:
                    status, _, body = await connection.ask(
                        "PUT", f"/documents/d-{document}", body=str(number)
                    )
                except (OSError, EOFError):
                    await self._pause()
                    continue
                if status == 200:
                    break
                assert status == 503, body
                await self._pause()
            self.acknowledged[document] = max(self.acknowledged[document], int(body))
            self.written += 1
        connection.close()

    def has_written(self, count: int) -> bool:
        """Return whether at least *count* publishes were acknowledged."""
        return self.written >= count

    def are_done(self) -> bool:
        """Return whether every reader has the last version of its document."""
        count = len(self.acknowledged)
        return all(
            seen == self.acknowledged[reader % count] for reader, seen in enumerate(self.seen)
        )

    async def _pause(self) -> None:
        self.lost_connections += 1
        await asyncio.sleep(random.random() * 0.2)


def started(command: list[str], database: str, folder: Path) -> subprocess.Popen[bytes]:
    """Start a server with its log in the folder."""
    environment = os.environ | {"PYTHONPATH": str(ROOT), "DATABASE": database}
    with (folder / "server.log").open("wb") as log:
        return subprocess.Popen(
            [sys.executable, "-m", *command], cwd=folder, env=environment, stdout=log, stderr=log
        )


async def fail_at_the_end_of(server: subprocess.Popen[bytes], folder: Path) -> None:
    """Raise an error with the log once the server has ended."""
    while server.poll() is None:  # noqa: ASYNC110 - no event
        await asyncio.sleep(0.1)
    raise AssertionError((folder / "server.log").read_text())


@asynccontextmanager
async def served(
    command: list[str], port: int, database: str, folder: Path
) -> AsyncGenerator[psutil.Process]:
    """Run a server during the block, which begins when the server answers.

    The block is cancelled if the server ends: its clients would connect again for ever.
    """
    server = started(command, database, folder)
    try:
        async with asyncio.timeout(PATIENCE):
            while True:
                probe = Connection(port, asyncio.Semaphore())
                with suppress(OSError, EOFError):
                    await probe.ask("GET", "/documents/probe?wait=0")
                    probe.close()
                    break
                assert server.poll() is None, (folder / "server.log").read_text()
                await asyncio.sleep(0.05)
        async with asyncio.TaskGroup() as group:
            watch = group.create_task(fail_at_the_end_of(server, folder))
            yield psutil.Process(server.pid)
            watch.cancel()
        server.send_signal(signal.SIGTERM)
        code = await asyncio.to_thread(server.wait, PATIENCE)
        assert code in {0, -signal.SIGTERM}, (folder / "server.log").read_text()
    finally:
        left = [psutil.Process(server.pid)] if server.poll() is None else []
        for process in [*left, *(child for each in left for child in each.children())]:
            process.kill()
        server.wait()


async def every_version_arrives(
    server: psutil.Process,
    port: int,
    until: Until,
    *,
    readers: int,
    documents: int,
    publishes: int,
    kills: int = 0,
    kill_every: float | None = None,
) -> None:
    """Publish to waiting readers, and kill workers: so many, or one every so many seconds."""
    crowd = Readers(port, readers, documents)
    async with asyncio.TaskGroup() as group:
        following = [group.create_task(crowd.read(reader)) for reader in range(readers)]
        await until(lambda: -1 not in crowd.seen)
        numbers = list(range(publishes))
        writing = [group.create_task(crowd.write(numbers[start::8])) for start in range(8)]
        for kill in range(kills):
            due = publishes * (kill + 1) // (kills + 1)
            await until(partial(crowd.has_written, due))
            busiest_of(server).kill()
        left = set(writing)
        while left:
            _, left = await asyncio.wait(left, timeout=kill_every)
            if left:
                busiest_of(server).kill()
        await until(crowd.are_done)
        for task in following:
            task.cancel()
    assert crowd.written == publishes
    assert crowd.lost_connections > 0  # the killed workers had readers


def uvicorn_command(port: int, workers: int) -> list[str]:
    """Return the command as a user types it."""
    return ["uvicorn", APP, f"--workers={workers}", f"--port={port}", "--no-access-log"]


async def test_uvicorn_on_sqlite(tmp_path: Path, until: Until) -> None:
    """No version is lost with four workers, of which two are killed; bad requests are refused."""
    port = free_port()
    address = f"sqlite:///{tmp_path}/documents.db"
    async with served(uvicorn_command(port, 4), port, address, tmp_path) as server:
        await every_version_arrives(
            server, port, until, readers=30, documents=6, publishes=120, kills=2
        )
        for path, status in BAD_READS.items():
            probe = Connection(port, asyncio.Semaphore())
            assert (path, (await probe.ask("GET", path))[0]) == (path, status)
            probe.close()
        for text, status in (("x" * 65_536, 200), ("x" * 65_537, 413), ("a\0b", 400)):
            probe = Connection(port, asyncio.Semaphore())
            assert (await probe.ask("PUT", "/documents/long", body=text))[0] == status
            probe.close()


@pytest.mark.thorough
async def test_gunicorn_on_postgres(
    postgres_server: PostgresServer, tmp_path: Path, until: Until
) -> None:
    """No version is lost with two workers, of which one is killed."""
    for name in ("gunicorn", "uvicorn_worker"):
        pytest.importorskip(name, reason=f"{name} is not installed: see the group `test`")
    port = free_port()
    command = ["gunicorn", APP, "--workers=2", f"--bind=127.0.0.1:{port}"]
    command += ["--worker-class=uvicorn_worker.UvicornWorker"]
    async with served(command, port, postgres_server.dsn, tmp_path) as server:
        await every_version_arrives(
            server, port, until, readers=60, documents=6, publishes=200, kills=1
        )


async def test_a_worker_opens_the_documents_while_another_one_creates_the_counters(
    tmp_path: Path,
) -> None:
    """Otherwise a worker fails now and then at the first start, and uvicorn stops all of them."""
    path = tmp_path / "documents.db"
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("CREATE TABLE documents (name PRIMARY KEY, text, version) WITHOUT ROWID")
        other.execute("BEGIN IMMEDIATE")

        async with open_documents(f"sqlite:///{path}") as (documents, _):
            assert (await documents.read("weather"))["version"] == 0


async def test_a_database_of_another_kind_is_refused() -> None:
    """The error has the legal addresses."""
    with pytest.raises(ValueError, match=r"^the database must be sqlite:///path or "):
        async with open_documents("mysql://localhost/documents"):
            pass


@pytest.mark.shared_faults
@pytest.mark.parametrize("store", ["sqlite", "postgres"])
async def test_ten_thousand_polls(
    store: str, request: pytest.FixtureRequest, tmp_path: Path, until: Until
) -> None:
    """No version is lost on `uvicorn --workers 4`; a worker is killed every 1,000 publishes."""
    port = free_port()
    address = f"sqlite:///{tmp_path}/documents.db"
    if store == "postgres":
        address = request.getfixturevalue("postgres_server").dsn
    async with served(uvicorn_command(port, 4), port, address, tmp_path) as server:
        await every_version_arrives(
            server, port, until, readers=10_000, documents=1_000, publishes=10_000, kills=9
        )


@pytest.mark.shared_faults
@pytest.mark.timeout(7200)
async def test_a_million_publishes(tmp_path: Path, until: Until) -> None:
    """No version is lost on `uvicorn --workers 4`; a worker is killed every ten seconds."""
    port = free_port()
    address = f"sqlite:///{tmp_path}/documents.db"
    async with served(uvicorn_command(port, 4), port, address, tmp_path) as server:
        await every_version_arrives(
            server,
            *(port, until),
            readers=10_000,
            documents=10_000,
            publishes=int(os.environ.get("AIOWHEEL_PUBLISHES", "1000000")),
            kill_every=10,
        )
