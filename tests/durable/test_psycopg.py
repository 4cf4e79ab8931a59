"""Transactions of psycopg, with and without asyncio: `schedule_in`, `ack_in` and `advance_in`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import timedelta
from typing import Any, TypeAlias

import pytest

from aiowheel import Purgatory
from aiowheel.durable import (
    BadRowError,
    DurableTimers,
    Fire,
    PostgresStore,
    Retry,
    StaleFireError,
)
from aiowheel.shared import PostgresCounters, SharedCounters

from .links import until

psycopg: Any = pytest.importorskip("psycopg", reason="psycopg is not installed: group `test`")

pytestmark = [pytest.mark.one_build, pytest.mark.realtime]

NOW = timedelta(0)
FAR = timedelta(days=1)

#: Opens a connection, whose block is one transaction; an error rolls it back.
Transactions: TypeAlias = Callable[[str], AbstractAsyncContextManager[Any]]


@asynccontextmanager
async def in_threads(database: str) -> AsyncGenerator[Any]:
    """Commit with a connection without asyncio, as Django has it in `atomic`."""
    with psycopg.connect(database) as connection:
        yield connection


@asynccontextmanager
async def in_a_block(database: str) -> AsyncGenerator[Any]:
    """Begin a transaction on a connection that commits each statement otherwise."""
    with psycopg.connect(database, autocommit=True) as connection, connection.transaction():
        yield connection


@asynccontextmanager
async def in_asyncio(database: str) -> AsyncGenerator[Any]:
    """Commit with a connection of asyncio, whose rows are dicts."""
    rows = psycopg.rows.dict_row
    async with await psycopg.AsyncConnection.connect(database, row_factory=rows) as connection:
        yield connection


async def execute(connection: Any, *statement: Any) -> None:
    """Execute a statement of the user."""
    done = connection.execute(*statement)
    if isinstance(connection, psycopg.AsyncConnection):
        await done


@pytest.fixture(params=[in_threads, in_a_block, in_asyncio], ids=lambda kind: kind.__name__)
def transaction(request: pytest.FixtureRequest) -> Transactions:
    """Return a way to open a transaction."""
    kind: Transactions = request.param
    return kind


async def test_effects_of_handlers_happen_exactly_once(
    database: str, transaction: Transactions
) -> None:
    """`schedule_in` and `ack_in` keep effects exact, although every second transaction fails."""
    timers = DurableTimers(PostgresStore(database, partitions=4))
    calls = 0

    @timers.handler("h", retry=Retry(50, backoff=0))
    async def handle(fire: Fire) -> None:
        nonlocal calls
        calls += 1
        number = calls
        async with transaction(database) as own:
            await execute(
                own, "INSERT INTO effects VALUES (%s, %s)", (fire.name, fire.payload.decode())
            )
            await fire.ack_in(own)
            if number % 2:
                raise ValueError("rolled back")
        raise ValueError("too late")

    async with transaction(database) as own:
        await execute(own, "CREATE TABLE effects (name text, payload text)")
    async with timers:
        for number in range(6):
            name = f"t{number} \u20ac %s $1"
            with pytest.raises(ZeroDivisionError):
                async with transaction(database) as own:
                    await timers.schedule_in(own, name, "h", due=NOW, payload=b"lost")
                    raise ZeroDivisionError
            async with transaction(database) as own:
                assert await timers.schedule_in(own, name, "h", due=NOW, payload=b"kept")
        await until(lambda: timers.statistics().acknowledged == 6)
        with psycopg.connect(database) as own:
            effects = own.execute("SELECT * FROM effects ORDER BY name").fetchall()

    assert effects == [(f"t{number} \u20ac %s $1", "kept") for number in range(6)]
    assert calls == 12


async def test_a_recurring_fire_ends_in_a_transaction(
    database: str, transaction: Transactions
) -> None:
    """Its timer is due at the next occurrence; a fire that has ended cannot end again."""
    timers = DurableTimers(PostgresStore(database, partitions=1))
    ended = asyncio.Event()

    @timers.handler("h")
    async def handle(fire: Fire) -> None:
        async with transaction(database) as own:
            await fire.ack_in(own)
        with pytest.raises(StaleFireError):
            async with transaction(database) as own:
                await fire.ack_in(own)
        ended.set()

    async with timers:
        first = await timers.every("tick", "h", FAR, first=NOW)
        await asyncio.wait_for(ended.wait(), 30)
        row = await timers.get("tick")

    assert first
    assert row is not None
    assert row.gen == 2


async def test_a_name_that_is_taken(database: str, transaction: Transactions) -> None:
    """All the ways to treat it return what `schedule` returns."""
    async with DurableTimers(PostgresStore(database), fires=False) as timers:
        async with transaction(database) as own:
            assert await timers.schedule_in(own, "a", "h", due=FAR)
            assert not await timers.schedule_in(own, "a", "h", due=FAR, if_exists="keep")
            assert await timers.schedule_in(own, "a", "h", due=FAR, if_exists="replace")
        row = await timers.get("a")

    assert row is not None
    assert row.gen == 2


async def test_wrong_connections_are_refused(database: str, postgres: str) -> None:
    """Those that would commit each statement, and those of other databases and drivers."""
    connect = psycopg.connect
    outside = "connection must be in a transaction, got one outside of any"
    async with DurableTimers(PostgresStore(database), fires=False) as timers:

        async def schedule(connection: Any) -> None:
            await timers.schedule_in(connection, "a", "h", due=FAR)

        with connect(database, autocommit=True) as own, pytest.raises(ValueError, match=outside):
            await schedule(own)
        own = await psycopg.AsyncConnection.connect(database, autocommit=True)
        with pytest.raises(ValueError, match=outside):
            await schedule(own)
        await own.close()
        with pytest.raises(psycopg.OperationalError, match="the connection is closed"):
            await schedule(own)
        with (
            connect(postgres) as own,
            pytest.raises(TypeError, match="must be one to the store's database, got <psycopg"),
        ):
            await schedule(own)
        with connect(database) as own, pytest.raises(TypeError, match="asyncpg or psycopg, got"):
            await schedule(own.cursor())
        assert await timers.get("a") is None


async def test_psycopg_may_be_too_old(database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Earlier releases have no placeholders of PostgreSQL's own kind."""
    monkeypatch.delattr(psycopg, "RawCursor")
    async with DurableTimers(PostgresStore(database), fires=False) as timers:
        with (
            psycopg.connect(database) as own,
            pytest.raises(TypeError, match=r"3\.2 or later, got"),
        ):
            await timers.schedule_in(own, "a", "h", due=FAR)


async def test_a_value_that_the_database_refuses(database: str, transaction: Transactions) -> None:
    """The error is that of `schedule`; others are psycopg's own."""
    async with DurableTimers(PostgresStore(database), fires=False) as timers:
        with psycopg.connect(database) as own:
            own.execute("ALTER TABLE aiowheel_timers ADD CHECK (name <> 'bad')")
        with pytest.raises(BadRowError, match="violates check constraint"):
            async with transaction(database) as own:
                await timers.schedule_in(own, "bad", "h", due=FAR)
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            async with transaction(database) as own:
                await execute(own, "SET LOCAL ROLE pg_monitor")
                await timers.schedule_in(own, "a", "h", due=FAR)


async def test_a_statement_that_waits_for_a_lock(database: str, transaction: Transactions) -> None:
    """The loop goes on meanwhile, and may be what ends the other transaction."""
    async with DurableTimers(PostgresStore(database), fires=False) as timers:
        await timers.schedule("a", "h", due=FAR)
        with psycopg.connect(database) as other:
            other.execute("SELECT FROM aiowheel_timers WHERE name = 'a' FOR UPDATE")
            async with transaction(database) as own:
                call = asyncio.ensure_future(timers.schedule_in(own, "a", "h", due=FAR))
                waits = "SELECT FROM pg_locks WHERE NOT granted"
                while not other.execute(waits).rowcount:  # noqa: ASYNC110 - the server has no event
                    await asyncio.sleep(0.01)
                assert not call.done()
                other.rollback()
                assert await call
        row = await timers.get("a")

    assert row is not None
    assert row.gen == 2


async def test_a_cancelled_call_ends_with_its_statement(database: str) -> None:
    """A rollback meanwhile would block the loop, and with it what ends the other transaction."""
    async with DurableTimers(PostgresStore(database), fires=False) as timers:
        await timers.schedule("a", "h", due=FAR)
        with psycopg.connect(database) as other, psycopg.connect(database) as own:
            other.execute("SELECT FROM aiowheel_timers WHERE name = 'a' FOR UPDATE")
            call = asyncio.ensure_future(timers.schedule_in(own, "a", "h", due=FAR))
            waits = "SELECT FROM pg_locks WHERE NOT granted"
            while not other.execute(waits).rowcount:  # noqa: ASYNC110 - the server has no event
                await asyncio.sleep(0.01)
            call.cancel()
            done, _ = await asyncio.wait({call}, timeout=0.1)
            assert not done
            other.rollback()
            with pytest.raises(asyncio.CancelledError):
                await call

            assert own.info.transaction_status == psycopg.pq.TransactionStatus.INTRANS
            own.rollback()
        row = await timers.get("a")

    assert row is not None
    assert row.gen == 1


async def test_a_counter_in_a_transaction(database: str, transaction: Transactions) -> None:
    """A rolled back transaction changes nothing; a committed one is a publish."""
    store = PostgresCounters(database)
    async with Purgatory() as purgatory, SharedCounters(purgatory, store) as shared:
        waiting = asyncio.ensure_future(shared.wait_until({"doc": 2}, 60))
        with pytest.raises(ZeroDivisionError):
            async with transaction(database) as own:
                await store.advance_in(own, "doc", 5)
                raise ZeroDivisionError
        assert await shared.value("doc") is None
        async with transaction(database) as own:
            await store.advance_in(own, "doc", 2)

        assert await waiting
        assert await shared.value("doc") == 2
