"""Connections to SQLite files that several processes share."""

import sqlite3
import time
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace

import pytest

from aiowheel import _sqlite
from aiowheel._sqlite import ConnectionThread, use_wal

pytestmark = pytest.mark.one_build


def test_the_switch_to_a_log_waits_for_a_process_that_writes_to_a_new_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SQLite itself would raise an error at once."""
    path = tmp_path / "new.db"
    with (
        closing(sqlite3.connect(path, isolation_level=None)) as other,
        closing(sqlite3.connect(path, isolation_level=None)) as here,
    ):
        other.execute("BEGIN IMMEDIATE")

        def end_the_other(_seconds: float) -> None:
            other.execute("ROLLBACK")

        # Only for this module: other threads, such as py4j's, sleep as well.
        clock = SimpleNamespace(sleep=end_the_other, monotonic=time.monotonic)
        monkeypatch.setattr(_sqlite, "time", clock)

        use_wal(here, patience=60)

        assert here.execute("PRAGMA journal_mode").fetchone() == ("wal",)


def test_a_file_that_is_locked_for_too_long_is_an_error(tmp_path: Path) -> None:
    """It is the error of SQLite."""
    path = tmp_path / "new.db"
    with (
        closing(sqlite3.connect(path, isolation_level=None)) as other,
        closing(sqlite3.connect(path, isolation_level=None)) as here,
    ):
        other.execute("BEGIN IMMEDIATE")

        with pytest.raises(sqlite3.OperationalError, match="locked"):
            use_wal(here, patience=0)


@pytest.mark.posix
async def test_a_file_that_is_replaced_while_it_is_opened_is_opened_again(tmp_path: Path) -> None:
    """Otherwise each later call would use a file without a name, and no other process sees it."""
    path, backup = tmp_path / "app.db", tmp_path / "backup.db"
    for each in (path, backup):
        with closing(sqlite3.connect(each)) as file:
            file.execute("CREATE TABLE files (name TEXT)")
            file.execute("INSERT INTO files VALUES (?)", (each.name,))
            file.commit()

    def connect(path: Path) -> sqlite3.Connection:
        file = sqlite3.connect(path)
        read(file)  # SQLite opens the file at the first statement
        if backup.exists():
            backup.rename(path)
        return file

    def read(file: sqlite3.Connection) -> list[tuple[str]]:
        return file.execute("SELECT name FROM files").fetchall()

    thread = ConnectionThread("a thread", path, connect)
    await thread.run(read)

    assert await thread.run(read) == [("backup.db",)]
    await thread.aclose()
