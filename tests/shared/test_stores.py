"""Every store of shared counters keeps the contract."""

from __future__ import annotations

import asyncio
import gc
import logging
import ssl
import threading
import uuid
from collections.abc import Callable, Mapping
from contextlib import aclosing
from enum import Enum
from pathlib import Path
from typing import Any
from unittest.mock import AsyncMock

import pytest

from aiowheel import Purgatory
from aiowheel._background import end_task
from aiowheel.errors import StoreUnavailableError
from aiowheel.shared import (
    CounterStore,
    PostgresCounters,
    RedisCounters,
    SharedCounters,
    SqliteCounters,
)
from aiowheel.shared import _postgres as shared_postgres
from aiowheel.shared._backoff import Backoff
from aiowheel.shared._store import deliver_hint
from aiowheel.testing import MemoryCounters, counter_store_checks
from aiowheel.testing._store_checks import StoreCheck
from benchmarks import _postgres

from .conftest import Process, Until
from .servers import PostgresServer, Proxy, RedisServer, holds, redis_that_stops

pytestmark = [pytest.mark.both_loops, pytest.mark.one_build, pytest.mark.realtime]

CHECKS = pytest.mark.parametrize("check", counter_store_checks(), ids=lambda each: each.__name__)


@CHECKS
async def test_counters_in_memory(check: StoreCheck) -> None:
    """The store for tests passes each check."""
    first = MemoryCounters()

    await check(first.beside)


@CHECKS
async def test_sqlite(check: StoreCheck, tmp_path: Path) -> None:
    """The SQLite store passes each check."""

    def connect() -> CounterStore:
        return SqliteCounters(tmp_path / "counters.db")

    await check(connect)


@CHECKS
async def test_postgres(check: StoreCheck, postgres_server: PostgresServer) -> None:
    """The PostgreSQL store passes each check on unlogged tables; the statements are the same."""

    def connect() -> CounterStore:
        return PostgresCounters(postgres_server.dsn)

    await check(connect)


@CHECKS
async def test_redis(check: StoreCheck, steady_redis: RedisServer) -> None:
    """The Redis store passes each check on one server."""

    def connect() -> CounterStore:
        return RedisCounters(steady_redis.address)

    await check(connect)


class HintLog:
    """A listener that keeps the hints."""

    def __init__(self) -> None:
        self.hints: list[set[str]] = []
        self.gaps = 0
        self.values: dict[str, int] = {}

    def hint(self, epoch: str, values: Mapping[str, int]) -> None:
        """Keep the keys of a hint, and its values."""
        self.hints.append(set(values))
        self.values |= values

    def gap(self) -> None:
        """Count a gap."""
        self.gaps += 1


@pytest.fixture(params=["sqlite", "postgres", "redis"])
def connect(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], CounterStore]:
    """Connect to one store as another process does."""
    name = f"hints_{uuid.uuid4().hex}"  # a test runs on two loops, with one server

    def connected() -> CounterStore:
        if request.param == "sqlite":
            return SqliteCounters(tmp_path / "counters.db")
        if request.param == "postgres":
            return PostgresCounters(request.getfixturevalue("postgres_server").dsn, name=name)
        return RedisCounters(request.getfixturevalue("steady_redis").address, name=name)

    return connected


class Topic(str, Enum):  # noqa: UP042 - a StrEnum has its value as its text
    """Keys whose text as a `str` is another one."""

    NEWS = "news"


class Version(int, Enum):
    """Values whose text is no number."""

    FIRST = 7


async def test_members_of_enumerations_are_the_same_keys_and_values_for_every_process(
    connect: Callable[[], CounterStore], process: Process
) -> None:
    """In Redis a value that is no number would stop every read."""
    async with process(connect()) as (_, publisher), process(connect()) as (_, other):
        waiting = other.wait_until({Topic.NEWS: Version.FIRST}, 60)
        token = await publisher.advance(Topic.NEWS, Version.FIRST)

        assert token == f"{publisher.epoch}:7"
        assert await waiting
        assert await other.value("news") == await publisher.value(Topic.NEWS) == 7
        await publisher.forget(Topic.NEWS)
        async with process(connect()) as (_, third):
            assert await third.value("news") is None


async def test_publishes_of_other_keys_cost_a_process_one_hint_a_batch(
    connect: Callable[[], CounterStore], process: Process, until: Until
) -> None:
    """A hint of keys that nobody here waits for reads nothing and checks no operation."""
    log = HintLog()
    async with (
        aclosing(connect()) as logged,
        process(connect()) as (_, publisher),
        process(connect()) as (purgatory, other),
    ):
        await logged.open(log)
        waits = [other.wait_until({f"own-{number}": 1}, 60) for number in range(2_500)]
        await asyncio.gather(*(other.value(f"own-{number}") for number in range(2_500)))
        before, checks = other.statistics(), purgatory.statistics().checks
        log.hints.clear()

        for batch in range(20):
            keys = (f"other-{batch}-{number}" for number in range(50))
            await asyncio.gather(*(publisher.advance(key, 1) for key in keys))
        await until(lambda: other.statistics().hints >= before.hints + 1_000)
        await until(lambda: len(set[str]().union(*log.hints)) == 1_000)

        # SQLite repeats hints that arrive while it reads the file, four times a second at most.
        assert len(log.hints) <= 2 * publisher.statistics().writes
        assert log.gaps == 0
        assert other.statistics()._replace(hints=0) == before._replace(hints=0)
        assert purgatory.statistics().checks == checks
        assert not any(wait.done() for wait in waits)
        await publisher.advance("own-7", 1)
        assert await waits[7]
        for wait in waits:
            wait.cancel()


MALFORMED = [
    pytest.param(text, id=name)
    for name, text in {
        "nothing": "",
        "no JSON": "{",
        "deep JSON": "[" * 7_000,
        "no object": "[]",
        "a text": '{"key": "7"}',
        "a bool": '{"key": true}',
        "a fraction": '{"key": 7.5}',
        "infinity": '{"key": 1e999}',
        "no number": '{"key": NaN}',
        "a negative number": '{"key": -1}',
        "64 bits": '{"key": 9223372036854775808}',
        "many digits": f'{{"key": {"9" * 5_000}}}',
        "an empty key": '{"": 7}',
        "half a surrogate pair": '{"\\ud800": 7}',
    }.items()
]


@pytest.mark.parametrize("text", MALFORMED)
def test_a_malformed_hint_is_a_gap(text: str) -> None:
    """Others than aiowheel may write to the channel; a read makes up for what the hint was."""
    log = HintLog()

    deliver_hint(log, "epoch", text)

    assert (log.hints, log.gaps) == ([], 1)


def test_the_greatest_value_is_legal_in_a_hint() -> None:
    """It is the greatest value that a store takes."""
    log = HintLog()

    deliver_hint(log, "epoch", '{"key": 9223372036854775807, "other": 0}')

    assert (log.values, log.gaps) == ({"key": 2**63 - 1, "other": 0}, 0)


async def test_a_malformed_notification_of_postgres_ends_nothing(
    postgres_server: PostgresServer, process: Process
) -> None:
    """A malformed value would otherwise stop all reads after the next gap."""
    asyncpg: Any = pytest.importorskip("asyncpg")
    connection = await asyncpg.connect(postgres_server.dsn)
    name = f"hints_{uuid.uuid4().hex}"  # a test runs on two loops, with one server
    store = PostgresCounters(postgres_server.dsn, name=name)
    try:
        async with process(store) as (_, shared):
            await shared.advance("key", 1)
            assert await shared.value("key") == 1
            gaps = shared.statistics().gaps
            for text in (f'{shared.epoch} {{"key": 1e999}}', "", "other {}"):
                await connection.execute("SELECT pg_notify($1, $2)", name, text)
            await shared.advance("key", 2)  # its hint comes after the others

            assert await shared.wait_until({"key": 2}, 60)
            assert await shared.value("other") is None
            assert shared.statistics().gaps == gaps + 3
    finally:
        await connection.close()


async def test_a_malformed_message_of_redis_ends_nothing(
    steady_redis: RedisServer, process: Process, until: Until, caplog: pytest.LogCaptureFixture
) -> None:
    """The connection stays as well."""
    redis: Any = pytest.importorskip("redis.asyncio")
    client = redis.Redis.from_url(steady_redis.address)
    name = f"hints_{uuid.uuid4().hex}"  # as above
    try:
        async with process(RedisCounters(steady_redis.address, name=name)) as (_, shared):
            await shared.advance("key", 1)
            assert await shared.value("key") == 1
            messages = ["", "x", "x y {}", "x 1", f"x {'9' * 5_000} {{}}", b"\xff"]
            messages.append(f'{shared.epoch} 2 {{"key": 1e999}}')
            gaps = shared.statistics().gaps
            for message in messages:
                assert await client.publish(f"{{{name}}}:hints", message) == 1
            await until(lambda: shared.statistics().gaps >= gaps + len(messages))
            await shared.advance("key", 2)

            assert await shared.wait_until({"key": 2}, 60)
            assert await shared.value("other") is None
    finally:
        await client.aclose()
    assert "shared_listen_failed" not in caplog.text


def resources() -> tuple[int, set[str]]:
    """Return the number of open descriptors, and the names of the threads of SQLite stores."""
    names = {each.name for each in threading.enumerate() if "sqlite" in each.name}
    return len(list(Path("/proc/self/fd").iterdir())), names


@pytest.mark.linux
@pytest.mark.parametrize("turns", range(1, 12))
async def test_a_cancelled_close_leaves_nothing_open(
    connect: Callable[[], CounterStore], until: Until, turns: int
) -> None:
    """Each part of the counters is closed, at whichever step the call is cancelled."""

    async def use(turns: int) -> None:
        async with Purgatory("cancelled") as purgatory:
            counters = SharedCounters(purgatory, connect())
            await counters.__aenter__()
            await asyncio.gather(counters.advance("a", 1), counters.value("b"))
            closing = asyncio.create_task(counters.aclose())
            for _ in range(turns):
                await asyncio.sleep(0)
            closing.cancel()
            await asyncio.wait([closing])

    await use(1_000)  # imports and pools
    gc.collect()
    before, tasks = resources(), asyncio.all_tasks()
    await use(turns)

    await until(lambda: resources() <= before and asyncio.all_tasks() <= tasks)


async def test_a_cancelled_first_call_leaves_no_half_made_connection(
    postgres_server: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next call connects again and creates the tables."""
    store = PostgresCounters(postgres_server.dsn, name="cancelled")
    connected: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    async def hang(connection: Any) -> None:
        connected.set_result(connection)
        await asyncio.Event().wait()

    try:
        with monkeypatch.context() as patched:
            patched.setattr(store._writing, "_prepare", hang)
            first = asyncio.create_task(store.raise_to({"key": 1}))
            connection = await connected
            first.cancel()
            await asyncio.wait([first])

        assert connection.is_closed()
        epoch = await store.raise_to({"key": 2})
        assert await store.read(["key"]) == (epoch, {"key": 2})
    finally:
        await store.aclose()


async def test_an_unexpected_error_while_it_listens_again_is_logged(
    postgres_server: PostgresServer,
    until: Until,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The event has the name and the text of the error."""
    subscribe = AsyncMock(side_effect=OSError(5, "no network"))
    store = PostgresCounters(postgres_server.dsn, name="listens")
    try:
        await store.open(HintLog())
        monkeypatch.setattr(store, "_subscribe", subscribe)
        store._lost.set()
        await until(lambda: "shared_listen_failed" in caplog.text)
    finally:
        await store.aclose()

    assert "OSError('[Errno 5] no network')" in caplog.text


async def outage_of(
    store: CounterStore, proxy: Proxy, server: int, until: Until, caplog: pytest.LogCaptureFixture
) -> list[str]:
    """Cut a store's connections until it logs that; return the names of all its events."""
    caplog.set_level(logging.INFO, "aiowheel")
    try:
        hints = HintLog()
        await store.open(hints)
        proxy.reset()  # the next attempt finds the server
        await until(lambda: hints.gaps > 0)
        proxy.lead_to(1)  # nobody listens there
        proxy.reset()
        await until(lambda: "shared_store_lost" in caplog.text)
        proxy.lead_to(server)
        await until(lambda: "shared_store_found" in caplog.text)
    finally:
        await store.aclose()
    return [message.split()[0] for message in caplog.messages]


async def test_an_outage_of_redis_is_logged_once(
    steady_redis: RedisServer, until: Until, caplog: pytest.LogCaptureFixture
) -> None:
    """A process that only waits makes no call that could fail."""
    async with Proxy(steady_redis.port) as proxy:
        store = RedisCounters(f"redis://127.0.0.1:{proxy.port}", name="outage")
        events = await outage_of(store, proxy, steady_redis.port, until, caplog)

    assert events == ["aiowheel.shared_store_lost", "aiowheel.shared_store_found"]
    assert "store='redis'" in caplog.text
    assert "StoreUnavailableError" in caplog.text


async def test_an_outage_of_postgres_is_logged_once(
    postgres_server: PostgresServer, until: Until, caplog: pytest.LogCaptureFixture
) -> None:
    """As for Redis."""
    async with Proxy(postgres_server.port) as proxy:
        dsn = postgres_server.dsn.replace(str(postgres_server.port), str(proxy.port))
        store = PostgresCounters(dsn, name="outage")
        events = await outage_of(store, proxy, postgres_server.port, until, caplog)

    assert events == ["aiowheel.shared_store_lost", "aiowheel.shared_store_found"]
    assert "store='postgres'" in caplog.text


async def test_a_subscription_to_redis_ends_with_a_task_that_waits_to_listen_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The connection failed, so that the task waits before the next attempt."""
    pytest.importorskip("redis")
    subscription, waits = AsyncMock(), asyncio.Event()
    store = RedisCounters("redis://127.0.0.1")
    store._first_pubsub = subscription
    monkeypatch.setattr(store, "_listen", AsyncMock(side_effect=StoreUnavailableError("lost")))

    def pause(_: Backoff) -> float:
        waits.set()
        return 30.0

    monkeypatch.setattr(Backoff, "next", pause)
    task = asyncio.create_task(store._watch(HintLog()))
    await waits.wait()
    await end_task(task)

    subscription.aclose.assert_awaited_once()
    await store.aclose()


@pytest.mark.parametrize("limit", ["statement_timeout", "lock_timeout"])
async def test_a_statement_that_the_server_ends_is_repeated(
    postgres_server: PostgresServer, limit: str
) -> None:
    """A transaction of the application holds the counter for longer than the server's limit."""
    asyncpg: Any = pytest.importorskip("asyncpg")
    separator = "&" if "?" in postgres_server.dsn else "?"
    store = PostgresCounters(f"{postgres_server.dsn}{separator}{limit}=1000", name="limited")
    connection = await asyncpg.connect(postgres_server.dsn)
    try:
        await store.raise_to({"key": 1})
        async with connection.transaction():
            await store.advance_in(connection, "key", 2)
            with pytest.raises(StoreUnavailableError):
                await store.raise_to({"key": 3})
        epoch = await store.raise_to({"key": 3})
        assert await store.read(["key"]) == (epoch, {"key": 3})
    finally:
        await store.aclose()
        await connection.close()


async def test_writes_see_what_was_committed_while_they_waited(
    postgres_server: PostgresServer,
) -> None:
    """The database may have a stricter default, with which waiting transactions fail."""
    separator = "&" if "?" in postgres_server.dsn else "?"
    strict = f"{separator}default_transaction_isolation=serializable"
    store = PostgresCounters(postgres_server.dsn + strict, name="isolation")

    async def isolation(connection: Any) -> object:
        return await connection.fetchval("SHOW transaction_isolation")

    assert await store.write(isolation) == "read committed"
    await store.aclose()


@pytest.mark.slow
async def test_of_several_hosts_of_postgres_the_primary_is_used(
    postgres_server: PostgresServer,
) -> None:
    """A standby that comes first in the address, or answers first after an outage, is left out."""
    user, _, address = postgres_server.dsn.rpartition("@")
    with _postgres.postgres_server(is_standby=True) as standby:
        hosts = f"{standby.rpartition('@')[2].partition('/')[0]},{address}"
        store = PostgresCounters(f"{user}@{hosts}", name="hosts")
        await store.raise_to({"key": 1})

        assert (await store.read(["key"]))[1] == {"key": 1}
        await store.aclose()


async def test_a_refused_certificate_is_no_malformed_address(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Python's error of a certificate is a `ValueError` as well; it may be renewed meanwhile."""
    pytest.importorskip("asyncpg")

    async def refuse(*_: object, **__: object) -> None:
        raise ssl.SSLCertVerificationError("certificate verify failed")

    monkeypatch.setattr("asyncpg.connect", refuse)
    store = PostgresCounters("postgresql://db.example/app")

    with pytest.raises(StoreUnavailableError, match="certificate verify failed"):
        await store.raise_to({"key": 1})
    await store.aclose()


async def test_a_missing_certificate_file_is_named_as_a_cause(tmp_path: Path) -> None:
    """The error of the driver names no file, and is the same for a missing Unix socket."""
    pytest.importorskip("asyncpg")
    missing = tmp_path / "root.crt"
    store = PostgresCounters(f"postgresql://db.example/app?sslmode=require&sslrootcert={missing}")

    with pytest.raises(StoreUnavailableError, match="Unix socket, or a certificate or key file"):
        await store.raise_to({"key": 1})
    await store.aclose()


INSIDE = "ERR Error running script (call to f_0): @user_script:9: @user_script: 9:"


@pytest.mark.parametrize(
    "refusal",
    [
        "NOREPLICAS Not enough good replicas to write.",
        "MISCONF Errors writing to the AOF file: No space left on device",
        "BUSY Redis is busy running a script.",
        # Redis 6 reports the error of a command inside that of the script.
        f"{INSIDE} -OOM command not allowed when used memory > 'maxmemory'.",
        f"{INSIDE} -READONLY You can't write against a read only replica.",
    ],
)
async def test_a_redis_that_accepts_no_writes_at_present_is_unavailable(
    steady_redis: RedisServer, refusal: str
) -> None:
    """The caller repeats the call; any other error of the server is final."""
    store = RedisCounters(steady_redis.address)
    response_error: type[Exception] = pytest.importorskip("redis").ResponseError
    try:
        fail = store.script("return redis.error_reply(ARGV[3])")
        with pytest.raises(StoreUnavailableError, match=refusal.removeprefix("ERR ")[:20]):
            await fail(refusal)
        with pytest.raises(response_error, match="an unknown error"):
            await fail("ERR an unknown error")
    finally:
        await store.aclose()


@pytest.mark.parametrize("kind", ["ClusterError", "AttributeError"])
async def test_a_cluster_that_moves_the_counters_is_unavailable(kind: str) -> None:
    """While the slot moves, redis-py follows redirections in vain, and closes used connections."""
    exceptions: Any = pytest.importorskip("redis", minversion="8").exceptions
    errors: dict[str, Exception] = {
        "ClusterError": exceptions.ClusterError("TTL exhausted."),
        "AttributeError": AttributeError("'NoneType' object has no attribute 'writelines'"),
    }
    store = RedisCounters("redis+cluster://127.0.0.1")
    try:
        with pytest.raises(StoreUnavailableError, match=str(errors[kind])):
            async with store._answers():
                raise errors[kind]
        with pytest.raises(AttributeError, match="of another kind"):
            async with store._answers():
                raise AttributeError("of another kind")
    finally:
        await store.aclose()


async def test_many_calls_at_once_share_a_few_connections_to_redis(
    steady_redis: RedisServer,
) -> None:
    """redis-py would open a connection for each call, and refuses the call after a hundred."""
    async with aclosing(RedisCounters(steady_redis.address, name="crowd")) as store:
        epoch = await store.raise_to({"key": 1})
        answers = await asyncio.gather(*(store.read(["key"]) for _ in range(300)))
        assert answers == [(epoch, {"key": 1})] * 300

        connections = await store._client.client_list()
        assert len(connections) <= 10


async def test_a_write_to_redis_that_was_cancelled_leaves_no_answer_behind(
    steady_redis: RedisServer,
) -> None:
    """Whatever the write had done so far, the next call gets its own answer."""
    async with aclosing(RedisCounters(steady_redis.address, name="cancelled")) as store:
        add = store.script("return redis.call('INCRBY', '{cancelled}:' .. ARGV[3], ARGV[4])")
        before: int = await add("own", 0)  # the test runs on two loops, with one server
        for turns in range(20):
            write = asyncio.ensure_future(add("other", 1000))
            for _ in range(turns):
                await asyncio.sleep(0)
            write.cancel()
            await asyncio.gather(write, return_exceptions=True)
            assert await add("own", 1) == before + turns + 1


async def test_writes_to_redis_at_the_same_time_get_their_own_answers(
    steady_redis: RedisServer,
) -> None:
    """A write that finds the connection of writes busy takes another one."""
    async with aclosing(RedisCounters(steady_redis.address, name="parallel")) as store:
        echo = store.script("return tonumber(ARGV[3])")
        assert await asyncio.gather(*map(echo, range(50))) == list(range(50))


async def test_redis_is_written_after_it_has_closed_an_idle_connection(
    steady_redis: RedisServer,
) -> None:
    """Many servers do so after some minutes."""
    async with (
        aclosing(RedisCounters(steady_redis.address, name="idle")) as store,
        aclosing(RedisCounters(steady_redis.address, name="other")) as other,
    ):
        await store.raise_to({"key": 1})
        await other._client.client_kill_filter(_type="normal", skipme=True)
        line: Any = store._line
        while not line._connection._reader.at_eof():  # noqa: ASYNC110 - it sets no event
            await asyncio.sleep(0)
        await store.raise_to({"key": 2})
        assert (await store.read(["key"]))[1] == {"key": 2}


async def test_tasks_that_clean_up_at_the_end_of_a_program_can_use_the_counters(
    connect: Callable[[], CounterStore], process: Process
) -> None:
    """`asyncio.run` cancels all tasks at its end, those of the counters as well."""
    async with process(connect()) as (_, publisher), process(connect()) as (_, other):
        waiting = other.wait_until({"doc": 2}, 30)
        await other.value("doc")
        writer: Any = publisher._writer
        publish = writer.raise_to("doc", 1)
        for _ in range(2):  # the second one meets a write that is under way, and idle listeners
            cancelled = asyncio.all_tasks() - {asyncio.current_task()}
            for task in cancelled:
                task.cancel()
            await asyncio.wait(cancelled)

        assert await publish
        await publisher.advance("doc", 2)
        assert await waiting
        assert await other.value("new") is None


async def test_calls_that_wait_for_a_silent_postgres_fail_together(
    postgres_server: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of them waits for the answer, and the others do not wait for it again."""
    asyncpg: Any = pytest.importorskip("asyncpg")
    user = await asyncpg.connect(postgres_server.dsn)
    async with aclosing(PostgresCounters(postgres_server.dsn, name="silent")) as store:
        assert (await store.read(["key"]))[1] == {}
        async with user.transaction():
            await user.execute("LOCK TABLE silent_counters")
            calls = [store.read(["key"]) for _ in range(10)]
            with monkeypatch.context() as patched:
                patched.setattr(shared_postgres, "_ANSWER", 0.1)
                answers = await asyncio.gather(*calls, return_exceptions=True)

        assert all(isinstance(each, StoreUnavailableError) for each in answers)
        assert store._listening._silences == 1
        assert (await store.read(["key"]))[1] == {}
    await user.close()


async def test_redis_is_written_after_its_connections_were_reset(
    process: Process, steady_redis: RedisServer
) -> None:
    """The write that meets a lost connection is repeated on a new one, on every event loop."""
    async with Proxy(steady_redis.port) as proxy:
        store = RedisCounters(f"redis://127.0.0.1:{proxy.port}", name="reset")
        async with process(store) as (_, shared):
            await shared.advance("key", 1)
            line: Any = store._line
            connection = line._connection
            proxy.reset()
            while not connection._writer.is_closing():  # noqa: ASYNC110 - it sets no event
                await asyncio.sleep(0)
            token = await shared.advance("key", 2)
            assert token.endswith(":2")


async def test_a_redis_that_became_a_replica_is_left_for_the_new_master(
    process: Process, redis_server: RedisServer
) -> None:
    """The address leads to the new master, and the open connections to the old one."""
    with redis_that_stops("--replicaof", "127.0.0.1", str(redis_server.port)) as other:
        await holds(lambda: "master_link_status:up" in other.ask("INFO", "replication"))
        async with Proxy(redis_server.port) as proxy:
            store = RedisCounters(f"redis://127.0.0.1:{proxy.port}", name="moved")
            async with process(store) as (_, shared):
                await shared.advance("key", 1)
                await asyncio.gather(*(shared.forget(f"other-{number}") for number in range(4)))
                other.ask("REPLICAOF", "NO", "ONE")
                redis_server.ask("REPLICAOF", "127.0.0.1", str(other.port))
                proxy.lead_to(other.port)
                await shared.advance("key", 2)
            assert other.ask("HGET", "{moved}:counters", "=key") == "2"


async def test_calls_that_wait_while_the_store_closes_open_no_connection(
    redis_server: RedisServer,
) -> None:
    """They raise an error, and nothing would close a connection of theirs."""
    async with aclosing(RedisCounters(redis_server.address)) as store:
        await store.raise_to({"key": 1})
        calls = [asyncio.ensure_future(store.now_ms()) for _ in range(40)]
        await asyncio.sleep(0)  # each of them has begun
    answers = await asyncio.gather(*calls, return_exceptions=True)
    assert all(isinstance(each, StoreUnavailableError) for each in answers[4:])
    assert redis_server.ask("CLIENT", "LIST").count(" addr=") == 1  # that of this question
