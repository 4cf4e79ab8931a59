"""A store in PostgreSQL, for several processes and machines. Rank 4; extra `durable`.

One connection writes, one reads and one listens. Each is opened when it is needed, and again after
an error. An owner that stops during a commit would keep its locks, so the server ends a transaction
that is idle for two seconds. A commit that waits for a user's transaction locks out the renewals of
all processes, so it waits for two seconds at most; while that transaction is open, the operations
on its timers are committed apart from the others. Rows are locked in the order of their partition
or name, so that two processes cannot deadlock.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, suppress
from functools import partial
from importlib import import_module
from typing import Any, TypeVar

from aiowheel._arguments import safe_repr
from aiowheel._asyncpg import checked_dsn, errors_of_address
from aiowheel._background import LastingTask
from aiowheel._postgres_transaction import errors_of_psycopg, transaction_of
from aiowheel.durable import _postgres_statements as statements
from aiowheel.durable._databases import checked_partitions, flaws_of, missing_partitions
from aiowheel.durable._postgres_statements import Connection
from aiowheel.durable._store import Store
from aiowheel.durable.operations import (
    Change,
    Cursor,
    DeadLetter,
    Leased,
    Operation,
    Placed,
    Put,
    Result,
    Row,
    Settle,
    Summary,
)
from aiowheel.errors import BadRowError, MissingExtraError, StoreError

try:
    asyncpg: Any = import_module("asyncpg")  # it has no types
except ImportError as error:
    raise MissingExtraError("durable") from error

T = TypeVar("T")

_PARTITIONS = 64
_COMMAND_SECONDS = 10.0
_NO_ANSWER = f"PostgreSQL: no answer within {_COMMAND_SECONDS:g} seconds"
_HEARTBEAT_SECONDS = 5.0  # between two checks of the listening connection
_MOST_CHANGES = 1000  # changes that are taken in one transaction
_MOST_ROWS = 1000  # timers or dead letters that are listed by one statement
_MOST_FORGOTTEN = 10_000  # changes that are removed unread in one transaction
_LOCK_MS = 2000  #: how long a commit waits for timers that other transactions hold
_BRIEF_LOCK_MS = 20  #: the same, for a commit that is divided then
_SETTINGS = {
    "application_name": "aiowheel durable",
    # Each statement must see what was committed while it waited for a lock.
    "default_transaction_isolation": "read committed",
    "idle_in_transaction_session_timeout": "2000",
    "lock_timeout": f"{_LOCK_MS}",
    "jit": "off",  # it takes longer than each of these statements
}
_BAD_ROW = (
    asyncpg.DataError,  # also raised by the client, for a value that it cannot encode
    asyncpg.IntegrityConstraintViolationError,
    asyncpg.ProgramLimitExceededError,
    asyncpg.CharacterNotInRepertoireError,
    asyncpg.UntranslatableCharacterError,
    UnicodeEncodeError,
)
_BAD_ROW_OF_PSYCOPG = ("DataError", "IntegrityError", "ProgramLimitExceeded")
#: The errors of the driver are included: a connection that breaks may raise any of these.
_UNUSABLE = (
    asyncpg.PostgresError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
    OSError,
    TimeoutError,
)
#: Seconds without a held timer after which all operations share a commit again.
_APART_SECONDS = 10.0
_TRY_AGAIN = (asyncpg.DeadlockDetectedError, asyncpg.SerializationError)
_TRIES = 3
#: Commits that expect taken names, after one met some. The server logs an error for each commit
#: that meets a taken name unexpectedly.
_UPSERTS_AFTER_A_TAKEN_NAME = 1000
_RECONNECT_SECONDS = 0.5


class PostgresStore(Store):
    """Durable timers in a PostgreSQL database, 12 or later.

    If no schema of the connection's search path has the tables, they are created in the first one;
    their names begin with `aiowheel_`. `schedule_in` and `ack_in` take connections of asyncpg or
    psycopg with the same database and search path; another one is refused only if it finds no
    tables of durable timers.

    Args:
        dsn: As for `asyncpg.connect`, `postgresql://user@host/database`; "" for the environment
            variables of libpq.
        partitions: From 1 to 1024; default: the number of the tables, 64 for new tables.

    Raises:
        TypeError, ValueError: An argument is wrong.
    """

    version: int = statements.VERSION
    needs_real_time: bool = True
    # While the server executes the calls of one half of a thousand tasks, this process wakes the
    # tasks of the other half, which schedule their next timers.
    most_operations: int = 500

    def __init__(self, dsn: str, *, partitions: int | None = None) -> None:
        super().__init__()
        self._dsn = checked_dsn(dsn)
        self._given_partitions = checked_partitions(partitions)
        self.partitions: int = self._given_partitions or _PARTITIONS
        self._use("primary")
        self._listening: LastingTask | None = None
        self._upserts_left = 0  # commits of puts until names are expected to be new again
        self._apart_until = 0.0  # on the loop's clock; see `_commit_apart`
        self._page_of_changes = _PageSize(_MOST_CHANGES)
        self._page_of_rows = _PageSize(_MOST_ROWS)

    def _use(self, session: str) -> None:
        """Create the connections, to a host of this kind; see `_connected`."""
        self._connect = partial(_connected, self._dsn, session)
        self._writer = _Connection(self._connect, self._report_loss)
        self._reader = _Connection(self._connect, self._report_loss)

    async def open(self, *, create: bool = True) -> None:
        """Connect, and create the tables if there are none."""
        self._begin_opening()
        # Of several hosts, a standby that lags would hide timers; the tables may be read anywhere.
        # The connections are not those of an earlier opening, whose locks belong to its loop.
        self._use("primary" if create else "any")
        self._apart_until = 0.0  # another loop may have another clock
        try:
            self.partitions = await self._write(
                lambda connection: statements.prepare(
                    connection, self._given_partitions, _PARTITIONS, create=create
                )
            )
        except StoreError:
            await self.aclose()
            raise
        self._listening = LastingTask(self._listen, "aiowheel durable hints")

    async def aclose(self) -> None:
        """Close the connections."""
        listening, self._listening = self._listening, None
        async with AsyncExitStack() as steps:  # each runs even if this call is cancelled
            steps.callback(self._end_opening)
            steps.push_async_callback(self._reader.aclose)
            steps.push_async_callback(self._writer.aclose)
            if listening is not None:
                steps.push_async_callback(listening.end)

    def clock_us(self) -> None:
        """Return None: only the server can read its clock."""

    async def now_us(self) -> int:
        """Ask the server for its clock."""
        return await self._writer.run(statements.now_us)

    async def _listen(self) -> None:
        """Listen for hints, on a connection that is opened again after it is lost."""
        report = self._hint  # notifications may have been lost before
        while True:
            lost = asyncio.Event()
            with suppress(*_UNUSABLE):
                connection = await self._connect()
                try:
                    connection.add_termination_listener(partial(_set, lost))
                    await connection.add_listener(statements.CHANNEL, self._on_notification)
                    report()
                    while not lost.is_set():
                        with suppress(TimeoutError):
                            async with asyncio.timeout(_HEARTBEAT_SECONDS):
                                await lost.wait()
                        # A connection that a network has dropped is silent.
                        await connection.execute("SELECT 1")
                finally:
                    connection.terminate()
            report = self._report_loss
            await asyncio.sleep(_RECONNECT_SECONDS)

    def _on_notification(self, *_: object) -> None:
        self._hint()

    # --- writing ------------------------------------------------------------------------------

    async def commit(self, owner: str, operations: Sequence[Operation]) -> list[Result]:
        """Execute the operations in one transaction, without those on timers held elsewhere."""
        now = asyncio.get_running_loop().time()
        if now >= self._apart_until:
            try:
                return await self._commit(owner, operations)
            except StoreError as error:
                if not _is_held(error):
                    raise
                self._stay_apart()
                if len(operations) == 1:
                    return [error]
        return await self._commit_apart(owner, operations, now + _LOCK_MS / 1000)

    def _stay_apart(self) -> None:
        self._apart_until = asyncio.get_running_loop().time() + _APART_SECONDS

    async def _commit_apart(
        self, owner: str, operations: Sequence[Operation], until: float
    ) -> list[Result]:
        """Commit in order, in as many transactions as isolate operations on held timers.

        A settlement of a held timer fails at once, because its process sends it again. Other
        operations wait for such timers, together until the loop's time *until*.
        """
        try:
            return await self._commit(owner, operations, lock_ms=_BRIEF_LOCK_MS)
        except BadRowError as error:  # other operations may be committed already
            if len(operations) == 1:
                return [error]
        except StoreError as error:
            if not _is_held(error):
                raise
            self._stay_apart()
            if len(operations) == 1:
                return [await self._commit_held(owner, operations[0], until)]
        middle = len(operations) // 2
        first = await self._commit_apart(owner, operations[:middle], until)
        return first + await self._commit_apart(owner, operations[middle:], until)

    async def _commit_held(self, owner: str, operation: Operation, until: float) -> Result:
        left_ms = round((until - asyncio.get_running_loop().time()) * 1000)
        if isinstance(operation, Settle) or left_ms <= 0:
            return StoreError("PostgreSQL: another transaction holds the timer")
        try:
            (result,) = await self._commit(owner, [operation], lock_ms=left_ms)
        except StoreError as error:
            if isinstance(error, BadRowError) or _is_held(error):
                return error
            raise
        return result

    async def _commit(
        self, owner: str, operations: Sequence[Operation], *, lock_ms: int = _LOCK_MS
    ) -> list[Result]:
        """Execute the operations in one transaction; a list of plain puts takes one statement."""
        puts = statements.as_puts(operations)
        if puts is not None:
            return await self._writer.run(partial(self._put_alone, owner, puts), lock_ms)

        async def execute(connection: Connection) -> list[Result]:
            statement = statements.Statements(connection, owner, self.partitions)
            await statement.lock(operations)
            results = await statement.execute_all(operations)
            await statement.leave()
            return results

        return await self._write(execute, lock_ms)

    async def _put_alone(self, owner: str, puts: list[Put], connection: Connection) -> list[Result]:
        put_alone = partial(statements.put_alone, connection, owner, self.partitions, puts)
        if not self._upserts_left:
            with suppress(asyncpg.UniqueViolationError):
                return await put_alone(are_new=True)
            self._upserts_left = _UPSERTS_AFTER_A_TAKEN_NAME
        results = await put_alone(are_new=False)
        are_new = all(isinstance(each, Placed) and each.is_new for each in results)
        self._upserts_left = self._upserts_left - 1 if are_new else _UPSERTS_AFTER_A_TAKEN_NAME
        return results

    async def renew(
        self, owner: str, *, lease_us: int, horizon_us: int, give_up: Sequence[int] = ()
    ) -> Leased:
        """Renew, take and release partitions."""
        leased, gained = await self._write(
            lambda connection: statements.renew(connection, owner, lease_us, horizon_us, give_up)
        )
        # The owner has yet to read these partitions, in which a long transaction of a user may have
        # left more changes than one statement can remove in time.
        is_more = bool(gained)
        while is_more:
            is_more = await self._write(
                lambda connection: statements.forget_changes(connection, gained, _MOST_FORGOTTEN)
            )
        changes, _ = await self.changes(owner)
        # The renewal and its commit take milliseconds. Timers would fire later by that time if the
        # process learned the clock that the renewal has read.
        now_us = await self._writer.run(statements.now_us)
        return leased._replace(now_us=now_us, changes=changes)

    async def release(self, owner: str) -> None:
        """Give up all partitions of *owner*."""
        await self._write(lambda connection: statements.release(connection, owner))

    async def changes(self, owner: str) -> tuple[list[Change], bool]:
        """Take the changes, in pages, because a user's transaction may have left a million."""
        found: list[Change] = []
        after = 0
        while True:
            most = self._page_of_changes.rows
            take = partial(statements.changes, owner=owner, after=after, most=most)
            try:
                page, last, is_free = await self._write(take)
            except StoreError:  # the caller renews its leases before it tries again
                self._page_of_changes.shrink(most)
                raise
            found += page
            if last is None:
                return found, is_free
            after = last
            self._page_of_changes.grow(most)

    async def _write(
        self, execute: Callable[[Connection], Awaitable[T]], lock_ms: int = _LOCK_MS
    ) -> T:
        async def transaction(connection: Connection) -> T:
            async with connection.transaction():
                return await execute(connection)

        return await self._writer.run(transaction, lock_ms)

    # --- reading ------------------------------------------------------------------------------

    async def page(self, cursors: Sequence[Cursor], until_us: int, limit: int) -> list[list[Row]]:
        """Return rows in order, from one snapshot."""
        return await self._reader.run(
            lambda connection: statements.page(connection, cursors, until_us, limit)
        )

    async def get(self, name: str) -> Row | None:
        """Return the timer of that name."""
        return await self._reader.run(lambda connection: statements.get(connection, name))

    async def rows(self, *, after: str = "", prefix: str = "", limit: int = 1000) -> list[Row]:
        """Return timers by name, in the order of its bytes."""
        read = partial(statements.rows, after=after, prefix=prefix)
        return await self._read_page(read, limit)

    async def dead_letters(self, *, after: int = 0, limit: int = 1000) -> list[DeadLetter]:
        """Return dead letters by id."""
        return await self._read_page(partial(statements.dead_letters, after=after), limit)

    async def _read_page(self, read: Callable[..., Awaitable[list[T]]], limit: int) -> list[T]:
        """Read at most *limit* rows, and fewer if an open connection gets no answer in time."""
        while True:
            most = min(limit, self._page_of_rows.rows)
            try:
                page = await self._reader.run(partial(read, limit=most))
            except StoreError as error:
                if most <= 1 or not _is_slow(error):
                    raise
                self._page_of_rows.shrink(most)
            else:
                if len(page) == most:
                    self._page_of_rows.grow(most)
                return page

    async def summary(self) -> Summary:
        """Return the counts of the tables."""
        return await self._reader.run(statements.summary)

    async def check(self) -> list[str]:
        """Check the tables, the partitions and the timers.

        If a column or an index is missing, the partitions and the timers are not checked.
        """
        if missing := await self._reader.run(statements.missing):
            return missing
        flaws = missing_partitions(await self._reader.run(statements.parts), self.partitions)
        flaws += await self._reader.run(statements.flaws_of_ids)
        if (unnamed := await self.get("")) is not None:  # the first page begins after this name
            flaws += flaws_of(unnamed, self.partitions)
        after = ""
        read = partial(statements.rows, has_payloads=False)
        while rows := await self._read_page(partial(read, after=after), _MOST_ROWS):
            for row in rows:
                flaws += flaws_of(row, self.partitions)
            after = rows[-1].name
        return flaws

    # --- the user's transactions ----------------------------------------------------------------

    async def put_in(self, connection: Any, operation: Put) -> Result:
        """Execute a `Put` on the user's connection, of asyncpg or psycopg."""
        return await self._execute_in(connection, operation)

    async def settle_in(self, connection: Any, operation: Settle) -> Result:
        """Execute a `Settle` on the user's connection, of asyncpg or psycopg."""
        return await self._execute_in(connection, operation)

    async def _execute_in(self, connection: Any, operation: Put | Settle) -> Result:
        transaction = transaction_of(connection)
        try:
            # The partition is not locked: that would block the renewal of leases during the user's
            # transaction. The row's generation decides between two owners.
            statement = statements.Statements(transaction, "", self.partitions)
            (result,) = await statement.execute_all([operation])
            await statement.leave()
        except (*_BAD_ROW, *errors_of_psycopg(*_BAD_ROW_OF_PSYCOPG)) as error:
            raise BadRowError(str(error)) from error
        except (asyncpg.UndefinedTableError, *errors_of_psycopg("UndefinedTable")) as error:
            raise TypeError(
                f"connection must be one to the store's database, got {safe_repr(connection)}"
            ) from error
        return result


def _is_held(error: StoreError) -> bool:
    """Return whether another transaction held a lock for longer than the `lock_timeout`."""
    return isinstance(error.__cause__, asyncpg.LockNotAvailableError)


def _is_slow(error: StoreError) -> bool:
    """Return whether an open connection got no answer in time."""
    return isinstance(error.__cause__, TimeoutError)


def _set(event: asyncio.Event, _: object) -> None:
    event.set()


async def _connected(dsn: str, session: str) -> Any:
    """Return a new connection to a host of this kind, as `target_session_attrs` of libpq."""
    with errors_of_address(StoreError):
        return await asyncpg.connect(
            dsn,
            timeout=_COMMAND_SECONDS,
            command_timeout=_COMMAND_SECONDS,
            server_settings=_SETTINGS,
            target_session_attrs=session,
        )


class _PageSize:
    """How many rows a statement asks for: fewer after an error, more after a full page.

    The payloads of a page may be too much for the network.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self.rows = most

    def shrink(self, asked: int) -> None:
        """Note that there was no answer for *asked* rows."""
        self.rows = max(asked // 4, 1)

    def grow(self, asked: int) -> None:
        """Note an answer of *asked* rows."""
        self.rows = max(self.rows, min(2 * asked, self._most))


class _Connection:
    """A connection that serves one call at a time, and is opened again after an error.

    Args:
        connect: Opens the connection.
        report_loss: Called after the connection was lost between two calls and is open again; a
            call on a connection that is lost raises an error.
    """

    def __init__(
        self, connect: Callable[[], Awaitable[Any]], report_loss: Callable[[], None]
    ) -> None:
        self._connect = connect
        self._report_loss = report_loss
        self._connection: Any = None
        self._lock_ms = _LOCK_MS  # the connection's `lock_timeout`
        self._lock = asyncio.Lock()
        self._silences = 0  # calls that the server did not answer

    async def run(self, call: Callable[[Connection], Awaitable[T]], lock_ms: int = _LOCK_MS) -> T:
        """Run *call* with the connection, whose statements wait *lock_ms* for a lock.

        Raises:
            BadRowError: The server or the driver refuses a value.
            StoreError: The server cannot be used, or another transaction holds a lock.
        """
        silences = self._silences
        async with self._lock:
            if silences != self._silences:  # otherwise waiting calls would fail one by one
                raise StoreError(_NO_ANSWER)
            for remaining in reversed(range(_TRIES)):
                try:
                    return await self._run(call, lock_ms)
                except _TRY_AGAIN as error:
                    if not remaining:
                        raise StoreError(f"PostgreSQL: {error}") from error
        raise AssertionError("the last try returns or raises")

    async def _run(self, call: Callable[[Connection], Awaitable[T]], lock_ms: int) -> T:
        is_open = False
        try:
            if self._connection is None or self._connection.is_closed():
                was_lost = self._connection is not None
                self._connection = await self._connect()
                self._lock_ms = _LOCK_MS
                if was_lost:
                    self._report_loss()
            is_open = True
            if lock_ms != self._lock_ms:
                await self._connection.execute(f"SET lock_timeout = {lock_ms}")
                self._lock_ms = lock_ms
            return await call(self._connection)
        except (*_TRY_AGAIN, StoreError):
            raise
        except asyncpg.LockNotAvailableError as error:
            raise StoreError(f"PostgreSQL: another transaction holds a lock: {error}") from error
        except _BAD_ROW as error:
            raise BadRowError(f"PostgreSQL: {error}") from error
        except TimeoutError as error:
            self._drop()
            self._silences += 1
            raise StoreError(_NO_ANSWER) from (error if is_open else None)
        except _UNUSABLE as error:
            self._drop()
            raise StoreError(f"PostgreSQL: {type(error).__name__}: {error}") from error
        except BaseException:  # cancelled during an exchange with the server
            self._drop()
            raise

    def _drop(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.terminate()

    async def aclose(self) -> None:
        """Close the connection after the calls that use it or wait for it; idempotent."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_COMMAND_SECONDS), self._lock:
                pass  # a call that waits would open the connection again
        connection, self._connection = self._connection, None
        if connection is not None and not connection.is_closed():
            with suppress(*_UNUSABLE):
                await connection.close(timeout=5)
