"""The page about production: its upgrade with files keeps all timers and dead letters."""

from __future__ import annotations

import asyncio
import re
import shlex
import sqlite3
from collections.abc import Callable
from contextlib import closing, redirect_stdout
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from aiowheel.cli import run
from aiowheel.durable import Cron, Row, SQLiteStore, Store
from aiowheel.durable._recurrence import recurrence_of
from aiowheel.durable.operations import Placed, Put, Settle

pytestmark = [pytest.mark.one_build, pytest.mark.realtime]

PAGE = Path(__file__).parents[2] / "docs/how-to/run-durable-timers.md"
FAR_US = 2**52

NIGHT = recurrence_of(Cron("0 3 * * *", tz="Europe/Paris"), "all").as_text()
OFTEN = recurrence_of(0.5, "skip").as_text()
PENDING = [
    Put("order:1", "pay", FAR_US, bytes(range(256))),
    Put("order:2", "pay", 5, b""),  # it is due, and only the application must fire it
    Put("report", "write", FAR_US + 1, b"all", NIGHT),
    Put("late report", "write", 7, b"all", NIGHT),
    Put("n\xe4me 'q'", "poll", FAR_US + 2, b"", OFTEN),
]
#: Two letters of one name, the name of a pending timer, and a long name.
DEAD = ["lost", "lost", "order:1", "x" * 500, "x" * 500]


async def fill(store: Store) -> list[str]:
    """Write timers and dead letters; return the ids of the failed fires."""
    await store.open()
    epochs = (await store.renew("me", lease_us=10**7, horizon_us=1)).epochs
    for name in DEAD:
        (placed,) = await store.commit("me", [Put(name, "ship", FAR_US, b"box")])
        assert isinstance(placed, Placed)
        row = placed.row
        identity = (row.id, row.name, row.gen, row.part, epochs[row.part])
        bury = Settle(*identity, error="ValueError: no", attempts=5)
        assert await store.commit("me", [bury]) == ["done"]
    await store.commit("me", PENDING)
    await store.release("me")
    fires = [letter.fire_id for letter in await store.dead_letters()]
    await store.aclose()
    return fires


async def content(store: Store) -> tuple[list[Row], int]:
    """Return the timers, and the number of dead letters."""
    await store.open(create=False)
    assert await store.check() == []
    found = await store.rows(), len(await store.dead_letters())
    await store.aclose()
    return found


def follow(where: str, kind: str, client: str, execute: Callable[[str], None]) -> None:
    """Run the commands and the program of the page, for another database than the page's.

    Args:
        where: The file or the address.
        kind: The class of the store.
        client: The command that the page uses for SQL.
        execute: Runs SQL instead.
    """
    section = PAGE.read_text("utf-8").partition("## Back up and upgrade")[2].partition("\n## ")[0]
    lines = [shlex.split(line) for line in re.findall(r"^ *\$ (.+)$", section, re.MULTILINE)]
    for command, *arguments in lines:
        if command == "aiowheel":
            *words, _, file = arguments
            with Path(file).open("w") as output, redirect_stdout(output):
                assert run([where if word == "app.db" else word for word in words]) == 0
        elif command == client:
            execute(arguments[-1])
    (program,) = re.findall(r"^```python\n(.+?)^```$", section, re.MULTILINE | re.DOTALL)
    program = program.replace("SQLiteStore", kind).replace('"app.db"', repr(where))
    for _ in range(2):  # a program that was interrupted is run again
        exec(program, {"__name__": "__main__"})


def is_upgraded(store: Store, fires: list[str]) -> bool:
    """Return whether *store* has all pending timers, and the dead letters as timers."""
    second = f"#{fires[4]}"
    names = ["lost", f"lost#{fires[1]}", f"order:1#{fires[2]}", "x" * 500]
    names.append("x" * (500 - len(second)) + second)
    puts = [*PENDING, *(Put(name, "ship", FAR_US, b"box") for name in names)]
    rows, dead = asyncio.run(content(store))
    found = {
        (row.name, row.handler, row.due_us, row.payload, row.recurrence, row.attempt)
        for row in rows
    }
    return not dead and found == {(*put[:5], 0) for put in puts}


def test_the_recipe_keeps_the_timers_of_sqlite(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pending timers, recurrences and dead letters are in the new tables; none has fired."""
    monkeypatch.chdir(tmp_path)
    fires = asyncio.run(fill(SQLiteStore("app.db")))

    def execute(statements: str) -> None:
        with closing(sqlite3.connect("app.db")) as connection:
            connection.executescript(statements)
            query = "SELECT count(*) FROM sqlite_master WHERE name LIKE '%aiowheel%'"
            assert connection.execute(query).fetchone() == (0,)

    follow("app.db", "SQLiteStore", "sqlite3", execute)

    assert is_upgraded(SQLiteStore("app.db"), fires)


def test_the_recipe_keeps_the_timers_of_postgresql(
    database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same, on PostgreSQL."""
    from aiowheel.durable import PostgresStore

    monkeypatch.chdir(tmp_path)
    fires = asyncio.run(fill(PostgresStore(database)))

    async def drop(statements: str) -> None:
        connection: Any = await import_module("asyncpg").connect(database)
        await connection.execute(statements)
        query = "SELECT count(*) FROM pg_class WHERE relname LIKE 'aiowheel%'"
        assert await connection.fetchval(query) == 0
        await connection.close()

    follow(database, "PostgresStore", "psql", lambda statements: asyncio.run(drop(statements)))

    assert is_upgraded(PostgresStore(database), fires)
