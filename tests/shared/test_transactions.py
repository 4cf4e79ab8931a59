"""`advance_in`: a counter in a transaction of the caller; stores with a client of the caller."""

from __future__ import annotations

import asyncio
import sqlite3
import traceback
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import asyncpg
import pytest
import redis.asyncio

from aiowheel.durable import PostgresStore
from aiowheel.errors import AiowheelError
from aiowheel.shared import (
    CounterStore,
    PostgresCounters,
    RedisCounters,
    SqliteCounters,
    StoreUnavailableError,
    _redis,
    _sqlite,
)
from aiowheel.testing import counter_store_checks
from aiowheel.testing._store_checks import StoreCheck
from benchmarks._ports import free_port

from .conftest import Process, Until
from .servers import PostgresServer, RedisServer

pytestmark = [pytest.mark.both_loops, pytest.mark.one_build, pytest.mark.realtime]


async def test_sqlite_transaction(process: Process, tmp_path: Path) -> None:
    """A rolled back transaction changes nothing; a committed one is a publish."""
    path = tmp_path / "app.db"
    store = SqliteCounters(path)
    async with process(store) as (_, shared):
        waiting = shared.wait_until({"doc": 2}, 60)
        with closing(sqlite3.connect(path)) as own:
            store.advance_in(own, "doc", 5)
            own.rollback()
            assert await shared.value("doc") is None
            store.advance_in(own, "doc", 2)
            own.commit()
        assert await waiting
        assert await shared.value("doc") == 2
        with pytest.raises(ValueError, match="value must be from 0"):
            store.advance_in(own, "doc", -1)


async def test_sqlite_without_a_transaction_is_refused(process: Process, tmp_path: Path) -> None:
    """Between two statements in autocommit mode, a wait would miss the value."""
    path = tmp_path / "app.db"
    store = SqliteCounters(path)
    async with process(store) as (_, shared):
        with closing(sqlite3.connect(path, isolation_level=None)) as own:
            with pytest.raises(ValueError, match="must be in a transaction, got one in autocommit"):
                store.advance_in(own, "doc", 1)
            own.execute("BEGIN")
            store.advance_in(own, "doc", 2)
            own.execute("COMMIT")
        assert await shared.wait_until({"doc": 2}, 60)


async def test_sqlite_takes_a_connection_that_makes_rows_of_its_own(
    process: Process, tmp_path: Path
) -> None:
    """As of the documentation of the module `sqlite3`, with dicts."""
    path = tmp_path / "app.db"
    store = SqliteCounters(path)
    async with process(store) as (_, shared):
        with closing(sqlite3.connect(path)) as own:
            own.row_factory = lambda cursor, row: dict(
                zip([column[0] for column in cursor.description], row, strict=True)
            )
            with own:
                store.advance_in(own, "doc", 2)
            kinds = own.execute("SELECT typeof(rev) AS kind FROM aiowheel_counters").fetchall()
        assert kinds == [{"kind": "integer"}]
        assert await shared.wait_until({"doc": 2}, 60)


async def test_postgres_transaction(process: Process, postgres_server: PostgresServer) -> None:
    """A rolled back transaction changes nothing; a committed one is a publish."""
    store = PostgresCounters(postgres_server.dsn, name="transactions")
    async with process(store) as (_, shared):
        waiting = shared.wait_until({"doc": 2}, 60)
        own = await asyncpg.connect(postgres_server.dsn)
        try:
            with pytest.raises(ZeroDivisionError):
                async with own.transaction():
                    await store.advance_in(own, "doc", 5)
                    raise ZeroDivisionError
            assert await shared.value("doc") is None
            async with own.transaction():
                await store.advance_in(own, "doc", 2)
            assert await waiting
            assert await shared.value("doc") == 2
            with pytest.raises(TypeError, match="key must be a str"):
                await store.advance_in(own, 7, 1)  # type: ignore[arg-type]
            for change in (
                store.advance_in(own, "doc", 3),
                store.forget_in(own, ["doc"]),
                store.begin_anew_in(own),
            ):  # each would be a transaction of its own, with nothing to roll back
                with pytest.raises(ValueError, match="must be in a transaction, got one outside"):
                    await change
            assert await shared.value("doc") == 2
        finally:
            await own.execute("DROP TABLE transactions_counters, transactions_epoch")
            await own.close()


async def test_redis_transaction(process: Process, redis_server: RedisServer) -> None:
    """The counter is raised together with the other commands of a MULTI."""
    store = RedisCounters(redis_server.address)
    async with (
        process(store) as (_, shared),
        redis.asyncio.Redis.from_url(redis_server.address) as own,
    ):
        waiting = shared.wait_until({"doc": 2}, 60)
        async with own.pipeline(transaction=True) as pipeline:
            pipeline.set("text", "new")
            store.advance_in(pipeline, "doc", 2)
            assert await shared.value("doc") is None
            await pipeline.execute()
        assert await waiting


@pytest.mark.parametrize("decode", [False, True], ids=["bytes", "text"])
@pytest.mark.parametrize(
    "check", counter_store_checks()[:6], ids=lambda each: getattr(each, "__name__", "")
)
async def test_a_redis_client_of_the_caller(
    check: StoreCheck,
    steady_redis: RedisServer,
    decode: bool,  # noqa: FBT001
) -> None:
    """The client may decode answers or not, and the store leaves it open."""
    async with redis.asyncio.Redis.from_url(
        steady_redis.address, decode_responses=decode
    ) as client:

        def connect() -> CounterStore:
            return RedisCounters(client, name="callers")

        await check(connect)
        assert await client.ping()


BAD: Any = 3


class BytesPath:
    """A path that is not text."""

    def __fspath__(self) -> Any:
        """Return bytes."""
        return b"a.db"


@pytest.mark.parametrize(
    ("make", "error", "text"),
    [
        (lambda: SqliteCounters(BAD), TypeError, "path must be a path, got 3"),
        (lambda: SqliteCounters(BytesPath()), TypeError, "path must be a path, got <"),
        (lambda: SqliteCounters(""), ValueError, "path must be the path of a file, got ''"),
        (lambda: SqliteCounters(":memory:"), ValueError, "file, got ':memory:'"),
        (lambda: PostgresCounters(BAD), TypeError, "dsn must be a str, got 3"),
        (lambda: PostgresCounters("", name="A"), ValueError, "name must be 1 to 40"),
        (lambda: PostgresCounters("", name="a'b"), ValueError, "name must be 1 to 40"),
        (lambda: PostgresCounters("", name=""), ValueError, "name must be 1 to 40"),
        (lambda: PostgresCounters("", logged=BAD), TypeError, "logged must be True or False"),
        (lambda: RedisCounters(BAD), TypeError, "server must be an address or a client"),
        (lambda: RedisCounters("http://a"), ValueError, "server must be redis://"),
        (lambda: RedisCounters("redis+sentinel://a"), ValueError, "must end with /master"),
        (lambda: RedisCounters("redis+cluster://"), ValueError, "must name hosts and ports"),
        (lambda: RedisCounters("redis+cluster://a:b"), ValueError, "must name hosts and ports"),
        (lambda: RedisCounters("redis://a", name=BAD), TypeError, "name must be a str, got 3"),
    ],
)
def test_a_bad_argument_is_named(make: Any, error: type[Exception], text: str) -> None:
    """The constructor raises an error with the argument."""
    with pytest.raises(error, match=text):
        make()


def test_a_redis_py_without_hints_of_a_cluster_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """redis-py 6 and 7 can only be used with other servers."""
    monkeypatch.delattr(redis.asyncio.RedisCluster, "pubsub", raising=False)
    monkeypatch.setattr(redis, "__version__", "7.4.0")
    with pytest.raises(AiowheelError, match=r"^Redis Cluster needs redis-py 8 or later, got 7.4.0"):
        RedisCounters("redis+cluster://a")


@pytest.mark.parametrize(
    "address",
    [
        *("rediss+cluster://a:hidden@b", "a:hidden@b", "redis+sentinel://a:hidden@b"),
        *("redis+cluster://a:hidden@b:c", "redis+cluster://a:hidden@", "redis+cluster://a:hidden"),
        *(
            "redis://a:hidden/x@b:1/0",
            "redis://a:hidden#x@b",
            "redis://a:hidden[x@b",
            "unix://hidden[",
        ),
        *("redis+cluster://a:hidden[x@b", "redis+sentinel://a:hidden[x@b/main"),
        *("redis://a:12/hidden@b", "redis://a:hidden?x@b", "redis://hidden:12#x@b"),
        *("redis+cluster://a:hidden/x@b", "redis+sentinel://a:hidden#x@b/main"),
    ],
)
def test_no_error_repeats_the_password(address: str) -> None:
    """The error of a malformed address may be logged."""
    with pytest.raises(ValueError, match="server must") as caught:
        RedisCounters(address)

    shown = "".join(traceback.format_exception(caught.value, limit=0))
    assert "hidden" not in shown


@pytest.mark.parametrize("kind", [PostgresCounters, PostgresStore])
@pytest.mark.parametrize(
    ("address", "shown"),
    [
        ("postgresql+asyncpg://user:hidden@host/app", "postgresql+asyncpg://..."),
        ("mysql://user:hidden@host/app", "mysql://..."),
        ("host=localhost password=hidden", "no scheme"),
        ("localhost", "no scheme"),
    ],
)
def test_an_address_of_something_else_is_refused_at_once(
    kind: Callable[[str], object], address: str, shown: str
) -> None:
    """A later `StoreUnavailableError` would say that a repeat may help."""
    with pytest.raises(ValueError, match=r"^dsn must be postgresql://\.\.\., got ") as caught:
        kind(address)

    assert str(caught.value).endswith(f"got {shown}")


def test_the_account_in_an_address_is_decoded() -> None:
    """As redis-py decodes that of `redis://`: a password may have any characters."""
    sentinel: Any = RedisCounters("redis+sentinel://us%40er:p%2Fs%23w@a:1/main")._client
    options = sentinel.connection_pool.connection_kwargs
    assert (options["username"], options["password"]) == ("us@er", "p/s#w")

    if int(redis.__version__.partition(".")[0]) < 8:
        pytest.skip("the part of a Redis Cluster needs redis-py 8")
    cluster: Any = RedisCounters("redis+cluster://us%40er:p%2Fs%23w@a:1")._client
    options = cluster.connection_kwargs
    assert (options["username"], options["password"]) == ("us@er", "p/s#w")


async def test_a_redis_that_refuses_is_reported_with_the_reason(
    process: Process, steady_redis: RedisServer
) -> None:
    """For example a wrong password."""
    server = f"redis://nobody:wrong@127.0.0.1:{steady_redis.port}/0"
    with pytest.raises(StoreUnavailableError, match=r"^Redis: .*username-password pair"):
        async with process(RedisCounters(server)):
            pass


async def test_sentinels_that_do_not_answer_are_reported_without_the_password(
    process: Process,
) -> None:
    """The error of redis-py lists all settings of its clients, before 7.4 with the password."""
    server = f"redis+sentinel://user:hidden@127.0.0.1:{free_port()}/main"
    text = r"No master found for 'main' \(.*ConnectionError.*\)$"
    with pytest.raises(StoreUnavailableError, match=text) as caught:
        async with process(RedisCounters(server)):
            pass

    shown = "".join(traceback.format_exception(caught.value, limit=0))
    assert "password" not in shown
    assert "hidden" not in shown


async def test_a_redis_that_never_answers_is_reported_with_the_reason(
    process: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For example another service on the port, or a firewall."""
    monkeypatch.setattr(_redis, "_ANSWER", 0.1)
    loop = asyncio.get_running_loop()
    silent = await loop.create_server(asyncio.Protocol, "127.0.0.1", 0)
    port = silent.sockets[0].getsockname()[1]
    async with silent:
        with pytest.raises(StoreUnavailableError, match=r"^Redis: no answer within 0.1 seconds$"):
            async with process(RedisCounters(f"redis://127.0.0.1:{port}")):
                pass


async def test_a_long_path_works(process: Process, tmp_path: Path) -> None:
    """The store works although the path is too long for the address of a socket."""
    folder = tmp_path / ("x" * 120)
    folder.mkdir()
    async with (
        process(SqliteCounters(folder / "counters.db")) as (_, here),
        process(SqliteCounters(folder / "counters.db")) as (_, there),
    ):
        waiting = there.wait_until({"doc": 1}, 60)
        await here.advance("doc", 1)
        assert await waiting
    assert list((folder / "counters.db-hints").iterdir()) == []


async def test_tables_that_are_dropped_are_a_lost_history(
    process: Process, postgres_server: PostgresServer
) -> None:
    """The store creates the tables again, with a new epoch."""
    store = PostgresCounters(postgres_server.dsn, name="dropped")
    async with process(store) as (_, shared):
        before = await shared.advance("doc", 1)
        own = await asyncpg.connect(postgres_server.dsn)
        await own.execute("DROP TABLE dropped_counters, dropped_epoch")
        await own.close()
        after = await shared.advance("doc", 1)
        assert before != after


async def test_a_new_redis_gives_no_gap(
    process: Process,
    redis_server: RedisServer,
    until: Until,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The first process creates the epoch before it counts the hints."""
    monkeypatch.setattr(_redis, "_HEARTBEAT", 0.01)
    reads = 0
    read_last = RedisCounters._read_last

    async def counted(store: RedisCounters) -> tuple[str, int]:
        nonlocal reads
        reads += 1
        return await read_last(store)

    monkeypatch.setattr(RedisCounters, "_read_last", counted)
    async with process(RedisCounters(redis_server.address)) as (_, shared):
        await until(lambda: reads > 3)
        await shared.advance("doc", 1)
        assert shared.statistics().gaps == 0


async def test_a_change_that_could_not_be_read_is_read_later(
    process: Process, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The change is read later after any exception."""
    path = tmp_path / "counters.db"
    failures: list[Exception] = [RuntimeError("odd"), sqlite3.OperationalError("disk I/O error")]
    changes = _sqlite._changes

    def failing(*arguments: Any) -> object:
        if failures:
            raise failures.pop()
        return changes(*arguments)

    async with process(SqliteCounters(path)) as (_, shared):
        waiting = shared.wait_until({"doc": 1}, 60)
        await shared.value("doc")
        monkeypatch.setattr(_sqlite, "_changes", failing)
        other = SqliteCounters(path)
        await other.add_one(["doc"])  # its message has no value, so the file is read
        await other.aclose()
        assert await waiting
        assert failures == []
