"""Faults lose no wake-up; the same tests find losses if gaps are ignored."""

from __future__ import annotations

import asyncio
import itertools
import random
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import asyncpg
import pytest

from aiowheel import Purgatory
from aiowheel.shared import (
    CounterStore,
    EpochChangedError,
    PostgresCounters,
    RedisCounters,
    SharedCounters,
    SqliteCounters,
    _postgres,
    _redis,
    _sqlite,
)

from .losses import PATIENCE, Connect, Fault, Progress, losses
from .servers import (
    PostgresServer,
    Proxy,
    RedisServer,
    cluster_nodes,
    folder_for,
    holds,
    missing_is_skipped,
    redis_that_stops,
    sentinel_with_a_replica,
)

pytestmark = [pytest.mark.one_build, pytest.mark.realtime, pytest.mark.slow]

#: Keys and seeds: few in the ordinary run and in `make test-thorough`, which runs the long tests;
#: the full number in `make test-shared`.
FEW = pytest.param(300, 1, id="few")
MANY = [
    pytest.param(10_000, seed, id=f"10000-{seed}", marks=pytest.mark.shared_faults)
    for seed in range(20)
]
SIZES = pytest.mark.parametrize(("count", "seed"), [FEW, *MANY])
LONG = pytest.mark.parametrize(
    ("count", "seed"), [pytest.param(300, 1, id="few", marks=pytest.mark.thorough), *MANY]
)


@pytest.fixture
def late(monkeypatch: pytest.MonkeyPatch) -> Progress:
    """Make listeners miss at least 20 publishes before they reconnect.

    On one machine, listeners reconnect so soon that few publishes fall into the gap.
    """
    progress = Progress()
    for store, method in ((PostgresCounters, "_subscribe"), (RedisCounters, "_subscribed")):
        monkeypatch.setattr(store, method, progress.delay(getattr(store, method)))
    return progress


def times(count: int) -> int:
    """Return how often a connection breaks: eight times, or three times in the ordinary run."""
    return 8 if count > 1000 else 3


async def compare(
    connect: Connect,
    fault: Fault,
    count: int,
    seed: int,
    progress: Progress,
    publisher: Connect | None = None,
) -> None:
    """Assert no loss with the reads after gaps, and some losses without them."""
    for reading in (True, False):
        lost = await losses(
            connect,
            fault,
            count=count,
            seed=seed if reading else seed + 1000,
            publisher=publisher,
            progress=progress,
            reading=reading,
        )
        assert (lost == 0) is reading


# --- SQLite -------------------------------------------------------------------------------------


def remove_bells(path: Path) -> None:
    """Remove the sockets of all processes, so that no later hint arrives."""
    for bell in path.with_name(f"{path.name}-hints").iterdir():
        bell.unlink()


@SIZES
async def test_sqlite_without_hints(count: int, seed: int, tmp_path: Path) -> None:
    """After the sockets are removed, looks at the file's version find the changes."""
    path = tmp_path / "counters.db"

    async def fault() -> None:
        await asyncio.sleep(0.1)
        remove_bells(path)

    assert await losses(lambda: SqliteCounters(path), fault, count=count, seed=seed) == 0


async def test_sqlite_without_hints_and_without_looks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the looks, a wait times out: the losses of the test above are possible."""
    monkeypatch.setattr(_sqlite, "_POLL", 3600)
    path = tmp_path / "counters.db"
    here = SqliteCounters(path)
    async with Purgatory() as purgatory, SharedCounters(purgatory, here) as shared:
        await shared.value("k")
        other = SqliteCounters(path)
        remove_bells(path)
        await other.raise_to({"k": 1})
        await other.aclose()
        assert not await shared.wait_until({"k": 1}, 0.5)


@SIZES
async def test_sqlite_with_a_full_queue(count: int, seed: int, tmp_path: Path) -> None:
    """If the loop is blocked, the queue holds ten hints of hundreds, and no wake-up is lost."""
    path = tmp_path / "counters.db"
    async with (
        Purgatory() as purgatory,
        SharedCounters(purgatory, SqliteCounters(path)) as shared,
    ):
        keys = [f"{seed} {number}" for number in range(count)]
        waits = [shared.wait_until({key: 1}, None) for key in keys]
        await shared.value(keys[-1])
        program = Path(__file__).with_name("burst.py")
        subprocess.run(  # noqa: ASYNC221 - it must block the loop
            [sys.executable, program, path, str(seed), str(count)], check=True
        )
        assert not any(each.done() for each in waits)
        async with asyncio.timeout(PATIENCE):
            assert all(await asyncio.gather(*waits))


@SIZES
async def test_sqlite_file_removed(count: int, seed: int, tmp_path: Path) -> None:
    """The history is lost: waits end with an error, and the new waits complete."""
    path = tmp_path / "counters.db"

    async def fault() -> None:
        for _ in range(3):
            await asyncio.sleep(0.1)
            for ending in ("", "-wal", "-shm"):
                path.with_name(f"{path.name}{ending}").unlink(missing_ok=True)

    assert await losses(lambda: SqliteCounters(path), fault, count=count, seed=seed) == 0


# --- PostgreSQL ---------------------------------------------------------------------------------


async def run_sql(server: PostgresServer, statement: str) -> None:
    """Run a statement on a new connection."""
    connection = await asyncpg.connect(server.dsn)
    await connection.execute(statement)
    await connection.close()


@SIZES
async def test_postgres_connections_killed(
    count: int, seed: int, postgres_server: PostgresServer, late: Progress
) -> None:
    """The connections of listeners and writers are killed eight times, or three times."""

    async def fault() -> None:
        for _ in range(times(count)):
            await asyncio.sleep(0.05)
            await run_sql(
                postgres_server,
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                " WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()",
            )

    await compare(lambda: PostgresCounters(postgres_server.dsn), fault, count, seed, late)


@SIZES
@pytest.mark.parametrize(
    ("how", "logged"),
    [
        pytest.param(signal.SIGINT, False, id="restarted", marks=pytest.mark.thorough),
        pytest.param(signal.SIGQUIT, False, id="crashed"),
        pytest.param(signal.SIGQUIT, True, id="crashed-logged", marks=pytest.mark.thorough),
    ],
)
async def test_postgres_server_ended(
    count: int,
    seed: int,
    postgres_server: PostgresServer,
    late: Progress,
    how: signal.Signals,
    logged: bool,  # noqa: FBT001
) -> None:
    """An orderly restart keeps the history; a crash keeps it only in logged tables."""

    async def fault() -> None:
        await asyncio.sleep(0.1)
        await asyncio.to_thread(postgres_server.stop, how)
        await asyncio.sleep(0.1)
        await asyncio.to_thread(postgres_server.start)

    def connect() -> CounterStore:
        return PostgresCounters(postgres_server.dsn, name=f"f{how}{logged}".lower(), logged=logged)

    await compare(connect, fault, count, seed, late)


@LONG
async def test_postgres_network_cut(
    count: int,
    seed: int,
    postgres_server: PostgresServer,
    monkeypatch: pytest.MonkeyPatch,
    late: Progress,
) -> None:
    """Packets are dropped and no connection is closed, so that only a heartbeat finds the cut."""
    monkeypatch.setattr(_postgres, "_HEARTBEAT", 0.2)
    monkeypatch.setattr(_postgres, "_ANSWER", 0.5)
    async with Proxy(postgres_server.port) as proxy:

        async def fault() -> None:
            await asyncio.sleep(0.1)
            proxy.cut()
            await asyncio.sleep(1)
            proxy.mend()

        near = f"postgresql://postgres@127.0.0.1:{proxy.port}/postgres"
        await compare(
            lambda: PostgresCounters(near, name="cut"),
            fault,
            count,
            seed,
            late,
            publisher=lambda: PostgresCounters(postgres_server.dsn, name="cut"),
        )


# --- Redis --------------------------------------------------------------------------------------


@SIZES
async def test_redis_listener_killed(
    count: int, seed: int, redis_server: RedisServer, late: Progress
) -> None:
    """The connection of the listener is killed eight times, or three times."""

    async def fault() -> None:
        for _ in range(times(count)):
            await asyncio.sleep(0.05)
            await asyncio.to_thread(redis_server.ask, "CLIENT", "KILL", "TYPE", "pubsub")

    await compare(lambda: RedisCounters(redis_server.address), fault, count, seed, late)


@SIZES
@pytest.mark.parametrize(
    "kept",
    [
        pytest.param(False, id="history-lost"),
        pytest.param(True, id="history-kept", marks=pytest.mark.thorough),
    ],
)
async def test_redis_killed(count: int, seed: int, kept: bool, late: Progress) -> None:  # noqa: FBT001
    """Without persistence the history is lost; with a log of every write it is kept."""
    words = ("--appendonly", "yes", "--appendfsync", "always") if kept else ()
    with missing_is_skipped(), redis_that_stops(*words) as server:

        async def fault() -> None:
            await asyncio.sleep(0.1)
            server.kill()
            await asyncio.sleep(0.2)
            await asyncio.to_thread(server.start)

        await compare(lambda: RedisCounters(server.address), fault, count, seed, late)


@LONG
async def test_redis_output_buffer_overflow(
    count: int, seed: int, redis_server: RedisServer, late: Progress
) -> None:
    """The server closes the connection of a listener that is too slow for its buffer."""
    limit = "pubsub 4096 0 0"
    numbers = itertools.count()

    async def fault() -> None:
        for number in itertools.islice(numbers, times(count)):
            await asyncio.sleep(0.05)
            redis_server.ask("CONFIG", "SET", "client-output-buffer-limit", limit)
            store = RedisCounters(redis_server.address)
            await store.raise_to({f"{seed} filler {number} {each}": 1 for each in range(5000)})
            await store.aclose()
            redis_server.ask("CONFIG", "SET", "client-output-buffer-limit", "pubsub 0 0 0")

    await compare(lambda: RedisCounters(redis_server.address), fault, count, seed, late)


@LONG
async def test_redis_network_cut(
    count: int,
    seed: int,
    redis_server: RedisServer,
    monkeypatch: pytest.MonkeyPatch,
    late: Progress,
) -> None:
    """Packets are dropped and no connection is closed, so that only a heartbeat finds the cut."""
    monkeypatch.setattr(_redis, "_HEARTBEAT", 0.2)
    monkeypatch.setattr(_redis, "_ANSWER", 0.5)
    async with Proxy(redis_server.port) as proxy:

        async def fault() -> None:
            await asyncio.sleep(0.1)
            proxy.cut()
            await asyncio.sleep(1)
            proxy.mend()

        await compare(
            lambda: RedisCounters(f"redis://127.0.0.1:{proxy.port}"),
            fault,
            count,
            seed,
            late,
            publisher=lambda: RedisCounters(redis_server.address),
        )


@LONG
@pytest.mark.parametrize("reading", [True, False], ids=["as-it-is", "without-reading"])
async def test_redis_failover_by_sentinel(
    count: int,
    seed: int,
    late: Progress,
    reading: bool,  # noqa: FBT001
) -> None:
    """The master is killed and its replica is promoted; the epoch stays."""
    with sentinel_with_a_replica() as (master, replica, sentinel):
        await holds(lambda: "slaves=1" in sentinel.ask("INFO", "sentinel"))
        await holds(lambda: "master_link_status:up" in replica.ask("INFO", "replication"))
        master.ask("SET", "replicated", "yes")
        await holds(lambda: replica.ask("GET", "replicated") == "yes")

        async def fault() -> None:
            await asyncio.sleep(0.1)
            master.kill()
            await holds(lambda: "role:master" in replica.ask("INFO", "replication"))

        def connect() -> CounterStore:
            return RedisCounters(f"redis+sentinel://127.0.0.1:{sentinel.port}/main")

        lost = await losses(connect, fault, count=count, seed=seed, progress=late, reading=reading)
    assert (lost == 0) is reading


@LONG
async def test_redis_failover_in_a_cluster(count: int, seed: int) -> None:
    """The master of the counters' slot is killed, and its replica takes over."""
    with folder_for("cluster") as folder:
        nodes = await asyncio.to_thread(cluster_nodes, folder, 6)
        try:
            address = "redis+cluster://" + ",".join(f"127.0.0.1:{node.port}" for node in nodes)

            async def fault() -> None:
                await asyncio.sleep(0.1)
                slots = nodes[1].ask("CLUSTER", "KEYSLOT", "{aiowheel}:counters")
                (owner,) = [
                    node
                    for node in nodes
                    if node.runs
                    and "1" in node.ask("CLUSTER", "COUNTKEYSINSLOT", slots)
                    and "role:master" in node.ask("INFO", "replication")
                ]
                owner.kill()

            lost = await losses(lambda: RedisCounters(address), fault, count=count, seed=seed)
        finally:
            for node in nodes:
                node.kill()
    assert lost == 0


# --- processes ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "store",
    [
        "sqlite",
        *(pytest.param(each, marks=pytest.mark.thorough) for each in ("postgres", "redis")),
    ],
)
@SIZES
async def test_worker_killed(
    count: int,
    seed: int,
    store: str,
    tmp_path: Path,
    request: pytest.FixtureRequest,
) -> None:
    """Waiting processes are killed in turn, and a new process waits for the missing keys."""
    if store == "sqlite":
        address = str(tmp_path / "counters.db")
    elif store == "postgres":
        address = request.getfixturevalue("postgres_server").dsn
    else:
        address = request.getfixturevalue("redis_server").address
    makers: dict[str, Callable[[str], CounterStore]] = {
        "sqlite": SqliteCounters,
        "postgres": PostgresCounters,
        "redis": RedisCounters,
    }
    rng = random.Random(seed)
    keys = [f"{seed} {store} {number}" for number in range(count)]
    # The start of processes takes most of the time of the ordinary run.
    crowd, kills = (4, 8) if count > 1000 else (2, 1)
    workers = [await Worker.start(store, address, keys[place::crowd]) for place in range(crowd)]
    try:
        async with (
            Purgatory() as purgatory,
            SharedCounters(purgatory, makers[store](address)) as publisher,
        ):
            order = rng.sample(keys, count)
            for part in range(kills):
                chunk = order[part * count // kills : (part + 1) * count // kills]
                killed = workers[part % crowd]
                middle = len(chunk) // 2
                await asyncio.gather(*(publisher.advance(key, 1) for key in chunk[:middle]))
                await killed.kill()
                await asyncio.gather(*(publisher.advance(key, 1) for key in chunk[middle:]))
                workers[part % crowd] = await Worker.start(store, address, killed.missing)
        async with asyncio.timeout(PATIENCE):
            await asyncio.gather(*(worker.end() for worker in workers))
        assert [key for worker in workers for key in worker.missing] == []
    finally:
        for worker in workers:
            await worker.kill()


class Worker:
    """A process that waits for keys and prints those whose waits have completed."""

    def __init__(self, process: asyncio.subprocess.Process, keys: list[str]) -> None:
        self._process = process
        self._keys = dict.fromkeys(keys)
        self._reading = asyncio.create_task(self._read())

    @classmethod
    async def start(cls, store: str, address: str, keys: list[str]) -> Worker:
        """Start a process; return when it waits for its keys."""
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            Path(__file__).with_name("worker.py"),
            *(store, address, str(len(keys))),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write("".join(f"{key}\n" for key in keys).encode())
        async with asyncio.timeout(PATIENCE):
            assert await process.stdout.readline() == b"ready\n"
        return cls(process, keys)

    async def _read(self) -> None:
        assert self._process.stdout is not None
        async for line in self._process.stdout:
            if line.endswith(b"\n"):
                self._keys.pop(line.decode().rstrip("\n"), None)

    @property
    def missing(self) -> list[str]:
        """The keys that the process has not printed."""
        return list(self._keys)

    async def kill(self) -> None:
        """Kill the process, and read its output."""
        if self._process.returncode is None:
            self._process.kill()
        await self.end()

    async def end(self) -> None:
        """Wait until the process has ended."""
        await self._process.wait()
        await self._reading


# --- latency and clean-up -----------------------------------------------------------------------


async def test_waits_of_a_lost_history_end_soon_after_the_return(
    redis_server: RedisServer,
) -> None:
    """All waits end, although no process publishes."""
    async with (
        Purgatory() as purgatory,
        SharedCounters(purgatory, RedisCounters(redis_server.address)) as shared,
    ):
        waits = [shared.wait_until({f"k{number}": 1}, None) for number in range(1000)]
        await shared.value("k999")
        redis_server.kill()
        await asyncio.to_thread(redis_server.start)
        async with asyncio.timeout(PATIENCE):
            ends = await asyncio.gather(*waits, return_exceptions=True)
        assert {type(end) for end in ends} == {EpochChangedError}
        assert len(purgatory) == 0


async def test_sqlite_removes_the_sockets_of_dead_processes(tmp_path: Path) -> None:
    """A killed process leaves its socket, which the next write removes."""
    path = tmp_path / "counters.db"
    worker = await Worker.start("sqlite", str(path), ["k"])
    folder = path.with_name("counters.db-hints")
    assert len(list(folder.iterdir())) == 1
    await worker.kill()
    store = SqliteCounters(path)
    await store.raise_to({"other": 1})
    await store.aclose()
    assert list(folder.iterdir()) == []
    async with Purgatory() as purgatory, SharedCounters(purgatory, SqliteCounters(path)) as shared:
        await shared.advance("k", 1)
        assert len(list(folder.iterdir())) == 1
    assert list(folder.iterdir()) == []
