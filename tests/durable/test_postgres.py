"""Durable timers in PostgreSQL: transactions of the user, several processes, a lost server."""

from __future__ import annotations

import asyncio
import os
import signal
import ssl
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from datetime import timedelta
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from aiowheel.durable import (
    BadRowError,
    DurableTimers,
    Fire,
    NewTimer,
    PostgresStore,
    Retry,
    StaleFireError,
    StoreError,
    _postgres,
)
from aiowheel.durable import _postgres_statements as statements
from aiowheel.durable._databases import flaws_of
from aiowheel.durable.operations import (
    Cancel,
    Change,
    Cursor,
    IfExists,
    Move,
    Operation,
    Placed,
    Put,
    Redrive,
    Removed,
    Result,
    Settle,
    part_of,
)
from aiowheel.errors import TimerExistsError
from benchmarks._postgres import postgres_server

from .links import Fired, refuse_a_second_use, share_and_take_over, until

pytestmark = [pytest.mark.one_build, pytest.mark.realtime]

NOW = timedelta(0)
FAR = timedelta(days=1)


async def connected(database: str) -> Any:
    """Return a connection of the user."""
    return await import_module("asyncpg").connect(database)


async def test_functions_of_another_role_are_not_called(database: str) -> None:
    """PostgreSQL prefers a function of exactly the types of the arguments to its own one."""
    connection = await connected(database)
    await connection.execute(
        "CREATE FUNCTION unnest(text[]) RETURNS SETOF text LANGUAGE plpgsql "
        "AS $$ BEGIN RAISE 'called'; END $$; "
        "CREATE FUNCTION pg_advisory_xact_lock(float8) RETURNS void LANGUAGE plpgsql "
        "AS $$ BEGIN RAISE 'called'; END $$"
    )
    try:
        async with connection.transaction():
            await statements.prepare(connection, None, 4, create=True)

        assert await statements.missing(connection) == []
    finally:
        await connection.close()


async def test_effects_of_handlers_happen_exactly_once(database: str) -> None:
    """`schedule_in` and `ack_in` keep effects exact, although every second transaction fails."""
    timers = DurableTimers(PostgresStore(database, partitions=4))
    connection = await connected(database)
    await connection.execute("CREATE TABLE effects (name text)")
    calls = 0

    @timers.handler("h", retry=Retry(50, backoff=0))
    async def handle(fire: Fire) -> None:
        nonlocal calls
        calls += 1
        number = calls
        own = await connected(database)
        try:
            async with own.transaction():
                await own.execute("INSERT INTO effects VALUES ($1)", fire.name)
                await fire.ack_in(own)
                if number % 2:
                    raise ValueError("rolled back")
            raise ValueError("too late")
        finally:
            await own.close()

    async with timers:
        for number in range(10):
            async with connection.transaction():
                assert await timers.schedule_in(connection, f"t{number}", "h", due=NOW)
        with pytest.raises(ValueError, match=r"any \(SQLAlchemy begins one with its first"):
            await timers.schedule_in(connection, "x", "h", due=NOW)
        with pytest.raises(TypeError, match="must be one of asyncpg or psycopg, got None"):
            await timers.schedule_in(None, "x", "h", due=NOW)
        await until(lambda: timers.statistics().acknowledged == 10)
    effects = await connection.fetch("SELECT name FROM effects ORDER BY name")
    await connection.close()

    assert [name for (name,) in effects] == sorted(f"t{n}" for n in range(10))
    assert calls == 20


async def put_in_one_transaction(store: PostgresStore, connection: Any, puts: list[Put]) -> None:
    """Write timers as a transaction of a user does, which leaves a change for each."""
    async with connection.transaction():
        for put in puts:
            await store.put_in(connection, put)


async def test_many_changes_are_taken_in_pages(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A transaction of a user may leave more of them than one statement can read in time."""
    monkeypatch.setattr(_postgres, "_MOST_CHANGES", 10)
    store = PostgresStore(database, partitions=1)
    await store.open()
    now = (await store.renew("me", lease_us=10**8, horizon_us=10**8)).now_us
    connection = await connected(database)

    async def leave(prefix: str) -> None:
        dues = [now + 99 * 10**6, now + 109 * 10**6]  # within the horizon, and beyond it
        puts = [Put(f"{prefix}{number}", "h", dues[number % 2], b"") for number in range(35)]
        await put_in_one_transaction(store, connection, puts)

    def names(changes: list[Change]) -> list[str]:
        assert len(changes) == 35
        return sorted(change.row.name for change in changes if change.row is not None)

    pages: list[int] = []
    changes = statements.changes

    async def recorded(*args: Any, **settings: Any) -> tuple[list[Change], int | None, bool]:
        answer = await changes(*args, **settings)
        pages.append(len(answer[0]))
        return answer

    monkeypatch.setattr(statements, "changes", recorded)
    await leave("a")
    taken, is_free = await store.changes("me")
    await leave("b")
    renewed = await store.renew("me", lease_us=10**8, horizon_us=10**8)
    await connection.close()
    await store.aclose()

    assert not is_free
    assert names(taken) == sorted(f"a{number}" for number in range(0, 35, 2))
    assert names(renewed.changes) == sorted(f"b{number}" for number in range(0, 35, 2))
    assert pages == 2 * [10, 10, 10, 5]


async def test_a_page_of_changes_that_cannot_be_read_is_tried_with_fewer(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their payloads may be too much for the network."""
    store = PostgresStore(database, partitions=1)
    await store.open()
    await store.renew("me", lease_us=10**8, horizon_us=10**8)
    changes = statements.changes

    async def slow(
        connection: Any, owner: str, after: int, most: int
    ) -> tuple[list[Change], int | None, bool]:
        if most > 20:
            raise TimeoutError
        return await changes(connection, owner, after, most)

    monkeypatch.setattr(statements, "changes", slow)
    for _ in range(3):
        with pytest.raises(StoreError, match="no answer"):
            await store.changes("me")
    assert await store.changes("me") == ([], False)
    await store.aclose()


async def test_a_list_that_cannot_be_read_is_read_in_smaller_pages(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The payloads of a page may be too much for the network."""
    asked: list[int] = []

    def slow(read: Callable[..., Awaitable[list[Any]]]) -> Callable[..., Awaitable[list[Any]]]:
        async def slowed(connection: Any, *, limit: int, **settings: Any) -> list[Any]:
            asked.append(limit)
            if limit > 20:
                raise TimeoutError
            return await read(connection, limit=limit, **settings)

        return slowed

    names = [f"{number:02}" for number in range(35)]
    timers = DurableTimers(PostgresStore(database))
    async with timers:
        await timers.schedule_many([NewTimer(name, "h", FAR) for name in names])
        connection = await connected(database)
        await connection.execute(
            "INSERT INTO aiowheel_dead "
            "(name, handler, due_us, fire_id, attempts, died_us, error, payload) "
            "SELECT name, handler, due_us, '1.1', 5, due_us, 'E', payload FROM aiowheel_timers "
            "ORDER BY name"
        )
        await connection.close()
        monkeypatch.setattr(statements, "rows", slow(statements.rows))
        monkeypatch.setattr(statements, "dead_letters", slow(statements.dead_letters))

        assert [row.name async for row in timers.pending()] == names
        assert asked[:4] == [1000, 250, 62, 15]
        assert [letter.name async for letter in timers.dead_letters()] == names


async def test_a_list_that_cannot_be_read_row_by_row_raises(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that opens no connection is not asked for smaller pages."""
    asked: list[int] = []

    async def silent(*_: object, limit: int, **__: object) -> list[Any]:
        asked.append(limit)
        raise TimeoutError

    async def refuse(*_: object, **__: object) -> None:
        asked.append(-1)
        raise TimeoutError

    store = PostgresStore(database)
    await store.open()
    monkeypatch.setattr(statements, "rows", silent)
    with pytest.raises(StoreError, match="no answer"):
        await store.rows(limit=20)
    assert asked == [20, 5, 1]

    asked.clear()
    monkeypatch.setattr("asyncpg.connect", refuse)
    with pytest.raises(StoreError, match="no answer"):
        await store.rows()
    assert asked == [-1]
    await store.aclose()


async def test_a_check_reads_no_payloads(database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """They may be gigabytes."""
    payloads: list[bytes] = []

    def recorded(row: Sequence[Any], partitions: int) -> list[str]:
        payloads.append(row[-1])
        return flaws_of(row, partitions)

    monkeypatch.setattr(_postgres, "flaws_of", recorded)
    store = PostgresStore(database)
    await store.open()
    await store.commit("me", [Put(name, "h", 0, b"payload") for name in "ab"])
    connection = await connected(database)
    await connection.execute("ALTER TABLE aiowheel_timers ALTER payload DROP NOT NULL")
    await connection.execute("UPDATE aiowheel_timers SET payload = NULL WHERE name = 'b'")
    await connection.close()

    flaws = await store.check()
    await store.aclose()

    assert payloads == [b"", None]
    assert flaws == ["timer 'b' has the payload None, which is no bytes"]


async def test_changes_of_taken_partitions_are_forgotten_in_pages(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While no process runs, transactions of users may leave millions."""
    monkeypatch.setattr(_postgres, "_MOST_FORGOTTEN", 10)
    store = PostgresStore(database, partitions=2)
    await store.open()
    connection = await connected(database)
    puts = [Put(str(number), "h", 0, b"") for number in range(35)]
    await put_in_one_transaction(store, connection, puts)

    assert (await store.renew("me", lease_us=10**8, horizon_us=0)).changes == []
    assert await connection.fetchval("SELECT count(*) FROM aiowheel_inbox") == 0
    await connection.close()
    await store.aclose()


async def test_names_are_expected_to_be_new_until_one_is_taken(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A plain INSERT costs less. The server logs an error if it fails, so it is not tried again."""
    tried: list[bool] = []
    put_alone = statements.put_alone

    async def recorded(*args: Any, are_new: bool) -> list[Result]:
        tried.append(are_new)
        return await put_alone(*args, are_new=are_new)

    monkeypatch.setattr(statements, "put_alone", recorded)
    store, other = PostgresStore(database), PostgresStore(database)
    await store.open()
    await other.open()
    now = (await store.renew("me", lease_us=10**7, horizon_us=10**7)).now_us
    results: list[Result] = []
    for mode in ("error", "replace", "keep", "error", "revise"):
        put = Put("a", "h", now, mode.encode(), None, mode)
        results += await store.commit("me", [put, put._replace(name=f"b {len(results)}")])
    await other.commit("other", [Put("a", "h", now, b"last")])
    changes, _ = await store.changes("me")
    rows = await store.rows()
    await store.aclose()
    await other.aclose()

    kinds = [each.is_new if isinstance(each, Placed) else type(each) for each in results]
    taken = [False, type(None), TimerExistsError, False]
    assert kinds == [True, True, *(kind for each in taken for kind in (each, True))]
    assert tried == [True, True, False, False, False, False, True, False]
    assert [(each.row.name, each.row.gen) for each in changes if each.row] == [("a", 4)]
    assert [row.payload for row in rows if row.name == "a"] == [b"last"]
    assert len(rows) == 6


async def test_a_renewal_returns_the_clock_after_its_commit(database: str) -> None:
    """Timers fire later by the time between that clock and the answer; here a commit is slow."""
    connection = await connected(database)
    store = PostgresStore(database)
    await store.open()
    try:
        await connection.execute(
            "CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS "
            "'BEGIN PERFORM pg_sleep(0.1); RETURN NULL; END';"
            "CREATE CONSTRAINT TRIGGER slow AFTER INSERT ON aiowheel_members "
            "DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION slow()"
        )
        before: float = await connection.fetchval("SELECT extract(epoch FROM clock_timestamp())")
        leased = await store.renew("owner", lease_us=10**7, horizon_us=10**7)
    finally:
        await store.aclose()
        await connection.close()

    assert leased.now_us >= float(before) * 1e6 + 100_000


async def test_a_database_that_is_serializable_by_default_serves_the_store(database: str) -> None:
    """In a serializable transaction, concurrent calls would fail with errors of serialization."""
    connection = await connected(database)
    level = "default_transaction_isolation = 'serializable'"
    await connection.execute(f"ALTER DATABASE {database.rpartition('/')[2]} SET {level}")
    store = PostgresStore(database)
    await store.open()
    await connection.execute(
        "CREATE TABLE levels (level text);"
        "CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS "
        "'BEGIN INSERT INTO levels VALUES (current_setting(''transaction_isolation'')); "
        "RETURN NULL; END';"
        "CREATE TRIGGER note AFTER INSERT OR DELETE ON aiowheel_timers "
        "FOR EACH ROW EXECUTE FUNCTION note()"
    )
    await store.commit("me", [Put("a", "h", 0, b"")])
    await store.commit("me", [Cancel("a")])
    levels = await connection.fetch("SELECT level FROM levels")
    await store.aclose()
    await connection.close()

    assert [level for (level,) in levels] == ["read committed"] * 2


async def test_a_store_object_serves_one_durable_timers(database: str) -> None:
    """A second one is refused while the first is open, and does not close its connections."""
    await refuse_a_second_use(PostgresStore(database))


async def test_two_processes_share_and_take_over(database: str) -> None:
    """An insert into a partition of the other process arrives there by a notification."""
    await share_and_take_over([PostgresStore(database, partitions=8) for _ in range(2)], 2)


async def test_an_owner_that_was_taken_over_is_refused(database: str) -> None:
    """The acknowledgements of the old owner, also in a transaction, change nothing."""
    timers = DurableTimers(PostgresStore(database, partitions=1), lease=2)
    connection = await connected(database)
    began, go_on = asyncio.Event(), asyncio.Event()
    refused: list[Exception] = []

    @timers.handler("h")
    async def handle(fire: Fire) -> None:
        if began.is_set():  # the changed timer, before the old owner has noticed its loss
            return
        began.set()
        await go_on.wait()
        try:
            async with connection.transaction():
                await fire.ack_in(connection)
        except StaleFireError as error:
            refused.append(error)

    async with timers:
        await timers.schedule("a", "h", due=NOW)
        await asyncio.wait_for(began.wait(), 30)
        thief = await connected(database)
        await thief.execute(
            "UPDATE aiowheel_parts SET owner = 'thief', epoch = epoch + 1, "
            "until_us = until_us + 60000000"
        )
        await thief.execute("UPDATE aiowheel_timers SET gen = gen + 1")
        go_on.set()
        await until(lambda: refused != [] and timers.statistics().stale >= 1)
        assert await thief.fetchval("SELECT count(*) FROM aiowheel_timers") == 1
        assert timers.statistics().acknowledged == 0
        await thief.close()
    await connection.close()


async def test_lost_connections_are_made_again(database: str) -> None:
    """Calls raise; afterwards, due timers fire and notifications arrive again."""
    fired = Fired()
    timers = DurableTimers(PostgresStore(database, partitions=4), lease=2)
    timers.handler("h")(fired)
    async with timers:
        await timers.schedule("soon", "h", due=timedelta(seconds=1))
        connection = await connected(database)
        await connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE application_name = 'aiowheel durable'"
        )
        with suppress(StoreError):
            await timers.schedule("maybe", "h", due=NOW)
        await until(lambda: "soon" in fired.names)
        async with connection.transaction():
            await timers.schedule_in(connection, "outbox", "h", due=NOW)
        await until(lambda: "outbox" in fired.names)
        await connection.close()


@pytest.mark.parametrize("kind", ["writer", "reader", "listener"])
async def test_a_connection_that_was_lost_between_two_calls_is_reported(
    kind: str, database: str
) -> None:
    """The server may have crashed and lost commits, although no call fails."""
    store = PostgresStore(database)
    losses: list[None] = []
    await store.open()
    store.subscribe_to_losses(lambda: losses.append(None))
    await store.get("a")
    user = await connected(database)
    listening = "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND query ~ "
    while not (listeners := await user.fetch(f"{listening} '^LISTEN'")):  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    connection = {"writer": store._writer, "reader": store._reader}.get(kind)
    pid = listeners[0][0] if connection is None else connection._connection.get_server_pid()
    assert losses == []

    await user.execute("SELECT pg_terminate_backend($1)", pid)
    if connection is not None:
        await until(connection._connection.is_closed)
        await (store.get("a") if kind == "reader" else store.changes("me"))
    await until(lambda: losses != [])

    assert losses == [None]
    await user.close()
    await store.aclose()


async def test_a_partition_that_is_missing_is_a_flaw(database: str) -> None:
    """For example after a backup was restored in part."""
    store = PostgresStore(database, partitions=4)
    await store.open()
    try:
        assert await store.check() == []
        connection = await connected(database)
        await connection.execute("DELETE FROM aiowheel_parts WHERE part = 2")
        await connection.close()

        (flaw,) = await store.check()
        assert flaw.startswith("partition 2 is missing")
    finally:
        await store.aclose()


@pytest.mark.parametrize("mode", ["replace", "keep", "error", "revise"])
async def test_a_timer_of_a_missing_partition_is_refused(mode: IfExists, database: str) -> None:
    """No process would fire it, and "not written" would mean that it exists."""
    store = PostgresStore(database, partitions=2)
    await store.open()
    connection = await connected(database)
    name, other = (next(n for n in "abcdef" if part_of(n, 2) == part) for part in (1, 0))
    await connection.execute("DELETE FROM aiowheel_parts WHERE part = 1")
    put = Put(name, "h", 0, b"", None, mode)

    commits: list[list[Operation]] = [[put], [Cancel(name)], [put, Cancel(name)]]
    commits.append([put._replace(name=other), put])
    for operations in commits:
        with pytest.raises(StoreError, match="a partition of these timers is missing"):
            await store.commit("me", operations)
    assert await store.rows() == []

    for _ in range(2):
        await store.commit("me", [put._replace(name=other)])
    assert [row.name for row in await store.rows()] == [other]
    await connection.close()
    await store.aclose()


DAMAGE = {
    "ALTER TABLE aiowheel_timers DROP CONSTRAINT aiowheel_timers_pkey": (
        "aiowheel_timers has no valid unique index on name"
    ),
    "DROP INDEX aiowheel_timers_due": "aiowheel_timers has no valid index aiowheel_timers_due",
    "UPDATE pg_index SET indisvalid = false WHERE indexrelid = 'aiowheel_timers_due'::regclass": (
        "aiowheel_timers has no valid index aiowheel_timers_due"
    ),
    "ALTER TABLE aiowheel_inbox DROP COLUMN name": (
        "aiowheel_inbox has no column name of type text"
    ),
    "ALTER TABLE aiowheel_timers ALTER gen TYPE integer": (
        "aiowheel_timers has no column gen of type bigint"
    ),
    "UPDATE aiowheel_timers SET name = ''": (
        "a timer has the name '': no command and no process finds it"
    ),
    'UPDATE aiowheel_timers SET recurrence = \'{"every_us": 0, "missed": "all"}\'': (
        'timer \'a\' has the recurrence \'{"every_us": 0, "missed": "all"}\': '
        "every_us must be from 1000 to 2305843009213693, got 0"
    ),
}


@pytest.mark.parametrize(("statement", "flaw"), DAMAGE.items(), ids=range(len(DAMAGE)))
async def test_what_another_program_has_damaged_is_a_flaw(
    statement: str, flaw: str, database: str
) -> None:
    """A store with one of these flaws loses timers, writes names twice, or raises errors."""
    store = PostgresStore(database, partitions=4)
    await store.open()
    await store.commit("", [Put("a", "h", 0, b"")])
    assert await store.check() == []
    connection = await connected(database)
    await connection.execute(statement)

    assert await store.check() == [flaw]

    await connection.close()
    await store.aclose()


async def test_rows_that_were_copied_without_their_sequences_are_a_flaw(database: str) -> None:
    """The ids begin at 1 again, and of two timers with one id only one is in memory."""
    connection = await connected(database)
    await connection.execute("CREATE SCHEMA old")
    old = PostgresStore(f"{database}?search_path=old", partitions=4)
    store = PostgresStore(database, partitions=4)
    await old.open()
    await store.open()
    await old.renew("other", lease_us=10**7, horizon_us=10**7)  # the changes are left for it
    await old.commit("me", [Put(name, "h", 0, b"") for name in "abc"])
    await old.aclose()
    await connection.execute(
        "INSERT INTO aiowheel_timers SELECT * FROM old.aiowheel_timers; "
        "INSERT INTO aiowheel_inbox SELECT * FROM old.aiowheel_inbox"
    )
    behind = [
        f"{table}_{column}_seq is at 0, behind the greatest {column} of {table}, which is 3: run "
        f"SELECT setval('{table}_{column}_seq', 3)"
        for table, column in (("aiowheel_inbox", "seq"), ("aiowheel_timers", "id"))
    ]
    assert await store.check() == behind

    await store.commit("me", [Put("d", "h", 0, b"")])
    flaws = await store.check()
    assert flaws[0] == behind[0]
    assert flaws[1].startswith("aiowheel_timers_id_seq is at 1, behind")
    assert flaws[2] == (
        "2 timers share their ids with others, such as 'a' and 'd' the id 1: a process fires only "
        "one of them; stop all processes, and after setval run UPDATE aiowheel_timers SET id = "
        "DEFAULT WHERE id IN (SELECT id FROM aiowheel_timers GROUP BY id HAVING count(*) > 1)"
    )

    for flaw in flaws:
        await connection.execute(flaw.partition("run ")[2])
    assert await store.check() == []
    assert sorted(row.id for row in await store.rows()) == [2, 3, 4, 5]
    await connection.close()
    await store.aclose()


async def test_a_sequence_is_checked_as_far_as_the_role_may_read_it(database: str) -> None:
    """A role that writes timers needs USAGE of the sequences, and one that lists them nothing."""
    store = PostgresStore(database, partitions=4)
    await store.open()
    await store.commit("me", [Put(name, "h", 0, b"") for name in "abc"])
    await store.aclose()
    connection = await connected(database)
    role = f"reader_{connection.get_server_pid()}"
    await connection.execute(
        f"CREATE ROLE {role}; GRANT SELECT ON ALL TABLES IN SCHEMA public TO {role}"
    )

    async def checked(sequence: str) -> list[str]:
        await connection.execute(f"RESET ROLE; {sequence}; SET ROLE {role}")
        return await statements.flaws_of_ids(connection)

    try:
        assert await checked("SELECT setval('aiowheel_timers_id_seq', 1)") == []
        for rights in ("USAGE", "SELECT"):
            await checked(f"GRANT {rights} ON SEQUENCE aiowheel_timers_id_seq TO {role}")
            assert await checked("SELECT setval('aiowheel_timers_id_seq', 4, false)") == []
            (flaw,) = await checked("SELECT setval('aiowheel_timers_id_seq', 1)")
            assert flaw.startswith("aiowheel_timers_id_seq is at 1, behind")
    finally:
        await connection.execute(f"RESET ROLE; DROP OWNED BY {role}; DROP ROLE {role}")
        await connection.close()


async def test_each_missing_table_is_a_flaw(database: str) -> None:
    """For example after a backup was restored in part."""
    store = PostgresStore(database)
    await store.open()
    connection = await connected(database)
    tables = ("timers", "dead", "parts", "members", "inbox", "meta")
    await connection.execute("DROP TABLE " + ", ".join(f"aiowheel_{table}" for table in tables))

    flaws = await store.check()

    assert [flaw for flaw in flaws if "aiowheel_dead has no column error of type text" in flaw]
    assert {flaw.split()[0] for flaw in flaws} == {f"aiowheel_{table}" for table in tables}
    await connection.close()
    await store.aclose()


async def test_reads_that_wait_while_the_store_is_closed_leave_no_connection(
    database: str,
) -> None:
    """They end, and then the connection is closed."""
    timers = DurableTimers(PostgresStore(database))
    async with timers:
        reads = [asyncio.create_task(timers.get(f"{n}")) for n in range(20)]
        await asyncio.sleep(0)
    user = await connected(database)
    left = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'aiowheel durable'"

    assert await asyncio.gather(*reads) == [None] * 20
    async with asyncio.timeout(30):
        while await user.fetchval(left):  # noqa: ASYNC110 - the server ends them a moment later
            await asyncio.sleep(0.02)
    await user.close()


async def test_a_server_that_is_not_there_is_an_error() -> None:
    """`async with` raises."""
    with pytest.raises(StoreError, match="PostgreSQL"):
        async with DurableTimers(PostgresStore("postgresql://nobody@127.0.0.1:1/none")):
            pass


async def test_a_name_that_is_not_unicode_is_refused(database: str) -> None:
    """The command line passes such a name on from the shell."""
    store = PostgresStore(database, partitions=1)
    await store.open()

    with pytest.raises(BadRowError, match="surrogates not allowed"):
        await store.commit("", [Cancel("\udcff")])

    assert await store.commit("", [Cancel("a")]) == [None]
    await store.aclose()


@pytest.mark.slow
async def test_a_long_transaction_of_the_user_does_not_stop_the_renewals(database: str) -> None:
    """A commit that waits for it ends with an error, and so does its lock of the partition."""
    store = PostgresStore(database, partitions=1)
    await store.open()
    connection = await connected(database)
    put = Put("a", "h", 0, b"")
    async with connection.transaction():
        await store.put_in(connection, put)
        (result,) = await store.commit("one", [put])
        assert isinstance(result, StoreError)
        refused, placed = await store.commit("one", [put, Put("b", "h", 0, b"")])
        assert isinstance(refused, StoreError)
        assert isinstance(placed, Placed)

        assert (await store.renew("one", lease_us=10**7, horizon_us=0)).epochs == {0: 1}

    await connection.close()
    await store.aclose()


@pytest.mark.slow
@pytest.mark.parametrize("call", ["renew", "changes", "get"])
async def test_a_lock_that_is_held_for_too_long_is_an_error(call: str, database: str) -> None:
    """Its class is the one that the documentation names."""
    store = PostgresStore(database)
    await store.open()
    user = await connected(database)
    async with user.transaction():
        await user.execute(
            "LOCK TABLE aiowheel_members, aiowheel_inbox, aiowheel_timers IN ACCESS EXCLUSIVE MODE"
        )
        calls: dict[str, Callable[[], Awaitable[object]]] = {
            "renew": lambda: store.renew("me", lease_us=10**7, horizon_us=0),
            "changes": lambda: store.changes("me"),
            "get": lambda: store.get("a"),
        }
        with pytest.raises(StoreError, match="another transaction holds a lock") as caught:
            await calls[call]()

    assert caught.type is StoreError
    await user.close()
    await store.aclose()


@pytest.mark.slow
async def test_a_settlement_waits_once_for_a_long_transaction(database: str) -> None:
    """Its process repeats it four times a second, often in a commit of its own."""
    store = PostgresStore(database, partitions=1)
    await store.open()
    assert (await store.renew("one", lease_us=10**8, horizon_us=0)).epochs == {0: 1}
    (placed,) = await store.commit("one", [Put("a", "h", 0, b"")])
    assert isinstance(placed, Placed)
    row = placed.row
    settle = Settle(row.id, "a", row.gen, 0, 1, None, next_gen=row.gen + 1, attempts=1)
    connection = await connected(database)
    async with connection.transaction():
        await store.put_in(connection, Put("a", "h", 1, b""))
        (waited,) = await store.commit("one", [settle])
        (repeated,) = await store.commit("one", [settle])

    assert type(waited) is type(repeated) is StoreError
    assert "another transaction holds a lock" in str(waited)
    assert "another transaction holds the timer" in str(repeated)
    await connection.close()
    await store.aclose()


@pytest.mark.slow
@pytest.mark.parametrize("held", ["written", "new"])
async def test_operations_on_held_timers_wait_together(database: str, held: str) -> None:
    """Only those fail, in the time that one of them would wait; others cannot see a new name."""
    store = PostgresStore(database, partitions=1)
    await store.open()
    names = [f"n{number}" for number in range(40)]
    if held == "written":
        await store.commit("one", [Put(name, "h", 0, b"") for name in names[::8]])
    waits: list[int] = []
    run = store._writer.run

    async def recorded(call: Callable[[Any], Awaitable[Any]], lock_ms: int) -> Any:
        try:
            return await run(call, lock_ms)
        except StoreError:
            waits.append(lock_ms)
            raise

    store._writer.run = recorded  # type: ignore[assignment]
    connection = await connected(database)
    async with connection.transaction():
        for name in names[::8]:
            await store.put_in(connection, Put(name, "h", 1, b""))
        await store.commit("one", [Put(names[0], "h", 0, b"")])
        puts = [Put(name, "h", 0, b"") for name in names]
        results = await store.commit("one", [*puts, Cancel("n1"), Cancel("n0")])

    refused = [f"n{number}" for number in range(0, 40, 8)]
    assert [isinstance(each, StoreError) for each in results[:40]] == [
        name in refused for name in names
    ]
    assert isinstance(results[40], Removed)
    assert isinstance(results[41], StoreError if held == "written" else type(None))
    assert sum(each > 1000 for each in waits) == 2  # one for each of the commits
    await connection.close()
    await store.aclose()


@pytest.mark.posix
async def test_a_silent_connection_is_replaced(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A network may drop a connection without a word; hints then arrive by a new one."""
    monkeypatch.setattr(_postgres, "_HEARTBEAT_SECONDS", 0.05)
    monkeypatch.setattr(_postgres, "_COMMAND_SECONDS", 1.0)
    user = await connected(database)
    listening = "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND query ~ "

    async def listeners(pattern: str) -> set[int]:
        return {pid for (pid,) in await user.fetch(f"{listening} $1", pattern)}

    async with DurableTimers(PostgresStore(database)):
        while not (first := await listeners("^SELECT 1")):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        (stopped,) = first
        os.kill(stopped, signal.SIGSTOP)
        try:
            async with asyncio.timeout(60):
                while not await listeners("^(SELECT 1|LISTEN)") - first:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
        finally:
            os.kill(stopped, signal.SIGCONT)
    await user.close()


async def test_calls_that_wait_for_a_silent_server_fail_together(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of them waits for the answer, and the others do not wait for it again."""
    monkeypatch.setattr(_postgres, "_COMMAND_SECONDS", 0.3)
    store = PostgresStore(database)
    await store.open()
    user = await connected(database)
    async with user.transaction():
        await user.execute("LOCK TABLE aiowheel_timers")
        calls = [store.get(f"n{number}") for number in range(10)]
        errors = await asyncio.gather(*calls, return_exceptions=True)

    assert [str(each) for each in errors] == ["PostgreSQL: no answer within 10 seconds"] * 10
    assert store._reader._silences == 1
    assert await store.get("n") is None
    await user.close()
    await store.aclose()


@pytest.mark.slow
@pytest.mark.usefixtures("database")  # skips without PostgreSQL
async def test_of_several_hosts_the_primary_is_used() -> None:
    """A standby may lag behind, and hide timers for as long as the connection lasts."""
    with postgres_server() as primary, postgres_server(is_standby=True) as standby:
        host = primary.partition("@")[2]
        standby_host = standby.partition("@")[2].partition("/")[0]
        timers = DurableTimers(PostgresStore(f"postgresql://postgres@{standby_host},{host}"))
        async with timers:
            await timers.schedule("a", "h", due=FAR)

            assert await timers.get("a") is not None

        only_standby = PostgresStore(standby)
        with pytest.raises(StoreError, match="primary"):
            await only_standby.open()
        with pytest.raises(StoreError, match="no tables"):
            await only_standby.open(create=False)


async def test_a_refused_certificate_is_no_malformed_address(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Python's error of a certificate is a `ValueError` as well."""

    async def refuse(*_: object, **__: object) -> None:
        raise ssl.SSLCertVerificationError("certificate verify failed")

    monkeypatch.setattr("asyncpg.connect", refuse)

    with pytest.raises(StoreError, match="certificate verify failed"):
        await PostgresStore("postgresql://db.example/app").open()


async def test_a_missing_certificate_file_is_named_as_a_cause(tmp_path: Path) -> None:
    """The error of the driver names no file, and is the same for a missing Unix socket."""
    missing = tmp_path / "root.crt"
    store = PostgresStore(f"postgresql://db.example/app?sslmode=require&sslrootcert={missing}")

    with pytest.raises(StoreError, match="Unix socket, or a certificate or key file"):
        await store.open()


@pytest.mark.slow
async def test_a_long_transaction_of_the_user_delays_only_its_timer(database: str) -> None:
    """The process cannot acknowledge the fire of that timer; its other timers fire in time."""
    timers = DurableTimers(PostgresStore(database))
    late: dict[str, float] = {}

    @timers.handler("h")
    def handle(fire: Fire) -> None:
        late.setdefault(fire.name, (timers.now() - fire.due).total_seconds())

    async def delay_of(call: Awaitable[bool]) -> float:
        began = asyncio.get_running_loop().time()
        assert await call
        return asyncio.get_running_loop().time() - began

    connection = await connected(database)
    async with timers:
        await timers.schedule("held", "h", due=timedelta(seconds=0.2))
        await timers.schedule("moved", "h", due=FAR)
        transaction = connection.transaction()
        await transaction.start()
        await timers.schedule_in(connection, "held", "h", due=FAR)
        await timers.schedule_in(connection, "moved", "h", due=FAR)
        await until(lambda: "held" in late)
        await timers.schedule("early", "h", due=NOW)  # waits with the acknowledgement, and ends it
        for number in range(10):
            await timers.schedule(f"t{number}", "h", due=timedelta(seconds=0.1 * number))
        delays = [
            await delay_of(timers.schedule(f"far {number}", "h", due=FAR)) for number in range(50)
        ]
        calls = [timers.reschedule("moved", FAR), timers.cancel("moved"), timers.cancel("far 1")]
        moved, cancelled, other = await asyncio.gather(*calls, return_exceptions=True)
        await until(lambda: len(late) == 12)
        await transaction.rollback()
        await until(lambda: not timers.statistics().in_flight)

        assert max(delays) < 1
        assert isinstance(moved, StoreError)
        assert isinstance(cancelled, StoreError)
        assert other is True
        assert timers.statistics().acknowledged == 12
        assert await timers.get("held") is None
    await connection.close()


async def test_a_prefix_is_found_in_a_database_without_an_encoding(postgres: str) -> None:
    """A cluster of the locale C has such databases; they count bytes instead of characters."""
    connection = await connected(postgres)
    options = "ENCODING 'SQL_ASCII' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0"
    await connection.execute(f"CREATE DATABASE bytes {options}")
    async with DurableTimers(PostgresStore(f"{postgres.rpartition('/')[0]}/bytes")) as timers:
        for name in ("\u00e9t\u00e9", "\u00e9t", "ete"):
            await timers.schedule(name, "h", due=FAR)

        names = [row.name async for row in timers.pending("\u00e9t\u00e9")]

    await connection.execute("DROP DATABASE bytes WITH (FORCE)")
    await connection.close()
    assert names == ["\u00e9t\u00e9"]


async def test_no_statement_reads_the_whole_table(database: str) -> None:
    """Without an index, each statement would take longer the more timers are pending."""
    store = PostgresStore(database, partitions=1)
    await store.open()
    connection = await connected(database)
    await connection.execute("SET enable_seqscan = off")  # then only without any index
    queries: list[Any] = []
    modes: tuple[IfExists, ...] = ("replace", "keep", "error", "revise")
    operations: tuple[Operation, ...] = (
        *(Put(mode, "h", 0, b"", None, mode) for mode in modes),
        *(Move("keep", 1), Cancel("keep")),
        Settle(1, "replace", 1, 0, 0, 5, 2, 1, 1, error="boom", attempts=1),
        Settle(1, "replace", 2, 0, 0),
        Redrive(1),
    )
    with connection.query_logger(queries.append):
        async with connection.transaction():
            for operation in operations:
                statement = statements.Statements(connection, "me", 1)
                await statement.lock([operation])
                assert await statement.execute_all([operation]) != ["gone"]
                await statement.leave()
            await statements.get(connection, "a")
            await statements.rows(connection, "", "a", 10)
            await statements.page(connection, [Cursor(0, 0, 0)], 10, 10)
            await statements.renew(connection, "other", 1, 1, ())
            await statements.changes(connection, "other", 0, 10)
        for mode in modes:
            puts = [Put(mode, "h", 0, b"", None, mode)]
            await statements.put_alone(connection, "me", 1, puts, are_new=False)
        puts = [Put("new", "h", 0, b"")]
        await statements.put_alone(connection, "me", 1, puts, are_new=True)
        await asyncio.sleep(0)  # the driver passes the queries on in the next turn
    read = [query for query in queries if " aiowheel_timers " in query.query]
    plans = [await connection.fetch(f"EXPLAIN {each.query}", *each.args) for each in read]
    await connection.close()
    await store.aclose()

    assert len({each.query for each in read}) >= 16
    scans = [
        each.query
        for each, plan in zip(read, plans, strict=True)
        if any("Seq Scan on aiowheel_timers" in line for (line,) in plan)
    ]
    assert scans == []


async def test_the_rows_of_a_prefix_are_read_without_the_names_after_it(database: str) -> None:
    """Otherwise a prefix of few timers would take as long as all timers after it."""
    store = PostgresStore(database, partitions=1)
    await store.open()
    await store.commit("", [Put(f"{letter}:{n}", "h", 0, b"") for letter in "ab" for n in range(9)])
    await store.aclose()
    connection = await connected(database)
    await connection.execute("SET enable_seqscan = off")
    queries: list[Any] = []
    with connection.query_logger(queries.append):
        rows = await statements.rows(connection, "", "a:", 100)
        await asyncio.sleep(0)  # the driver passes the queries on in the next turn
    (query,) = queries
    # The plan of a statement that was executed often, which depends on no value.
    await connection.execute(
        f"SET plan_cache_mode = force_generic_plan; PREPARE p AS {query.query}"
    )
    values = ", ".join(map(repr, query.args))
    plan = await connection.fetch(f"EXPLAIN ANALYZE EXECUTE p ({values})")
    await connection.close()

    assert len(rows) == 9
    assert [line for (line,) in plan if "Rows Removed" in line] == []
