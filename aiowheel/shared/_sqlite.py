"""Shared counters in a SQLite file: the processes of one machine, without a server. Rank 4.

A hint is a message to the Unix datagram socket of each process: the revision of a write and its
values. If the process has the revision before it, it uses the values. If the process has missed a
revision, it reads the counters that have changed since from the file. It does the same if many
messages have arrived at once, because a full queue drops messages. If no message arrives, the
process finds the change when it reads the file's `data_version`, every quarter of a second.
"""

from __future__ import annotations

import asyncio
import json
import os
import sqlite3
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from functools import partial
from typing import TypeVar

from aiowheel._arguments import checked_bool
from aiowheel._background import LastingTask
from aiowheel._bells import BARE, CERTAINLY_ALL, LONGEST_MESSAGE, Bells
from aiowheel._events import emit
from aiowheel._printable import error_repr
from aiowheel._sqlite import (
    FileLook,
    check_in_transaction,
    checked_file,
    identity_of,
    transaction,
)
from aiowheel.errors import StoreUnavailableError
from aiowheel.shared._outage import Outage
from aiowheel.shared._sqlite_thread import SqliteThread
from aiowheel.shared._store import (
    CounterPage,
    HintListener,
    checked_key,
    checked_value,
    hint_values,
    new_epoch,
    page_of,
)

T = TypeVar("T")

_POLL = 0.25  # seconds between two looks at the file's version
_SLICE = 1_000  # values that are delivered in one turn of the loop

_PROPOSE = "INSERT OR IGNORE INTO aiowheel_epoch VALUES (1, ?, 0)"
_NEXT_REV = "UPDATE aiowheel_epoch SET rev = rev + 1 WHERE one = 1 RETURNING epoch, rev"
_EPOCH = "SELECT epoch, rev FROM aiowheel_epoch"
_BEGIN_ANEW = "UPDATE aiowheel_epoch SET epoch = ?"
_RAISE = """
INSERT INTO aiowheel_counters VALUES (?, ?, ?) ON CONFLICT (key) DO UPDATE
SET value = excluded.value, rev = excluded.rev WHERE excluded.value > value
"""
_ADD_ONE = """
INSERT INTO aiowheel_counters VALUES (?, 1, ?) ON CONFLICT (key) DO UPDATE
SET value = value + 1, rev = excluded.rev
"""
_VALUE = "SELECT value FROM aiowheel_counters WHERE key = ?"
_FORGET = "DELETE FROM aiowheel_counters WHERE key = ?"
_PAGE = """
SELECT key, value FROM aiowheel_counters WHERE key >= ? AND key > ? ORDER BY key LIMIT ?
"""
_ADD = "INSERT OR IGNORE INTO aiowheel_counters VALUES (?, ?, ?)"
_RAISE_FROM = "UPDATE aiowheel_counters SET value = ?, rev = ? WHERE key = ? AND value = ?"
_FORGET_AT = "DELETE FROM aiowheel_counters WHERE key = ? AND value = ?"
_CHANGED = "SELECT key, value FROM aiowheel_counters WHERE rev > ?"


class SqliteCounters:
    """A `CounterStore` in a SQLite file, for the processes of one machine.

    The file may be the application's own database: the store adds two tables, `aiowheel_counters`
    and `aiowheel_epoch`, and switches it to write-ahead logging. A folder beside the file, whose
    name is that of the file and `-hints`, has a socket for each process. Keep both on a local disk.

    Two threads run the statements, so that neither the disk nor another writer blocks the loop.
    A crash of a process loses nothing. If the machine loses power, the last writes may be lost
    unless *synced* is True; tokens of lost values raise `EpochChangedError`.

    Args:
        path: The file; a missing file is created, a missing folder is not.
        synced: Whether every write waits for the disk, so that a loss of power loses no write.

    Raises:
        TypeError: *path* is not a path, or *synced* not a bool.
        ValueError: *path* names no file, as `:memory:` does.
    """

    def __init__(self, path: str | os.PathLike[str], *, synced: bool = False) -> None:
        checked_bool("synced", synced)
        self._path = checked_file(path).absolute()
        self._writer = SqliteThread(self._path, "aiowheel sqlite writer", synced=synced)
        self._reader = SqliteThread(self._path, "aiowheel sqlite reader", synced=synced)
        self._bells = Bells(self._path, "-hints")
        self._must_read: asyncio.Event  # made by `open`, because an event belongs to one loop
        self._task: LastingTask | None = None
        self._next_poll: asyncio.TimerHandle | None = None
        self._seen = ("", -1)  # epoch and revision of the last delivered hint
        self._identity: tuple[int, int] | None = None  # of the file of that revision
        self._look = FileLook(self._path)

    async def open(self, listener: HintListener) -> None:
        """Create missing tables, and listen; see `CounterStore`."""
        loop = asyncio.get_running_loop()
        self._must_read = asyncio.Event()
        # A file that is no database raises here, before there is a folder of sockets for it.
        await self._reader.run(_read_all, ())
        with suppress(OSError):  # without a socket, `_watch` still polls the file
            self._bells.listen(loop, partial(self._take, listener))
        self._look.may_have_changed()  # notes the version, so that `_poll` finds later changes
        self._identity = identity_of(self._path)
        self._seen, _ = await self._reader.run(_read_all, ())
        self._task = LastingTask(partial(self._watch, listener), "aiowheel sqlite hints")
        self._next_poll = loop.call_later(_POLL, self._poll)

    async def raise_to(self, values: Mapping[str, int]) -> str:
        """Raise counters to values; see `CounterStore`."""
        return await self._writer.run(self._raised, dict(values))

    async def add_one(self, keys: Collection[str]) -> str:
        """Add one to counters; see `CounterStore`."""
        names = list(keys)

        def write(file: sqlite3.Connection) -> str:
            epoch, rev = _next_rev(file)
            file.executemany(_ADD_ONE, [(key, rev) for key in names])
            return epoch

        return await self._writer.run(self._written, write)

    def advance_in(self, connection: sqlite3.Connection, key: str, value: int) -> None:
        """Raise a counter in a transaction of the caller, on the caller's connection to the file.

        The value takes effect when the transaction is committed; waits see it within a quarter of a
        second. The store must have been opened once, by any process.

        Raises:
            TypeError, ValueError: *key* or *value* is out of range, or *connection* is in
                autocommit mode without a transaction.
            sqlite3.Error: The statement failed.
        """
        name, least = checked_key(key), checked_value("value", value)
        check_in_transaction(connection)
        _, rev = _next_rev(connection)
        connection.execute(_RAISE, (name, least, rev))

    def forget_in(self, connection: sqlite3.Connection, keys: Collection[str]) -> None:
        """Remove counters in a transaction of the caller; see `advance_in`.

        Raises:
            sqlite3.Error: The statement failed.
        """
        connection.executemany(_FORGET, [(key,) for key in keys])

    def begin_anew_in(self, connection: sqlite3.Connection) -> None:
        """Begin a new epoch in a transaction of the caller; see `advance_in`.

        The counters keep their values. Every wait for them ends with `EpochChangedError`.

        Raises:
            sqlite3.Error: The statement failed.
        """
        _next_rev(connection)
        connection.execute(_BEGIN_ANEW, (new_epoch(),))

    async def write(self, step: Callable[[sqlite3.Connection], T]) -> T:
        """Call `step(connection)` in a transaction, on the thread and connection of the store.

        The waits of every process see the values that *step* publishes by `advance_in` at once. One
        step runs at a time, in the order of the calls. Cancelling the call does not undo the write.

        Raises:
            StoreUnavailableError: The file is locked for too long, or cannot be used at present.
        """
        return await self._writer.run(self._written, step)

    async def query(self, step: Callable[[sqlite3.Connection], T]) -> T:
        """Call `step(connection)`, which only reads, in a transaction with one snapshot.

        The snapshot has every write that had returned, in any process, before the call. Errors are
        those of `write`.
        """
        return await self._reader.run(_in_snapshot, step)

    async def read(self, keys: Collection[str]) -> tuple[str, dict[str, int]]:
        """Read counters; see `CounterStore`."""
        (epoch, _), values = await self._reader.run(_read_all, tuple(keys))
        return epoch, values

    async def scan(self, prefix: str, after: str = "", limit: int = 1000) -> CounterPage:
        """List counters; see `CounterStore`."""

        def page(file: sqlite3.Connection) -> CounterPage:
            # SQLite seeks to the first bound and walks from there, so the first is the greater one.
            rows = file.execute(_PAGE, (max(prefix, after), after, limit)).fetchall()
            ((epoch, _),) = file.execute(_EPOCH).fetchall()
            return page_of(epoch, rows, prefix, limit)

        return await self._reader.run(_in_history, page)

    async def compare_and_raise(
        self, changes: Mapping[str, tuple[int | None, int | None]]
    ) -> tuple[str, set[str]]:
        """Change the counters that have their expected values; see `CounterStore`."""
        items = list(changes.items())

        def write(file: sqlite3.Connection) -> tuple[str, set[str]]:
            epoch, rev = _next_rev(file)
            changed = {key for key, (old, new) in items if _change(file, rev, key, old, new)}
            return epoch, changed

        return await self._writer.run(self._written, write)

    async def now_ms(self) -> int:
        """Return the machine's time; see `CounterStore`."""
        return time.time_ns() // 1_000_000

    async def forget(self, keys: Collection[str]) -> None:
        """Remove counters; see `CounterStore`."""
        names = list(keys)
        await self._writer.run(_in_transaction, lambda file: self.forget_in(file, names))

    async def aclose(self) -> None:
        """End the threads, and remove the socket; see `CounterStore`."""
        if self._next_poll is not None:
            self._next_poll.cancel()
        self._look.close()
        task, self._task = self._task, None
        async with AsyncExitStack() as steps:  # each runs even if this call is cancelled
            steps.callback(self._bells.close)
            steps.push_async_callback(self._reader.aclose)
            steps.push_async_callback(self._writer.aclose)  # its thread may use the bells
            if task is not None:
                steps.push_async_callback(task.end)

    def _raised(self, file: sqlite3.Connection, values: dict[str, int]) -> str:
        with transaction(file):
            epoch, rev = _next_rev(file)
            file.executemany(_RAISE, [(key, value, rev) for key, value in values.items()])
        self._bells.ring(_message(epoch, rev, values))
        return epoch

    def _written(self, file: sqlite3.Connection, write: Callable[[sqlite3.Connection], T]) -> T:
        result = _in_transaction(file, write)
        self._bells.ring()
        return result

    def _take(self, listener: HintListener, messages: Sequence[bytes]) -> None:
        """Deliver hints that follow the last one; otherwise have `_watch` read the file."""
        epoch, seen = self._seen
        hints = _hints_after(epoch, seen, messages)
        if hints is None:
            self._must_read.set()
            return
        for values in hints:
            listener.hint(epoch, values)
        self._seen = (epoch, seen + len(hints))

    def _poll(self) -> None:
        """Have `_watch` read the file if it has changed; called every quarter of a second."""
        # A callback of the loop, because a task that wakes up this often costs twice as much.
        self._next_poll = asyncio.get_running_loop().call_later(_POLL, self._poll)
        if self._look.may_have_changed():
            self._must_read.set()

    async def _watch(self, listener: HintListener) -> None:
        """Deliver hints for changes of the file whenever it must be read."""
        outage = Outage("sqlite")
        while True:
            await self._must_read.wait()
            self._must_read.clear()
            self._look.may_have_changed()  # notes the version, as in `open`
            before, self._identity = self._identity, identity_of(self._path)
            if before != self._identity:  # a backup may have other counters at that revision
                self._seen = ("", -1)
            try:
                (epoch, rev), values = await self._reader.run(_changes, self._seen)
                outage.ended()
                if self._seen[0] != epoch or self._seen[1] < rev:  # no message came meanwhile
                    self._seen = (epoch, rev)
                if values is None:
                    listener.gap()
                    continue
                for start in range(0, len(values), _SLICE):
                    listener.hint(epoch, dict(values[start : start + _SLICE]))
                    await asyncio.sleep(0)
            except StoreUnavailableError as error:
                outage.failed(error)
                self._look.close()  # the change was not read, so the next look must find it again
                await asyncio.sleep(_POLL)
            except asyncio.CancelledError:
                self._seen = ("", -1)  # see below; the task may start again
                self._must_read.set()
                raise
            except Exception as error:  # the task must survive any error
                emit("aiowheel.shared_listen_failed", store="sqlite", error=error_repr(error))
                self._look.close()
                self._seen = ("", -1)  # a hint may be lost, which the next look reports as a gap
                await asyncio.sleep(_POLL)


def _message(epoch: str, rev: int, values: Mapping[str, int]) -> bytes:
    """Return the message for a write; it has no values if they are too long."""
    message = json.dumps([epoch, rev, values], separators=(",", ":")).encode()
    return message if len(message) <= LONGEST_MESSAGE else BARE


def _hints_after(epoch: str, seen: int, messages: Sequence[bytes]) -> list[dict[str, int]] | None:
    """Return the values of each revision after *seen*; None if the file must be read."""
    if len(messages) > CERTAINLY_ALL:
        return None
    found: dict[int, dict[str, int]] = {}
    try:
        for message in messages:
            its_epoch, rev, sent = json.loads(message.decode())  # faster than for bytes
            values = hint_values(sent)
            if its_epoch != epoch or type(rev) is not int or values is None:
                return None
            if rev > seen:  # an earlier one came after the file was read
                found[rev] = values
    except (TypeError, ValueError, RecursionError):  # no values, or a malformed message
        return None
    # Processes commit in the order of the revisions, but may send messages in another order.
    following = range(seen + 1, seen + 1 + len(found))
    return [found[rev] for rev in following] if all(rev in found for rev in following) else None


# --- statements, on the thread of a connection ------------------------------------------------


def _changes(
    file: sqlite3.Connection, seen: tuple[str, int]
) -> tuple[tuple[str, int], list[tuple[str, int]] | None]:
    """Return epoch, revision and the values changed since *seen*; None for another history."""
    known_epoch, known = seen
    with transaction(file, "BEGIN"):
        epoch, rev = file.execute(_EPOCH).fetchone() or ("", 0)
        same = epoch == known_epoch and rev >= known
        values = file.execute(_CHANGED, (known,)).fetchall() if same and rev > known else []
    return (epoch, rev), values if same else None


def _in_transaction(file: sqlite3.Connection, write: Callable[[sqlite3.Connection], T]) -> T:
    with transaction(file):
        return write(file)


def _in_snapshot(file: sqlite3.Connection, read: Callable[[sqlite3.Connection], T]) -> T:
    with transaction(file, "BEGIN"):
        return read(file)


def _next_rev(file: sqlite3.Connection) -> tuple[str, int]:
    """Return the epoch and the revision of a write; a file without an epoch gets a new one."""
    cursor = file.cursor()
    cursor.row_factory = None  # the connection may be a caller's
    rows = cursor.execute(_NEXT_REV).fetchall()
    if not rows:
        file.execute(_PROPOSE, (new_epoch(),))
        rows = cursor.execute(_NEXT_REV).fetchall()
    ((epoch, rev),) = rows
    return epoch, rev


def _change(file: sqlite3.Connection, rev: int, key: str, old: int | None, new: int | None) -> bool:
    """Change one counter if it stands at *old*; return whether it did."""
    if old is None:
        return file.execute(_ADD, (key, new, rev)).rowcount == 1
    if new is None:
        return file.execute(_FORGET_AT, (key, old)).rowcount == 1
    return file.execute(_RAISE_FROM, (new, rev, key, old)).rowcount == 1


def _in_history(file: sqlite3.Connection, read: Callable[[sqlite3.Connection], T]) -> T:
    """Call *read* in a transaction with one snapshot; a file without an epoch gets one before."""
    if file.execute(_EPOCH).fetchone() is None:
        with transaction(file):
            file.execute(_PROPOSE, (new_epoch(),))
    return _in_snapshot(file, read)


def _read_all(
    file: sqlite3.Connection, keys: tuple[str, ...]
) -> tuple[tuple[str, int], dict[str, int]]:
    """Return epoch, revision and the values of *keys*, all from one snapshot."""

    def read(file: sqlite3.Connection) -> tuple[tuple[str, int], dict[str, int]]:
        epoch, rev = file.execute(_EPOCH).fetchone()
        values: dict[str, int] = {}
        for key in keys:
            row = file.execute(_VALUE, (key,)).fetchone()
            if row is not None:
                values[key] = row[0]
        return (epoch, rev), values

    return _in_history(file, read)
