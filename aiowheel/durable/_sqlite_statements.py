"""The tables and statements of the SQLite store, on a connection inside a transaction. Rank 4."""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Iterable, Sequence
from contextlib import closing
from itertools import chain, takewhile
from operator import itemgetter
from pathlib import Path
from typing import Any, Final, TypeVar

from aiowheel.durable._databases import (
    PAGE_BYTES,
    answers_of,
    batches_of,
    checked_tables,
    distributed,
    is_acknowledgement,
    missing_parts,
    window_row,
)
from aiowheel.durable.operations import (
    LARGE_PAYLOAD,
    UNREAD,
    Cancel,
    Change,
    Cursor,
    DeadLetter,
    Leased,
    Move,
    Operation,
    Placed,
    Put,
    Redrive,
    Removed,
    Result,
    Row,
    Settle,
    Summary,
    made,
    part_of,
    row_of,
    second_name,
)
from aiowheel.errors import StoreError, TimerExistsError

T = TypeVar("T")

VERSION: Final = 1

_TABLES: Final = """
CREATE TABLE aiowheel_meta (key TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE aiowheel_timers (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    name TEXT NOT NULL,
    handler TEXT NOT NULL,
    part INTEGER NOT NULL,
    due_us INTEGER NOT NULL,
    gen INTEGER NOT NULL,
    attempt INTEGER NOT NULL,
    recurrence TEXT,
    first_due_us INTEGER,
    fire_id TEXT,
    payload BLOB NOT NULL
);
CREATE UNIQUE INDEX aiowheel_timers_name ON aiowheel_timers (name);
CREATE INDEX aiowheel_timers_due ON aiowheel_timers (part, due_us);
CREATE TABLE aiowheel_dead (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    name TEXT NOT NULL,
    handler TEXT NOT NULL,
    due_us INTEGER NOT NULL,
    fire_id TEXT NOT NULL,
    attempts INTEGER NOT NULL,
    died_us INTEGER NOT NULL,
    error TEXT NOT NULL,
    payload BLOB NOT NULL
);
CREATE TABLE aiowheel_parts (
    part INTEGER PRIMARY KEY,
    owner TEXT NOT NULL,
    epoch INTEGER NOT NULL,
    until_us INTEGER NOT NULL,
    horizon_us INTEGER NOT NULL
);
CREATE TABLE aiowheel_members (owner TEXT PRIMARY KEY, until_us INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE aiowheel_inbox (seq INTEGER PRIMARY KEY, part INTEGER NOT NULL, timer INTEGER NOT NULL)
"""

_ROW: Final = ", ".join(Row._fields)
_T_WINDOW_ROW: Final = ", ".join(f"t.{column}" for column in Row._fields).replace(
    "t.payload", f"CASE WHEN length(t.payload) <= {LARGE_PAYLOAD} THEN t.payload END"
)
_DEAD: Final = ", ".join(DeadLetter._fields)
_INSERT: Final = (
    "INSERT INTO aiowheel_timers (name, handler, part, due_us, gen, attempt, recurrence, payload) "
    "VALUES (?, ?, ?, ?, 1, 0, nullif(?, ''), ?) ON CONFLICT (name) DO NOTHING"
)
_REPLACE: Final = (
    "UPDATE aiowheel_timers SET handler = ?, due_us = ?, gen = gen + 1, attempt = 0, "
    "recurrence = ?, first_due_us = NULL, fire_id = NULL, payload = ? WHERE name = ?"
)
# Numbered parameters would be shorter, but are deprecated in the first releases of Python 3.12.
_REVISE: Final = f"{_REPLACE} AND (handler, recurrence, payload) IS NOT (?, ?, ?)"
_MOVE: Final = (
    "UPDATE aiowheel_timers SET due_us = ?, gen = gen + 1, attempt = 0, first_due_us = NULL, "
    f"fire_id = NULL WHERE name = ? RETURNING {_ROW}"
)
_BURY: Final = (
    "INSERT INTO aiowheel_dead (name, handler, due_us, fire_id, attempts, died_us, error, payload) "
    "SELECT name, handler, coalesce(?, first_due_us, due_us), coalesce(fire_id, id || '.' || gen), "
    "?, ?, ?, payload FROM aiowheel_timers WHERE id = ? AND gen = ? AND name = ?"
)
_AGAIN: Final = (
    "UPDATE aiowheel_timers SET due_us = ?, gen = ?, attempt = ?, first_due_us = ?, "
    "fire_id = CASE WHEN gen = ? THEN fire_id END WHERE id = ? AND gen = ? AND name = ?"
)


#: Rows of one INSERT. A call of SQLite releases the interpreter lock, and under load it takes
#: milliseconds to get the lock back: the number of calls determines how long a commit takes.
_SIZES: Final = (100, 10, 1)
_ONE_ROW: Final = "(?, ?, ?, ?, ?, 1, 0, nullif(?, ''), ?)"
_INSERT_ROWS: Final = {
    size: "INSERT OR IGNORE INTO aiowheel_timers "
    "(id, name, handler, part, due_us, gen, attempt, recurrence, payload) "
    f"VALUES {', '.join([_ONE_ROW] * size)}"
    for size in _SIZES
}


def prepare(
    connection: sqlite3.Connection, partitions: int | None, default: int, *, create: bool
) -> int:
    """Create the tables, or check existing ones; return their number of partitions."""
    query = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'aiowheel_meta'"
    if connection.execute(query).fetchone() is None:
        if not create:
            raise StoreError("there are no tables of durable timers in this database")
        for statement in _TABLES.split(";"):
            connection.execute(statement)
        connection.executemany(
            "INSERT INTO aiowheel_meta VALUES (?, ?)",
            [("version", VERSION), ("partitions", partitions or default)],
        )
        connection.executemany(
            "INSERT INTO aiowheel_parts VALUES (?, '', 0, 0, 0)",
            [(n,) for n in range(partitions or default)],
        )
    found = dict(connection.execute("SELECT key, value FROM aiowheel_meta").fetchall())
    return checked_tables(found, VERSION, partitions)


def missing(connection: sqlite3.Connection) -> list[str]:
    """Return a line of text for each column and index that another program has removed."""
    with closing(sqlite3.connect(":memory:")) as new:
        new.executescript(_TABLES)
        tables = _tables_of(new)
        return missing_parts(_parts_of(new, tables), _parts_of(connection, tables))


def _tables_of(connection: sqlite3.Connection) -> list[str]:
    query = "SELECT name FROM sqlite_master WHERE type = 'table' AND name LIKE 'aiowheel%'"
    return [name for (name,) in plain(connection, query)]


def _parts_of(connection: sqlite3.Connection, tables: list[str]) -> list[tuple[str, str]]:
    """Return the columns, the primary keys and the indexes of tables, with the table of each."""
    found: list[tuple[str, str]] = []
    for table in tables:
        columns = plain(connection, f"PRAGMA table_info({table})")
        found += [(table, f"column {name}") for _, name, *_ in columns]
        found += [(table, f"primary key {name}") for _, name, *_, key in columns if key]
        for _, index, is_unique, _, is_partial in plain(connection, f"PRAGMA index_list({table})"):
            query = "SELECT group_concat(name, ', ') FROM pragma_index_info(?)"
            ((names,),) = plain(connection, query, index)
            if not is_partial:
                found.append((table, f"{'unique ' if is_unique else ''}index on {names}"))
    return found


def plain(connection: sqlite3.Connection, query: str, *values: object) -> list[tuple[Any, ...]]:
    """Return all rows as tuples, also if the connection has a row factory."""
    cursor = connection.cursor()
    cursor.row_factory = None
    return cursor.execute(query, values).fetchall()


def lock_in(connection: sqlite3.Connection, file: Path) -> None:
    """Take the lock for writing to *file* in a transaction, unless it has no timers.

    SQLite waits for the lock only if the transaction has read nothing from the file.
    """
    for schema, found in _databases(connection):
        if found and Path(found).resolve() == file:
            try:  # writes nothing, and takes the lock
                connection.execute(f"UPDATE {schema}.aiowheel_meta SET value = value WHERE false")
            except sqlite3.OperationalError as error:
                if error.sqlite_errorcode != sqlite3.SQLITE_ERROR:  # not a missing table
                    raise


def file_of_timers(connection: sqlite3.Connection) -> str | None:
    """Return the file of the timers that statements on *connection* use, or None if there is none.

    SQLite takes the table of the first database that has one: temporary, main, then attached ones.
    """
    for schema, file in _databases(connection):
        query = f"SELECT 1 FROM {schema}.sqlite_master WHERE lower(name) = 'aiowheel_timers'"
        if plain(connection, query):
            return file
    return None


def _databases(connection: sqlite3.Connection) -> list[tuple[str, str]]:
    """Return schema and file of each database, in the order in which SQLite looks for a table."""
    databases = plain(connection, "PRAGMA database_list")  # main is 0, temporary tables are 1
    databases.sort(key=lambda each: (each[0] != 1, each[0]))
    # The names are bytes if the connection reads texts so.
    return [
        ('"' + os.fsdecode(name).replace('"', '""') + '"', os.fsdecode(file or ""))
        for _, name, file in databases
    ]


class _Parts(dict[int, tuple[str, int, int, int]]):
    """Owner, epoch, end of the lease and horizon by partition; each is read at its first use.

    A commit of one operation reads one of 1,024 rows. A missing one is a StoreError.
    """

    def __init__(self, cursor: sqlite3.Cursor) -> None:
        super().__init__()
        self._cursor = cursor

    def __missing__(self, part: int) -> tuple[str, int, int, int]:
        query = "SELECT owner, epoch, until_us, horizon_us FROM aiowheel_parts WHERE part = ?"
        found = self._cursor.execute(query, (part,)).fetchall()
        if not found:
            raise StoreError(f"partition {part} is missing in aiowheel_parts: no process owns it")
        self[part] = found[0]
        return self[part]


class Statements:
    """Executes operations in the transaction that a connection is in.

    Args:
        connection: The connection of the store or of the user.
        owner: The owner that executes the operations. "" for operations in a user's transaction,
            whose changes are always left for the owner of the partition.
        partitions: The number of partitions.
        now_us: The store's time.

    Attributes:
        has_left: Whether a change was left for the owner of a partition.
    """

    def __init__(
        self, connection: sqlite3.Connection, owner: str, partitions: int, now_us: int
    ) -> None:
        self._cursor = connection.cursor()
        self._cursor.row_factory = None
        self._owner = owner
        self._partitions = partitions
        self._now_us = now_us
        self.has_left = False
        self._parts = _Parts(self._cursor)

    def execute_all(self, operations: Sequence[Operation]) -> list[Result]:
        """Execute operations: acknowledgements first, the others in order; see `batches_of`."""
        results: list[Result] = [None] * len(operations)
        for places in batches_of(operations):
            batch: list[Any] = [operations[place] for place in places]
            for place, result in zip(places, self._execute(batch), strict=True):
                results[place] = result
        return results

    def _execute(self, batch: list[Any]) -> list[Result]:
        first: Operation = batch[0]
        match first:
            case Put():
                return self._put_many(batch)
            case Cancel():
                return self._cancel_many(batch)
            case Settle() if is_acknowledgement(first):
                return self._acknowledge(batch)
            case Settle():
                return [self._settle(first)]
            case Move():
                return [self._move(first)]
            case Redrive():
                return [self._redrive(first)]

    def _leave(self, part: int, timer: int, due_us: int | None = None) -> None:
        """Leave a change for the owner, if another process may hold the timer in memory."""
        owner, _, _, horizon_us = self._parts[part]
        if self._owner and (
            owner in {"", self._owner} or (due_us is not None and due_us > horizon_us)
        ):
            return
        self.has_left = True
        self._cursor.execute(
            "INSERT INTO aiowheel_inbox (part, timer) VALUES (?, ?)", (part, timer)
        )

    def _named(self, names: list[str]) -> dict[str, tuple[int, int, int, int]]:
        """Return id, generation, partition and due time of the timers with these names."""
        query = (
            "SELECT json_group_array(json_array(t.name, t.id, t.gen, t.part, t.due_us)) "
            "FROM json_each(?) AS wanted CROSS JOIN aiowheel_timers AS t ON t.name = wanted.value"
        )
        ((found,),) = self._cursor.execute(query, (json.dumps(names),)).fetchall()
        return {name: (timer, gen, part, due) for name, timer, gen, part, due in json.loads(found)}

    def _put_many(self, puts: list[Put]) -> list[Result]:
        """Write timers with different names; new timers take few statements."""
        if len(puts) == 1:
            return [self._put(puts[0])]
        ((last,),) = self._cursor.execute(
            "SELECT coalesce(max(seq), 0) FROM sqlite_sequence WHERE name = 'aiowheel_timers'"
        ).fetchall()
        rows = [
            row_of(put, timer, 1, part_of(put.name, self._partitions))
            for timer, put in enumerate(puts, last + 1)
        ]
        if self._insert(rows) == len(rows):
            return [self._new(row) for row in rows]
        found = self._named([put.name for put in puts])
        return [
            self._new(row) if found[put.name][0] == row.id else self._overwrite(put)
            for put, row in zip(puts, rows, strict=True)
        ]

    def _new(self, row: Row) -> Placed:
        """Return the result of a timer whose name was free."""
        if not self._owner or self._parts[row.part][0] != self._owner:
            self._leave(row.part, row.id, row.due_us)
        return made(Placed, (row, True))

    def _insert(self, rows: list[Row]) -> int:
        """Insert the rows whose names are free; return their number."""
        # Python's sqlite3 searches an adapter for each None and each bytes object, which takes
        # longer than SQLite takes for the value. Text and a bytearray need none.
        fields = [
            (timer, name, handler, part, due_us, recurrence or "", bytearray(payload))
            for timer, name, handler, part, due_us, _, _, recurrence, _, _, payload in rows
        ]
        done = inserted = 0
        for size in _SIZES:
            while len(rows) - done >= size:
                values = list(chain.from_iterable(fields[done : done + size]))
                inserted += self._cursor.execute(_INSERT_ROWS[size], values).rowcount
                done += size
        return inserted

    def _put(self, put: Put) -> Result:
        # Most names are free, and an upsert that returns the id and the generation costs twice as
        # much as a plain INSERT.
        part = part_of(put.name, self._partitions)
        timing = (part, put.due_us, put.recurrence or "")
        values = (put.name, put.handler, *timing, bytearray(put.payload))  # see `_insert`
        timer = self._cursor.execute(_INSERT, values).lastrowid
        if self._cursor.rowcount and timer is not None:
            return self._new(row_of(put, timer, 1, part))
        return self._overwrite(put)

    def _overwrite(self, put: Put) -> Result:
        """Write a timer whose name is taken."""
        if put.if_exists == "error":
            return TimerExistsError(put.name)
        if put.if_exists == "keep":
            return None
        statement = _REPLACE
        values: list[object] = [put.handler, put.due_us, put.recurrence, put.payload, put.name]
        if put.if_exists != "replace":
            statement = _REVISE
            values += [put.handler, put.recurrence, put.payload]
        found = self._cursor.execute(f"{statement} RETURNING id, gen, part", values).fetchall()
        if not found:
            return None
        ((timer, gen, part),) = found
        # The owner may hold the old version of a replaced timer, even if the new one is due late.
        self._leave(part, timer)
        return Placed(row_of(put, timer, gen, part), is_new=False)

    def _move(self, move: Move) -> Result:
        found = self._cursor.execute(_MOVE, (move.due_us, move.name)).fetchall()
        if not found:
            return None
        row = Row(*found[0])
        self._leave(row.part, row.id)
        return Placed(row, is_new=False)

    def _cancel_many(self, cancels: list[Cancel]) -> list[Result]:
        """Delete timers with different names in two statements."""
        known = self._named([cancel.name for cancel in cancels])
        self._delete([timer for timer, *_ in known.values()])
        return [
            self._removed(*known[cancel.name]) if cancel.name in known else None
            for cancel in cancels
        ]

    def _delete(self, timers: list[int]) -> None:
        """Delete timers, given by their ids, in one statement."""
        query = "DELETE FROM aiowheel_timers WHERE id IN (SELECT value FROM json_each(?))"
        self._cursor.execute(query, (json.dumps(timers),))

    def _removed(self, timer: int, gen: int, part: int, due_us: int) -> Removed:
        owner, _, until_us, horizon_us = self._parts[part]
        is_final = (
            owner in {"", self._owner}
            or until_us < self._now_us
            or (min(until_us, horizon_us) < due_us and self._is_known(part, timer))
        )
        self._leave(part, timer, due_us)
        return Removed(timer, gen, due_us, is_final)

    def _is_known(self, part: int, timer: int) -> bool:
        """Return whether the owner of the partition holds no older version of a timer."""
        query = "SELECT 1 FROM aiowheel_inbox WHERE part = ? AND timer = ?"
        return not self._cursor.execute(query, (part, timer)).fetchall()

    def _is_stale(self, settle: Settle) -> bool:
        return self._parts[settle.part][1] != settle.epoch

    def _acknowledge(self, settles: list[Settle]) -> list[Result]:
        """Delete the timers of fires that have ended."""
        stale = [self._is_stale(each) for each in settles]
        current = [each for each, is_stale in zip(settles, stale, strict=True) if not is_stale]
        # SQLite parses a list of numbers several times as fast as one of lists. The join begins
        # with the wanted ids, because an IN would read the whole table.
        ((ids, gens, names),) = self._cursor.execute(
            "SELECT json_group_array(t.id), json_group_array(t.gen), json_group_array(t.name) "
            "FROM json_each(?) AS wanted CROSS JOIN aiowheel_timers AS t ON t.id = wanted.value",
            (json.dumps([each.id for each in current]),),
        ).fetchall()
        stored = set(zip(json.loads(ids), json.loads(gens), json.loads(names), strict=True))
        deleted = stored.intersection((each.id, each.gen, each.name) for each in current)
        self._delete([timer for timer, *_ in deleted])
        return answers_of(settles, stale, deleted)

    def _settle(self, settle: Settle) -> Result:
        execute = self._cursor.execute
        if self._is_stale(settle):
            return "stale"
        identity = (settle.id, settle.gen, settle.name)
        if settle.error is not None:
            values = (settle.dead_due_us, settle.attempts, self._now_us, settle.error)
            execute(_BURY, (*values, *identity))
        if settle.due_us is None:
            query = "DELETE FROM aiowheel_timers WHERE id = ? AND gen = ? AND name = ?"
            execute(query, identity)
        else:
            again = (settle.due_us, settle.next_gen, settle.next_attempt, settle.first_due_us)
            execute(_AGAIN, (*again, settle.next_gen, *identity))
        if not self._cursor.rowcount:
            return "gone"
        if not self._owner and settle.due_us is not None:
            self._leave(settle.part, settle.id)
        return "done"

    def _redrive(self, redrive: Redrive) -> Result:
        query = f"SELECT {_DEAD} FROM aiowheel_dead WHERE id = ?"
        found = self._cursor.execute(query, (redrive.dead_id,)).fetchall()
        if not found:
            return None
        dead = DeadLetter(*found[0])
        put = Put(dead.name, dead.handler, self._now_us, dead.payload, if_exists="keep")
        placed = self._put(put)
        if placed is None:
            placed = self._put(put._replace(name=second_name(dead), if_exists="error"))
        if not isinstance(placed, Placed):
            return placed
        self._cursor.execute("DELETE FROM aiowheel_dead WHERE id = ?", (dead.id,))
        self._cursor.execute(
            "UPDATE aiowheel_timers SET fire_id = ? WHERE id = ?", (dead.fire_id, placed.row.id)
        )
        return Placed(placed.row._replace(fire_id=dead.fire_id), is_new=True)


# --- leases -----------------------------------------------------------------------------------


def renew(
    connection: sqlite3.Connection,
    owner: str,
    now_us: int,
    lease_us: int,
    horizon_us: int,
    give_up: Sequence[int],
) -> Leased:
    """See `Store.renew`."""
    execute = connection.execute
    until_us = now_us + lease_us
    execute("DELETE FROM aiowheel_members WHERE until_us < ?", (now_us,))
    execute("INSERT OR REPLACE INTO aiowheel_members VALUES (?, ?)", (owner, until_us))
    for part in give_up:
        execute(
            "UPDATE aiowheel_parts SET owner = '', until_us = 0, horizon_us = 0 "
            "WHERE part = ? AND owner = ?",
            (part, owner),
        )
    (members,) = execute("SELECT count(*) FROM aiowheel_members").fetchone()
    parts = execute("SELECT part, owner, epoch, until_us FROM aiowheel_parts").fetchall()
    epochs, share, expiry, gained = distributed(parts, members, owner, now_us, give_up)
    for part in gained:
        execute("DELETE FROM aiowheel_inbox WHERE part = ?", (part,))
    connection.executemany(
        "UPDATE aiowheel_parts SET owner = ?, epoch = ?, until_us = ?, horizon_us = ? "
        "WHERE part = ?",
        [(owner, epoch, until_us, now_us + horizon_us, part) for part, epoch in epochs.items()],
    )
    return Leased(now_us, epochs, share, expiry, changes(connection, owner))


def release(connection: sqlite3.Connection, owner: str) -> None:
    """See `Store.release`."""
    connection.execute("DELETE FROM aiowheel_members WHERE owner = ?", (owner,))
    connection.execute(
        "UPDATE aiowheel_parts SET owner = '', until_us = 0, horizon_us = 0 WHERE owner = ?",
        (owner,),
    )


_OWN_PARTS: Final = "(SELECT part FROM aiowheel_parts WHERE owner = ?)"


def has_changes(connection: sqlite3.Connection, owner: str) -> tuple[bool, bool]:
    """Return whether there are changes for *owner*, and whether a partition has no owner."""
    query = (
        f"SELECT EXISTS (SELECT 1 FROM aiowheel_inbox WHERE part IN {_OWN_PARTS}), "
        "EXISTS (SELECT 1 FROM aiowheel_parts WHERE owner = '')"
    )
    is_any, is_free = connection.execute(query, (owner,)).fetchone()
    return bool(is_any), bool(is_free)


def changes(connection: sqlite3.Connection, owner: str) -> list[Change]:
    """Remove and return the changes for *owner*."""
    query = f"DELETE FROM aiowheel_inbox WHERE part IN {_OWN_PARTS} RETURNING timer"
    timers = dict.fromkeys(timer for (timer,) in connection.execute(query, (owner,)).fetchall())
    # The owner does not hold a timer beyond its horizon, whose payload would be read in vain.
    query = (
        f"SELECT {_T_WINDOW_ROW} FROM json_each(?) AS wanted "
        "CROSS JOIN aiowheel_timers AS t ON t.id = wanted.value "
        "JOIN aiowheel_parts AS p ON p.part = t.part AND t.due_us <= p.horizon_us"
    )
    found = connection.execute(query, (json.dumps(list(timers)),))
    rows = {row[0]: window_row(row) for row in found}
    return [Change(timer, rows.get(timer)) for timer in timers]


# --- reading ----------------------------------------------------------------------------------

# The type of a payload alone is checked, without its bytes. `substr` of an empty blob is NULL.
_KIND: Final = "CASE typeof(payload) WHEN 'blob' THEN x'' ELSE substr(payload, 1, 0) END"
#: All timers, without the bytes of their payloads.
CHECKED: Final = f"SELECT {_ROW.replace('payload', _KIND)} FROM aiowheel_timers"

# The whole page is one row of text, for the reason given at `_SIZES`.
# The inner SELECT would read every payload if it returned that column.
_SMALL: Final = _ROW.replace(
    "payload", f"CASE WHEN length(payload) <= {LARGE_PAYLOAD} THEN hex(payload) END AS payload"
)
_PAGE: Final = (
    f"SELECT json_group_array(json_array({_ROW})) FROM (SELECT {_SMALL} FROM aiowheel_timers "
    "WHERE part = ? AND (due_us, id) > (?, ?) AND due_us <= ? ORDER BY due_us, id LIMIT ?)"
)


def page(connection: sqlite3.Connection, cursor: Cursor, until_us: int, limit: int) -> list[Row]:
    """Return rows of one partition in order, after the cursor; large payloads are not read."""
    values = (cursor.part, cursor.due_us, cursor.id, until_us, limit)
    (found,) = connection.execute(_PAGE, values).fetchone()
    return [
        Row._make([*row, UNREAD if payload is None else bytes.fromhex(payload)])
        for *row, payload in json.loads(found)
    ]


def get(connection: sqlite3.Connection, name: str) -> Row | None:
    """Return the timer of that name."""
    query = f"SELECT {_ROW} FROM aiowheel_timers WHERE name = ?"
    row = connection.execute(query, (name,)).fetchone()
    return None if row is None else Row(*row)


def rows(connection: sqlite3.Connection, after: str, prefix: str, limit: int) -> list[Row]:
    """Return timers by name."""
    # The plus makes SQLite begin at the first bound instead of at *after*, which may be "".
    query = (
        f"SELECT substr(name, 1, ?) = ?, length(payload), {_ROW} FROM aiowheel_timers "
        "WHERE name >= max(?, ?) AND +name > ? ORDER BY name LIMIT ?"
    )
    # The names with the prefix follow each other in each encoding of the file, so that the first
    # other name ends the search. The cursor is closed at once, because it is a reader.
    values = (len(prefix), prefix, after, prefix, after, limit)
    with closing(connection.execute(query, values)) as found:
        return _page_of((size, Row(*row)) for _, size, *row in takewhile(itemgetter(0), found))


def dead_letters(connection: sqlite3.Connection, after: int, limit: int) -> list[DeadLetter]:
    """Return dead letters by id."""
    query = f"SELECT length(payload), {_DEAD} FROM aiowheel_dead WHERE id > ? ORDER BY id LIMIT ?"
    with closing(connection.execute(query, (after, limit))) as found:
        return _page_of((size, DeadLetter(*row)) for size, *row in found)


def _page_of(rows: Iterable[tuple[int, T]]) -> list[T]:
    """Return the first rows, up to `PAGE_BYTES` of payloads; each comes with its payload's size."""
    page: list[T] = []
    left = PAGE_BYTES
    for size, row in rows:
        page.append(row)
        left -= size
        if left <= 0:
            break
    return page


def summary(connection: sqlite3.Connection, now_us: int) -> Summary:
    """Return the counts of the tables."""
    execute = connection.execute
    pending, overdue = execute(
        "SELECT count(*), coalesce(sum(due_us <= ?), 0) FROM aiowheel_timers", (now_us,)
    ).fetchone()
    (dead,) = execute("SELECT count(*) FROM aiowheel_dead").fetchone()
    owners = dict(execute("SELECT owner, count(*) FROM aiowheel_parts GROUP BY owner").fetchall())
    hours = [0] * 24
    for hour, count in execute(
        "SELECT max(0, (due_us - ?) / 3600000000) AS hour, count(*) FROM aiowheel_timers "
        "WHERE due_us < ? GROUP BY hour",
        (now_us, now_us + 24 * 3_600_000_000),
    ).fetchall():
        hours[hour] += count
    return Summary(pending, overdue, dead, owners, hours)
