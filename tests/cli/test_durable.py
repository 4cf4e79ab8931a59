"""`aiowheel durable` on an SQLite file."""

from __future__ import annotations

import asyncio
import json
import sqlite3
import time
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from aiowheel.cli import run
from aiowheel.durable import DurableTimers, SQLiteStore, StoreError
from aiowheel.durable.operations import Put, Settle

pytestmark = [pytest.mark.one_build, pytest.mark.realtime]


@pytest.fixture
def store(tmp_path: Path) -> str:
    """A file with three timers and a dead letter."""
    path = tmp_path / "app.db"

    async def fill() -> None:
        opened = SQLiteStore(path)
        async with DurableTimers(opened) as timers:
            far = datetime(2099, 1, 1, tzinfo=UTC)
            for name in ("order:1", "order:2", "mail"):
                await timers.schedule(name, "h", due=far, payload=b"\x01")
            owner = timers.owner
            (placed,) = await opened.commit(owner, [Put("dead", "h", 2**52, b"")])
            row: Any = placed
            epoch = (await opened.renew(owner, lease_us=10**7, horizon_us=1)).epochs[row.row.part]
            bury = Settle(
                row.row.id, row.row.name, 1, row.row.part, epoch, error="ValueError: no", attempts=5
            )
            assert await opened.commit(owner, [bury]) == ["done"]

    asyncio.run(fill())
    return str(path)


def bury_another(store: str) -> None:
    """Add a second dead letter."""
    connection = sqlite3.connect(store, isolation_level=None)
    connection.execute(
        "INSERT INTO aiowheel_dead SELECT id + 1, 'other', handler, due_us, '9.1', attempts,"
        " died_us, error, payload FROM aiowheel_dead"
    )
    connection.close()


def answer(capsys: pytest.CaptureFixture[str], *arguments: str) -> Any:
    """Return the JSON that a command prints."""
    assert run(["durable", *arguments, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_list_counts_and_lists(store: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The output is a table or JSON."""
    found = answer(capsys, "list", store, "--prefix", "order:")
    assert (found["pending"], found["dead"], found["overdue"]) == (3, 1, 0)
    assert [timer["name"] for timer in found["timers"]] == ["order:1", "order:2"]
    assert found["owners"] == {"": 8}

    assert run(["durable", "list", store]) == 0
    text = capsys.readouterr().out
    assert "3 pending, 0 overdue, 1 dead" in text
    assert "2099-01-01 00:00:00.000+00:00" in text


def test_all_timers_and_letters_are_shown_if_the_store_reads_short_pages(
    store: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A PostgreSQL store shortens a page that it cannot read in time."""

    def shortened(read: Any) -> Any:
        return lambda *values, limit, **rest: read(*values, limit=min(limit, 1), **rest)

    bury_another(store)
    monkeypatch.setattr(SQLiteStore, "rows", shortened(SQLiteStore.rows))
    monkeypatch.setattr(SQLiteStore, "dead_letters", shortened(SQLiteStore.dead_letters))

    names = [timer["name"] for timer in answer(capsys, "list", store)["timers"]]
    assert names == ["mail", "order:1", "order:2"]
    assert len(answer(capsys, "list", store, "--limit", "2")["timers"]) == 2
    assert answer(capsys, "dead", store)["count"] == len(answer(capsys, "dead", store)["dead"]) == 2
    shown = answer(capsys, "dead", store, "--limit", "1")
    assert (shown["count"], len(shown["dead"])) == (2, 1)


def test_show_and_cancel_one_timer(store: str, capsys: pytest.CaptureFixture[str]) -> None:
    """An unknown name is refused."""
    found = answer(capsys, "show", store, "order:1")
    assert (found["handler"], found["payload_hex"]) == ("h", "01")
    assert run(["durable", "show", store, "order:1"]) == 0
    text = capsys.readouterr().out
    assert text.endswith("failed attempts: 0\nrecurrence: none\npayload hex: 01\n")
    assert answer(capsys, "cancel", store, "order:1")["will_not_fire"]

    assert run(["durable", "show", store, "order:1"]) == 2
    assert "NAME must be the name of a pending timer, got 'order:1'" in capsys.readouterr().err
    assert run(["durable", "cancel", store, "order:1"]) == 2


def test_a_timer_that_cannot_be_cancelled_now(
    store: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """In PostgreSQL another transaction may hold the timer; its name is right nevertheless."""

    async def refuse(*_: object) -> list[StoreError]:
        return [StoreError("PostgreSQL: canceling statement due to lock timeout")]

    monkeypatch.setattr(SQLiteStore, "commit", refuse)

    assert run(["durable", "cancel", store, "order:1"]) == 1

    error = capsys.readouterr().err
    assert error == "aiowheel: PostgreSQL: canceling statement due to lock timeout\n"


@pytest.mark.parametrize("as_json", [False, True])
def test_a_cancelled_timer_that_may_still_fire(
    as_json: bool,  # noqa: FBT001
    store: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The exit code is 1 if a running process may fire the timer before it reads the change."""

    async def cancel_beside_the_owner() -> int:
        timers = DurableTimers(SQLiteStore(store))
        timers.handler("h")(lambda _: None)
        async with timers:
            await timers.schedule("soon", "h", due=timedelta(seconds=5))
            words = ["durable", "cancel", store, "soon", *(["--json"] if as_json else [])]
            return await asyncio.to_thread(run, words)

    code = asyncio.run(cancel_beside_the_owner())

    printed = capsys.readouterr().out
    assert code == 1
    if as_json:
        assert json.loads(printed) == {"name": "soon", "deleted": True, "will_not_fire": False}
    else:
        assert printed == "soon: deleted, but it may fire or have fired\n"


@pytest.mark.parametrize("command", ["show", "cancel", "list"])
def test_a_name_that_is_not_unicode_is_refused(
    command: str, store: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The shell passes such an argument on; the answer is one line."""
    name = ["--prefix", "\udcff"] if command == "list" else ["\udcff"]
    assert run(["durable", command, store, *name]) in {1, 2}
    assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.parametrize("command", ["list", "dead", "check"])
def test_a_file_of_another_program_is_not_changed(command: str, tmp_path: Path) -> None:
    """A command that only reads leaves the journal mode of the file as it is."""
    path = tmp_path / "other.db"
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE orders (name TEXT)")
    connection.close()
    before = path.read_bytes()

    assert run(["durable", command, str(path)]) == 1

    assert path.read_bytes() == before


@pytest.mark.parametrize("host", ["localhost:port", "localhost:99999", "[::1", "a" * 64])
def test_a_malformed_address_is_refused(host: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The answer is one line."""
    assert run(["durable", "list", f"postgresql://{host}/app"]) == 1
    assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.parametrize("command", ["durable list", "serve --port 0 --store"])
@pytest.mark.parametrize("password", ["hid/den", "hid#den", "hid?den", "hid[den"])
def test_an_address_with_an_unescaped_password_is_refused(
    command: str, password: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The line names the form of an address, and quotes no part of the password."""
    assert run([*command.split(), f"postgresql://user:{password}@127.0.0.1:1/app"]) == 1

    error = capsys.readouterr().err
    assert "postgresql://USER:PASSWORD@HOST:PORT/DATABASE" in error
    assert error.count("\n") == 1
    assert "hid" not in error
    assert "den" not in error


def test_dead_letters_are_listed_and_redriven(
    store: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """A dead letter can be redriven once."""
    (letter,) = answer(capsys, "dead", store)["dead"]
    assert (letter["name"], letter["error"], letter["attempts"]) == ("dead", "ValueError: no", 5)
    assert run(["durable", "dead", store]) == 0
    assert "1 dead letter\n" in capsys.readouterr().out

    assert answer(capsys, "redrive", store, str(letter["id"]))["fire"] == letter["fire"]
    assert run(["durable", "redrive", store, str(letter["id"])]) == 2


def test_all_dead_letters_are_counted(store: str, capsys: pytest.CaptureFixture[str]) -> None:
    """`--limit` shortens the list, and the count is that of all dead letters."""
    bury_another(store)

    assert run(["durable", "dead", store, "--limit", "1"]) == 0
    text = capsys.readouterr().out
    assert "2 dead letters, 1 not shown" in text
    assert "other" not in text
    found = answer(capsys, "dead", store, "--limit", "1")
    assert (found["count"], len(found["dead"])) == (2, 1)


DAMAGE = {
    "drop table aiowheel_dead": "aiowheel_dead has no column error",
    "alter table aiowheel_timers drop column payload": "aiowheel_timers has no column payload",
    "update aiowheel_timers set due_us = 1 << 62": "is due at 4611686018427387904, not in the year",
    "update aiowheel_timers set due_us = 'soon'": "is due at 'soon', not in the years 1 to 9999",
    "update aiowheel_timers set recurrence = '{'": "has the recurrence '{': Expecting property",
    "update aiowheel_timers set name = x'ff00' where name = 'mail'": "the name b'\\xff\\x00': no",
    "drop index aiowheel_timers_name": "aiowheel_timers has no unique index on name",
    "drop index aiowheel_timers_due": "aiowheel_timers has no index on part, due_us",
    "drop table aiowheel_parts; create table aiowheel_parts (part, owner, epoch, until_us, "
    "horizon_us)": "aiowheel_parts has no primary key part",
    "update aiowheel_timers set handler = x'ff'": "has the handler b'\\xff', which is no str",
    "update aiowheel_timers set gen = 'q'": "has the gen 'q', which is no int",
    "update aiowheel_timers set attempt = 'q'": "has the attempt 'q', which is no int",
    "update aiowheel_timers set first_due_us = 'q'": "is due at 'q', not in the years 1 to 9999",
    "update aiowheel_timers set fire_id = x'ff'": "has the fire_id b'\\xff', which is no str",
    'update aiowheel_timers set recurrence = \'{"every_us": 0, "missed": "all"}\'': (
        "every_us must be from 1000 to 2305843009213693, got 0"
    ),
    'update aiowheel_timers set recurrence = \'{"every_us": "5", "missed": "all"}\'': (
        "every_us must be an int from 1000 to 2305843009213693, got '5'"
    ),
    'update aiowheel_timers set recurrence = \'{"every_us": 1000, "missed": "none"}\'': (
        "missed must be one of 'all', 'latest', 'skip', got 'none'"
    ),
    "update aiowheel_timers set name = '' where name = 'mail'": "a timer has the name '': no comm",
}


@pytest.mark.parametrize(("statement", "flaw"), DAMAGE.items(), ids=range(len(DAMAGE)))
def test_check_finds_what_another_program_has_changed(
    statement: str, flaw: str, store: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each flaw has a line; and the other commands end with one line or skip the timer."""
    with closing(sqlite3.connect(store, isolation_level=None)) as connection:
        connection.executescript(statement)

    assert run(["durable", "check", store]) == 1
    assert flaw in capsys.readouterr().out
    for command in (["list", store], ["show", store, "mail"]):
        assert run(["durable", *command]) in {0, 1, 2}
        assert len(capsys.readouterr().err.splitlines()) <= 1


@pytest.mark.parametrize("where", ["", "postgresql://nobody@127.0.0.1:1/none"])
@pytest.mark.parametrize("command", ["show", "cancel"])
def test_no_timer_has_a_name_that_is_not_unicode(
    command: str, where: str, store: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The shell passes any bytes; each database has the same answer, without a connection."""
    assert run(["durable", command, where or store, "x\udcff"]) == 2

    text = "NAME must be the name of a pending timer, got 'x\\udcff'"
    assert capsys.readouterr().err == f"aiowheel: {text}\n"


def test_a_prefix_that_is_not_unicode_is_refused(
    store: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The error names the option and the value."""
    assert run(["durable", "list", store, "--prefix", "x\udcff"]) == 2

    text = "--prefix must be Unicode text, got 'x\\udcff'"
    assert capsys.readouterr().err == f"aiowheel: {text}\n"


def test_a_number_of_partitions_that_cannot_be_is_refused(
    store: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Another program has changed it."""
    with closing(sqlite3.connect(store, isolation_level=None)) as connection:
        connection.execute("UPDATE aiowheel_meta SET value = 0 WHERE key = 'partitions'")

    assert run(["durable", "check", store]) == 1

    text = "the tables must have from 1 to 1024 partitions, got 0"
    assert capsys.readouterr().err == f"aiowheel: {text}\n"


def test_migrate_and_check(store: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The commands run on a new file and on a damaged one."""
    new = str(tmp_path / "new.db")
    assert answer(capsys, "migrate", new) == {"version": 1, "partitions": 8}
    assert answer(capsys, "check", new) == {"flaws": []}
    assert answer(capsys, "check", store) == {"flaws": []}

    connection = sqlite3.connect(store, isolation_level=None)
    connection.execute("UPDATE aiowheel_timers SET part = (part + 1) % 8 WHERE name = 'mail'")
    connection.execute("UPDATE aiowheel_meta SET value = 2 WHERE key = 'version'")
    connection.close()
    assert run(["durable", "check", store]) == 1
    assert "must be of version 1, got 2" in capsys.readouterr().err
    connection = sqlite3.connect(store, isolation_level=None)
    connection.execute("UPDATE aiowheel_meta SET value = 1 WHERE key = 'version'")
    connection.execute("DELETE FROM aiowheel_parts WHERE part = 3")
    connection.close()
    assert run(["durable", "check", store]) == 1
    text = capsys.readouterr().out
    assert "timer 'mail' is in partition" in text
    assert "partition 3 is missing in aiowheel_parts: no process owns it" in text
    assert "2 flaws" in text


@pytest.mark.parametrize("command", ["list", "dead", "check"])
def test_a_file_without_timers_is_refused(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The file is unchanged."""
    missing = tmp_path / "missing.db"
    assert run(["durable", command, str(missing)]) == 2
    assert capsys.readouterr().err == f"aiowheel: {missing}: no such file\n"
    assert not missing.exists()
    text = tmp_path / "text.db"
    text.write_text("this is no database, and it is long enough to be taken for one" * 20)
    assert run(["durable", command, str(text)]) == 1
    assert "not a database" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["list", "POSTGRES://app:hidden@host/app"], "or postgresql://..., got POSTGRES://...\n"),
        (["check", "/"], "STORE must be an SQLite file, got /, which is not a file"),
        (["migrate", "."], "STORE must be an SQLite file, got ., which is not a file"),
        (["redrive", "app.db", str(2**63)], "less than or equal to 9223372036854775807, got "),
        (["list", "app.db", "--limit", str(2**64)], "less than or equal to 1000000, got "),
    ],
)
def test_bad_usage_is_one_line_and_exit_code_2(
    arguments: list[str], text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The line has the value and what is legal."""
    assert run(["durable", *arguments]) == 2
    printed = capsys.readouterr()
    assert text in printed.err
    assert (printed.err.count("\n"), printed.out) == (1, "")


def test_without_a_command_the_help_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    """As with `aiowheel` alone."""
    assert run(["durable"]) == 0
    assert "list     List pending timers, and count the others." in capsys.readouterr().out


def test_export_writes_a_trace(
    store: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It has pending and overdue timers and dead letters; a folder with a trace is refused."""
    pytest.importorskip("pyarrow")
    from aiowheel.trace import read_trace

    now_us = time.time_ns() // 1000

    async def write() -> None:
        opened = SQLiteStore(store)
        await opened.open()
        puts = [
            Put("late", "h", now_us - 5_000_000, b""),
            Put("soon", "h", now_us + 3600_000_000, b""),
            Put("first", "h", -(2**40), b""),
        ]
        await opened.commit("", puts)
        await opened.aclose()

    asyncio.run(write())
    folder = tmp_path / "trace"
    found = answer(capsys, "export", store, "--out", str(folder))
    rows = {row["keys"][0]: row for row in read_trace(folder).to_pylist()}

    assert (found["pending"], found["overdue"], found["dead"]) == (6, 2, 1)
    assert rows.keys() == {"order:1", "order:2", "mail", "late", "soon", "first", "dead"}
    assert rows["late"]["deadline"] == rows["late"]["created"] == (now_us - 5_000_000) * 1000
    assert rows["late"]["lateness"] >= 5_000_000_000
    assert rows["soon"]["finished"] == rows["soon"]["deadline"]
    assert rows["soon"]["deadline"] - rows["soon"]["created"] == 60_000_000_000
    assert (rows["soon"]["purgatory"], rows["soon"]["kind"], rows["soon"]["lateness"]) == (
        *("pending", "h"),
        0,
    )
    assert (rows["dead"]["outcome"], rows["dead"]["checks"]) == ("failed", 5)
    assert sorted(row["operation_id"] for row in rows.values()) == list(range(7))

    near = answer(capsys, "export", store, "--out", str(tmp_path / "near"), "--ahead", "1h30m")
    assert (near["pending"], near["overdue"]) == (3, 2)
    assert run(["durable", "export", store, "--out", str(folder)]) == 2
    assert "must hold no trace yet" in capsys.readouterr().err
    assert run(["durable", "export", store, "--out", str(tmp_path), "--ahead", "inf"]) == 2
    assert "must be 0 s to 1e+09 s, got inf" in capsys.readouterr().err


def test_an_export_that_fails_leaves_no_file(
    store: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The store cannot be read, or the folder is a file. New folders are removed."""
    pytest.importorskip("pyarrow")
    folder = tmp_path / "new" / "trace"
    connection = sqlite3.connect(store, isolation_level=None)
    connection.execute("DROP TABLE aiowheel_dead")
    connection.close()

    assert run(["durable", "export", store, "--out", str(folder)]) == 1
    assert "aiowheel_dead" in capsys.readouterr().err
    assert not folder.parent.exists()
    assert run(["durable", "export", store, "--out", store]) == 2
