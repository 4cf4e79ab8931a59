"""Durable timers in an SQLite file: transactions of the user, several processes, failures."""

from __future__ import annotations

import asyncio
import sqlite3
import subprocess
import sys
import threading
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from aiowheel.durable import (
    DurableTimers,
    DurableTimersClosedError,
    Fire,
    Retry,
    SQLiteStore,
    StaleFireError,
    StoreError,
    StoreVersionError,
    TimerExistsError,
)
from aiowheel.durable import _sqlite_statements as statements
from aiowheel.durable.operations import Cursor, Placed, Put, part_of

from .links import Fired, refuse_a_second_use, share_and_take_over, until

pytestmark = [pytest.mark.one_build, pytest.mark.realtime]

IO = Path("/proc/self/io")
NOW = timedelta(0)
FAR = timedelta(days=1)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """The path of the file, which does not exist yet."""
    return tmp_path / "app.db"


@pytest.mark.parametrize("name", ["", "/", ":memory:", "file:app.db?mode=ro"])
def test_a_name_without_a_file_is_refused(name: str) -> None:
    """A file with the name `:memory:` would surprise its user."""
    with pytest.raises(ValueError, match=r"path must be the path of a file, got ") as caught:
        SQLiteStore(name)
    assert repr(name) in str(caught.value)


async def test_each_commit_is_synced_to_the_disk(path: Path) -> None:
    """Otherwise a loss of power takes timers that were reported as committed."""
    store = SQLiteStore(path)
    await store.open()
    found = await store._writer.run(lambda file: file.execute("PRAGMA synchronous").fetchone())
    await store.aclose()

    assert found == (2,)  # FULL


async def test_a_timer_of_a_transaction_exists_if_the_transaction_commits(path: Path) -> None:
    """After the commit, the process that owns its partition fires it."""
    fired = Fired()
    timers = DurableTimers(SQLiteStore(path))
    timers.handler("h")(fired)
    async with timers:
        connection = sqlite3.connect(path)
        await timers.schedule_in(connection, "lost", "h", due=NOW)
        connection.rollback()
        assert await timers.schedule_in(connection, "kept", "h", due=NOW)
        assert not await timers.schedule_in(connection, "kept", "h", due=FAR, if_exists="keep")
        with pytest.raises(TimerExistsError):
            await timers.schedule_in(connection, "kept", "h", due=FAR, if_exists="error")
        assert timers.statistics().scheduled == 2  # also in the transaction that was rolled back
        assert fired.names == []
        connection.commit()
        await until(lambda: fired.names != [])
        connection.close()

        assert fired.names == ["kept"]
        assert await timers.get("lost") is None


@pytest.mark.skipif(not IO.exists(), reason="only Linux counts the bytes that a process reads")
async def test_a_page_does_not_read_large_payloads(path: Path) -> None:
    """SQLite reads a column from the file only if a statement needs it."""
    store = SQLiteStore(path, partitions=1)
    await store.open()
    await store.commit("me", [Put(f"t{n}", "h", 0, bytes(2**20)) for n in range(50)])
    before = bytes_read()
    (page,) = await store.page([Cursor(0, -1, 0)], 0, 1000)
    read = bytes_read() - before
    await store.aclose()

    assert len(page) == 50
    assert read < 2**20


def bytes_read() -> int:
    """Return the bytes that this process has read, from files and the page cache."""
    return int(IO.read_text("ascii").split()[1])


async def test_a_long_page_does_not_delay_the_changes(path: Path) -> None:
    """While changes are read, no lease is renewed and no timer fires."""
    store = SQLiteStore(path)
    await store.open()
    is_read = threading.Event()
    page = asyncio.create_task(store._run(store._reader, lambda _: is_read.wait()))
    try:
        assert await asyncio.wait_for(store.changes("me"), 30) == ([], True)
    finally:
        is_read.set()
        await page
        await store.aclose()


async def test_the_first_statement_of_a_transaction_waits_for_another_writer(path: Path) -> None:
    """A deferred transaction that reads before it writes would fail at once."""
    async with DurableTimers(SQLiteStore(path)) as timers:
        other = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        other.execute("CREATE TABLE orders (name TEXT)")
        other.execute("BEGIN IMMEDIATE")
        other.execute("INSERT INTO orders VALUES ('order:1')")
        begins_to_write = threading.Event()

        def commit() -> None:
            begins_to_write.wait()
            other.execute("COMMIT")

        def trace(statement: str) -> None:
            if not statement.startswith(("PRAGMA", "SELECT")):
                begins_to_write.set()

        connection = sqlite3.connect(path, timeout=60, isolation_level=None)
        connection.execute("BEGIN")
        connection.set_trace_callback(trace)
        committing = threading.Thread(target=commit)
        committing.start()
        try:
            assert await timers.schedule_in(connection, "order:1", "h", due=FAR)
        finally:
            begins_to_write.set()
            committing.join()
        connection.execute("COMMIT")
        connection.close()
        other.close()

        assert await timers.get("order:1") is not None


async def test_a_connection_that_reads_texts_as_bytes_can_schedule(path: Path) -> None:
    """`schedule_in` compares the path of its file, which SQLite then returns as bytes."""
    async with DurableTimers(SQLiteStore(path)) as timers:
        connection = sqlite3.connect(path)
        connection.text_factory = bytes
        with connection:
            assert await timers.schedule_in(connection, "a", "h", due=FAR)
        connection.close()

        assert await timers.get("a") is not None


async def test_an_effect_and_its_acknowledgement_commit_together(path: Path) -> None:
    """A handler that fails before its commit is called again; one that fails after it is not."""
    calls = rolled_back = 0
    timers = DurableTimers(SQLiteStore(path))
    connection = sqlite3.connect(path)
    connection.row_factory = sqlite3.Row
    connection.execute("CREATE TABLE effects (fire TEXT)")
    connection.commit()

    @timers.handler("h", retry=Retry(5, backoff=0))
    async def handle(fire: Fire) -> None:
        nonlocal calls, rolled_back
        calls += 1
        with connection:
            connection.execute("INSERT INTO effects VALUES (?)", (fire.id,))
            rolled_back += 1
            if calls == 1:
                raise ValueError("before the commit: rolled back")
            await fire.ack_in(connection)  # raises as well if the timer was cancelled meanwhile
            rolled_back -= 1
        raise ValueError("after the commit: too late")

    async with timers:
        await timers.schedule("a", "h", due=NOW)
        await until(lambda: timers.statistics().acknowledged == 1)
        await timers.every("b", "h", 0.2, first=NOW)
        await until(lambda: calls >= 4)
        assert await timers.cancel("b") in {True, False}
    (effects,) = connection.execute("SELECT count(*) FROM effects").fetchone()
    connection.close()

    assert effects == calls - rolled_back
    assert rolled_back >= 1


async def test_a_stale_fire_cannot_be_acknowledged(path: Path) -> None:
    """The error rolls back the transaction."""
    raised: list[Exception] = []
    timers = DurableTimers(SQLiteStore(path))
    connection = sqlite3.connect(path)

    @timers.handler("h")
    async def handle(fire: Fire) -> None:
        await timers.schedule("a", "h", due=FAR)  # replaces the timer whose handler runs
        try:
            with connection:
                await fire.ack_in(connection)
        except StaleFireError as error:
            raised.append(error)

    async with timers:
        await timers.schedule("a", "h", due=NOW)
        await until(lambda: raised != [])
        assert await timers.get("a") is not None
    connection.close()


async def test_timers_that_are_closed_while_they_are_opened_end_the_block(path: Path) -> None:
    """The block raises, and the partitions are free for another process at once."""
    timers = DurableTimers(SQLiteStore(path))
    entering = asyncio.create_task(timers.__aenter__())
    await asyncio.sleep(0)
    await timers.aclose()
    with pytest.raises(DurableTimersClosedError, match="while they were opened"):
        await entering
    await timers.aclose()
    store = SQLiteStore(path)
    await store.open()
    owners = (await store.summary()).owners
    await store.aclose()

    assert timers.closed
    assert owners == {"": 8}


async def test_connections_of_others_are_refused(path: Path, tmp_path: Path) -> None:
    """Another type, another file and autocommit mode are refused."""
    mode: dict[str, Any] = {"isolation_level": None}
    if sys.version_info >= (3, 12):
        mode = {"autocommit": True}
    async with DurableTimers(SQLiteStore(path)) as timers:
        other = sqlite3.connect(tmp_path / "other.db")
        automatic = sqlite3.connect(path, isolation_level=None)
        newly = sqlite3.connect(path, **mode)
        wrong: Any
        for wrong, error in (
            *((None, TypeError), (other, TypeError)),
            *((automatic, ValueError), (newly, ValueError)),
        ):
            with pytest.raises(error, match="connection must be"):
                await timers.schedule_in(wrong, "a", "h", due=NOW)
        for each in (other, automatic, newly):
            each.close()


@pytest.mark.parametrize("text_factory", [str, bytes])
async def test_an_attached_store_is_used_if_its_tables_come_first(
    text_factory: type, path: Path, tmp_path: Path
) -> None:
    """Otherwise the statements would write the timer to the tables of another file."""
    other, plain = tmp_path / "other.db", tmp_path / "plain.db"
    async with DurableTimers(SQLiteStore(other)):
        pass
    async with DurableTimers(SQLiteStore(path)) as timers:
        for main in (plain, other):
            connection = sqlite3.connect(main)
            connection.text_factory = text_factory
            connection.execute("ATTACH ? AS 'a \"shop\"'", (str(path),))
            if main == plain:
                assert await timers.schedule_in(connection, "a", "h", due=FAR)
                connection.commit()
                connection.execute("CREATE TEMP TABLE AIOWHEEL_TIMERS (id)")
            with pytest.raises(TypeError, match="connection must be one of"):
                await timers.schedule_in(connection, "b", "h", due=FAR)
            connection.close()

        assert [row.name async for row in timers.pending()] == ["a"]


async def test_a_store_object_serves_one_durable_timers(path: Path) -> None:
    """A second one is refused while the first is open, and does not close its connections."""
    await refuse_a_second_use(SQLiteStore(path))


async def test_two_stores_on_one_file_share_the_timers(path: Path) -> None:
    """A change by one process reaches the other, and one takes over from the other."""
    await share_and_take_over([SQLiteStore(path) for _ in range(2)], 1)


FORKED = """
import asyncio, os, sys
from aiowheel.durable import DurableTimers, SQLiteStore

timers = DurableTimers(SQLiteStore(sys.argv[1]), lease=1)
child = os.fork()

async def share():
    async with timers, asyncio.timeout(60):
        while timers.statistics().partitions != 4:
            await asyncio.sleep(0.01)
        os.write(1, f"{timers.owner}\\n".encode())
        while len((await timers.summary()).owners) < 2:
            await asyncio.sleep(0.01)
        await asyncio.sleep(1)

asyncio.run(share())
if child:
    assert os.waitpid(child, 0)[1] == 0
"""


@pytest.mark.posix
def test_processes_that_were_forked_share_the_partitions(path: Path) -> None:
    """A server that loads the program before it forks makes one object for all its workers."""
    program = [sys.executable, "-c", FORKED, str(path)]
    owners = subprocess.run(program, check=True, stdout=subprocess.PIPE, timeout=100).stdout.split()

    assert len(set(owners)) == len(owners) == 2


async def test_a_locked_file_is_an_error_and_firing_goes_on_after_it(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Calls raise instead of hanging."""
    monkeypatch.setattr("aiowheel.durable._sqlite._BUSY_SECONDS", 0.1)
    fired = Fired()
    timers = DurableTimers(SQLiteStore(path), lease=1)
    timers.handler("h")(fired)
    async with timers:
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreError, match="locked"):
            await timers.schedule("a", "h", due=NOW)
        await until(lambda: timers.statistics().store_errors >= 2)
        other.execute("ROLLBACK")
        other.close()
        await timers.schedule("b", "h", due=NOW)
        await until(lambda: "b" in fired.names)


@pytest.mark.usefixtures("small_disk")
async def test_a_full_disk_is_an_error(path: Path) -> None:
    """The error is raised when the tables are created."""
    with pytest.raises(StoreError, match="disk"):
        async with DurableTimers(SQLiteStore(path)):
            pass


async def test_tables_that_do_not_fit_are_refused(path: Path) -> None:
    """A newer version and other partitions raise, and no connection stays open."""
    async with DurableTimers(SQLiteStore(path, partitions=4)):
        pass
    async with DurableTimers(SQLiteStore(path)) as timers:
        assert timers.statistics().partitions == 4
    with pytest.raises(StoreVersionError, match="partitions must be 4, as in the tables, got 5"):
        async with DurableTimers(SQLiteStore(path, partitions=5)):
            pass
    for version, advice in ((99, "update aiowheel"), (0, "use the release that made them")):
        with sqlite3.connect(path) as connection:
            connection.execute(
                "UPDATE aiowheel_meta SET value = ? WHERE key = 'version'", [version]
            )
        connection.close()
        text = f"the tables must be of version 1, got {version}: {advice}, or drop the tables"
        with pytest.raises(StoreVersionError, match=text):
            async with DurableTimers(SQLiteStore(path)):
                pass


async def test_a_timer_of_a_missing_partition_is_refused(path: Path) -> None:
    """No process would fire it."""
    store = SQLiteStore(path, partitions=2)
    await store.open()
    name, other = (next(n for n in "abcdef" if part_of(n, 2) == part) for part in (1, 0))
    with sqlite3.connect(path) as connection:
        connection.execute("DELETE FROM aiowheel_parts WHERE part = 1")
    connection.close()
    put = Put(name, "h", 0, b"")

    for puts in ([put], [put._replace(name=other), put]):
        with pytest.raises(StoreError, match="partition 1 is missing in aiowheel_parts"):
            await store.commit("me", puts)
    assert await store.rows() == []
    await store.commit("me", [put._replace(name=other)])

    assert [row.name for row in await store.rows()] == [other]
    await store.aclose()


async def test_a_payload_that_is_text_is_a_flaw(path: Path) -> None:
    """Its timer could not fire."""
    store = SQLiteStore(path)
    await store.open()
    await store.commit("", [Put("a", "h", 0, b"1"), Put("b", "h", 0, b"2")])
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE aiowheel_timers SET payload = 'text' WHERE name = 'a'")
    connection.close()

    assert await store.check() == ["timer 'a' has the payload '', which is no bytes"]

    await store.aclose()


async def test_a_folder_that_is_missing_is_an_error(tmp_path: Path) -> None:
    """The error is one line with the path; once there is a folder, the same object is opened."""
    timers = DurableTimers(SQLiteStore(tmp_path / "nowhere" / "app.db"))
    with pytest.raises(StoreError, match="nowhere"):
        await timers.__aenter__()
    (tmp_path / "nowhere").mkdir()
    async with timers:
        assert not timers.closed


def test_one_object_serves_one_event_loop_after_another(path: Path) -> None:
    """Tests start an application with an object in its module again and again."""
    fired = Fired()
    timers = DurableTimers(SQLiteStore(path))
    timers.handler("h")(fired)

    async def serve(name: str) -> None:
        async with timers:
            await timers.schedule(name, "h", due=NOW)
            await until(lambda: name in fired.names)

    for name in ("a", "b"):
        asyncio.run(serve(name))

    assert fired.names == ["a", "b"]


async def test_twenty_thousand_overdue_timers_drain_after_a_restart(path: Path) -> None:
    """Each timer fires once, and at most `max_in_flight` fires are unacknowledged."""
    async with DurableTimers(SQLiteStore(path)) as timers:
        from aiowheel.durable import NewTimer

        await timers.schedule_many(NewTimer(f"t{n}", "none", FAR) for n in range(20_000))
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE aiowheel_timers SET due_us = id, handler = 'h'")
    connection.close()
    most = fires = 0
    again = DurableTimers(SQLiteStore(path), max_in_flight=100)

    @again.handler("h")
    async def handle(_: Fire) -> None:
        nonlocal most, fires
        fires += 1
        most = max(most, again.statistics().in_flight if fires % 97 == 0 else 0)

    async with again:
        await until(lambda: again.statistics().acknowledged == 20_000)

    assert fires == 20_000
    assert most <= 100


@pytest.mark.posix
async def test_a_file_that_is_replaced_is_opened_again(path: Path, tmp_path: Path) -> None:
    """After a backup has replaced the file, timers are written to the new file and fire."""
    fired = Fired()
    backup = tmp_path / "backup.db"
    async with DurableTimers(SQLiteStore(backup)):
        pass
    timers = DurableTimers(SQLiteStore(path), lease=1)
    timers.handler("h")(fired)
    async with timers:
        await timers.schedule("old", "h", due=FAR)
        for name in ("app.db-wal", "app.db-shm"):
            (tmp_path / name).unlink()
        backup.rename(path)
        await timers.schedule("new", "h", due=NOW)
        await until(lambda: fired.names == ["new"])
        assert await timers.get("old") is None


@pytest.mark.posix
async def test_a_timer_of_a_backup_that_replaces_the_file_fires_again(
    path: Path, tmp_path: Path
) -> None:
    """The backup has the leases of this process, so that no lease ends."""
    backup = tmp_path / "backup.db"
    timers = DurableTimers(SQLiteStore(path), lease=600)
    began, go_on = asyncio.Event(), asyncio.Event()
    ids: list[str] = []

    @timers.handler("h")
    async def handle(fire: Fire) -> None:
        ids.append(fire.id)
        began.set()
        await go_on.wait()

    async with timers:
        await timers.schedule("a", "h", due=NOW)
        await asyncio.wait_for(began.wait(), 30)
        source, target = sqlite3.connect(path), sqlite3.connect(backup)
        source.backup(target)
        source.close()
        target.close()
        go_on.set()
        await until(lambda: timers.statistics().acknowledged == 1)
        await timers.schedule("later", "h", due=FAR)
        for name in ("app.db-wal", "app.db-shm"):
            (tmp_path / name).unlink()
        backup.rename(path)
        await until(lambda: timers.statistics().acknowledged == 2)

        assert ids == [ids[0]] * 2
        assert await timers.get("later") is None


async def test_a_relative_path_names_the_same_file_in_another_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program may change its folder after it has made the store, as a daemon does."""
    other = tmp_path / "other"
    other.mkdir()
    monkeypatch.chdir(tmp_path)
    store = SQLiteStore("app.db")
    await store.open()
    monkeypatch.chdir(other)
    try:
        await store.commit("me", [Put("a", "h", 1, b"")])
        connection = sqlite3.connect(tmp_path / "app.db")
        ((name,),) = connection.execute("SELECT name FROM aiowheel_timers").fetchall()
        result = await store.put_in(connection, Put("b", "h", 1, b""))
        connection.rollback()
        connection.close()
    finally:
        await store.aclose()

    assert name == "a"
    assert isinstance(result, Placed)
    assert list(other.iterdir()) == []


@pytest.mark.parametrize("prefix", ["b:", "none:"])
async def test_the_rows_of_a_prefix_are_read_without_the_other_names(
    prefix: str, path: Path
) -> None:
    """Otherwise a prefix of few timers would take as long as all timers before or after it."""
    store = SQLiteStore(path)
    await store.open()
    names = [f"{letter}:{n}" for letter in "ayz" for n in range(1000)]
    await store.commit("", [Put(name, "h", 0, b"") for name in [*names, "b:1"]])
    await store.aclose()
    connection = sqlite3.connect(path)
    steps: list[None] = []
    connection.set_progress_handler(lambda: steps.append(None), 1)
    rows = statements.rows(connection, "", prefix, 1000)
    connection.close()

    assert [row.name for row in rows] == (["b:1"] if prefix == "b:" else [])
    assert len(steps) < 1000


async def test_a_prefix_is_found_in_a_file_of_another_encoding(path: Path) -> None:
    """The order of the names is that of the bytes, here of UTF-16."""
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA encoding = 'UTF-16le'")
        connection.execute("CREATE TABLE other (a)")
    connection.close()
    store = SQLiteStore(path)
    await store.open()
    names = [f"{letter}{n}" for letter in "a\xff\u0100\ufffc\U0010ffff" for n in range(3)]
    await store.commit("", [Put(name, "h", 0, b"") for name in names])

    for letter in "a\xff\u0100\ufffc\U0010ffff":
        rows = await store.rows(prefix=letter)
        assert [row.name for row in rows] == [f"{letter}{n}" for n in range(3)]
    await store.aclose()
