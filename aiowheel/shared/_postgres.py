"""Shared counters in PostgreSQL, by asyncpg. Rank 4; extra `postgres`.

A write is one statement. It raises the counters in the order of their keys, so that two writers of
the same keys cannot deadlock, and sends one NOTIFY. The commit of a NOTIFY takes a lock of the
whole server, which is why publishes share writes.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from functools import cache, partial
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, TypeVar

from aiowheel._arguments import checked_bool
from aiowheel._asyncpg import checked_dsn, errors_of_address
from aiowheel._background import LastingTask
from aiowheel._events import emit
from aiowheel._postgres_transaction import Transaction, transaction_of
from aiowheel._printable import error_repr
from aiowheel.errors import MissingExtraError, StoreUnavailableError
from aiowheel.shared._backoff import Backoff
from aiowheel.shared._outage import Outage
from aiowheel.shared._store import (
    CounterPage,
    HintListener,
    checked_key,
    checked_name,
    checked_value,
    deliver_hint,
    new_epoch,
    page_of,
)

if TYPE_CHECKING:
    import asyncpg

T = TypeVar("T")

_HEARTBEAT = 5.0  # seconds between two checks of the listening connection
_ANSWER = 10.0  # seconds after which a connection that does not answer counts as lost
# By default PostgreSQL plans a statement with arrays at each call, which takes longer than the
# statement itself.
_SETTINGS = {"plan_cache_mode": "force_generic_plan"}
_PAYLOAD = 7_900  # bytes; PostgreSQL accepts less than 8,000, with the epoch before it

# Names of tables and channels cannot be parameters; {0} is a name that `checked_name` has checked.
_SCHEMA = """
CREATE {1} TABLE IF NOT EXISTS {0}_epoch (
    one boolean PRIMARY KEY DEFAULT true CHECK (one), epoch text NOT NULL);
CREATE {1} TABLE IF NOT EXISTS {0}_counters (
    key text COLLATE "C" PRIMARY KEY, value bigint NOT NULL) WITH (fillfactor = 50);
"""
_PROPOSED = """
WITH proposed AS (
    INSERT INTO {0}_epoch (epoch) SELECT $1 WHERE NOT EXISTS (SELECT FROM {0}_epoch)
    ON CONFLICT DO NOTHING RETURNING epoch
), ours AS (SELECT epoch FROM {0}_epoch UNION ALL SELECT epoch FROM proposed)
"""
# The result has no row if another transaction proposes an epoch at the same moment: this statement
# does not see the row of that transaction yet.
_RAISE = (
    _PROPOSED
    + """, raised AS (
    INSERT INTO {0}_counters AS old (key, value)
    SELECT * FROM unnest($2::text[], $3::bigint[])
    ON CONFLICT (key) DO UPDATE SET value = excluded.value WHERE old.value < excluded.value
    RETURNING 1
), sent AS (
    SELECT pg_notify('{0}', epoch || ' ' || part) FROM ours, pg_catalog.unnest($4::text[]) AS part
    WHERE EXISTS (SELECT FROM raised)
)
SELECT epoch, (SELECT count(*) FROM sent) FROM ours
"""
)
_ADD_ONE = (
    _PROPOSED
    + """, raised AS (
    INSERT INTO {0}_counters AS old (key, value)
    SELECT key, 1 FROM pg_catalog.unnest($2::text[]) AS key
    ON CONFLICT (key) DO UPDATE SET value = old.value + 1
    RETURNING key, value
), parts AS (
    SELECT pg_catalog.json_object_agg(key, value)::text AS part FROM (
        SELECT key, value, (row_number() OVER () - 1) / $3 AS number FROM raised) AS numbered
    GROUP BY number
), sent AS (SELECT pg_notify('{0}', epoch || ' ' || part) FROM ours, parts)
SELECT epoch, (SELECT count(*) FROM sent) FROM ours
"""
)
_READ = """
SELECT epoch, key, value FROM {0}_epoch
LEFT JOIN {0}_counters ON key = ANY($1::text[])
"""
_PAGE = """
SELECT epoch, key, value FROM {0}_epoch
LEFT JOIN (
    SELECT key, value FROM {0}_counters WHERE key >= $1 AND key > $2 ORDER BY key LIMIT $3
) AS page ON true
ORDER BY key
"""
# The rows are locked in the order of their keys, as in the other statements. Each change compares
# the value again, because the value may have changed while the statement waited for the lock.
_COMPARE = (
    _PROPOSED
    + """, wanted AS (
    SELECT * FROM unnest($2::text[], $3::bigint[], $4::bigint[]) AS wanted (key, old, new)
), locked AS (
    SELECT wanted.* FROM wanted JOIN {0}_counters USING (key) WHERE old IS NOT NULL
    ORDER BY key FOR UPDATE OF {0}_counters
), added AS (
    INSERT INTO {0}_counters (key, value) SELECT key, new FROM wanted WHERE old IS NULL ORDER BY key
    ON CONFLICT DO NOTHING RETURNING key, value
), updated AS (
    UPDATE {0}_counters AS counter SET value = new FROM locked
    WHERE counter.key = locked.key AND counter.value = old AND new IS NOT NULL
    RETURNING counter.key, counter.value
), removed AS (
    DELETE FROM {0}_counters AS counter USING locked
    WHERE counter.key = locked.key AND counter.value = old AND new IS NULL
    RETURNING counter.key
), raised AS (
    SELECT key, value FROM added UNION ALL SELECT key, value FROM updated
), parts AS (
    SELECT pg_catalog.json_object_agg(key, value)::text AS part FROM (
        SELECT key, value, (row_number() OVER () - 1) / $5 AS number FROM raised) AS numbered
    GROUP BY number
), sent AS (SELECT pg_notify('{0}', epoch || ' ' || part) FROM ours, parts)
SELECT epoch, (SELECT count(*) FROM sent),
    array(SELECT key FROM raised UNION ALL SELECT key FROM removed) AS changed FROM ours
"""
)
_NOW = "SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint"
_FORGET = "DELETE FROM {0}_counters WHERE key = ANY($1::text[])"
_BEGIN_ANEW = """
WITH anew AS (UPDATE {0}_epoch SET epoch = $1 RETURNING epoch)
SELECT pg_notify('{0}', epoch || ' {{}}') FROM anew
"""


class PostgresCounters:
    """A `CounterStore` in PostgreSQL, for processes on any number of machines.

    Each process holds one connection, which listens and reads, and opens a second one for its first
    publish. LISTEN needs a connection of its own: connect to the server itself or to a pooler in
    session mode, not to one in transaction mode.

    The store creates two tables in the first schema of the search path, `<name>_counters` and
    `<name>_epoch`, and uses the channel `<name>`.

    Args:
        dsn: The address, as asyncpg takes it: `postgresql://user@host/database`; "" for the
            environment variables of libpq.
        name: 1 to 40 lower-case letters, digits and underscores. Two applications in one database
            need two names.
        logged: Keep the counters through a crash of the server and on its replicas. Every write
            then waits for the disk. Default: both tables are unlogged; a crash empties them
            together, which ends waits with `EpochChangedError`, and an orderly restart keeps them.
            The option takes effect only when the tables are created.

    Raises:
        TypeError: An argument has the wrong type.
        ValueError: *dsn* or *name* is malformed.
        MissingExtraError: asyncpg is not installed.
    """

    def __init__(self, dsn: str, *, name: str = "aiowheel", logged: bool = False) -> None:
        if find_spec("asyncpg") is None:  # raise here, not at the first connection
            raise MissingExtraError("postgres")
        self._dsn = checked_dsn(dsn)
        self._name = checked_name(name)
        self._schema = _SCHEMA.format(name, "" if checked_bool("logged", logged) else "UNLOGGED")
        self._raise = _RAISE.format(name)
        self._add_one = _ADD_ONE.format(name)
        self._read = _READ.format(name)
        self._page = _PAGE.format(name)
        self._compare = _COMPARE.format(name)
        self._forget = _FORGET.format(name)
        self._begin_anew = _BEGIN_ANEW.format(name)
        self._listening, self._writing = self._accesses()
        self._lost: asyncio.Event  # the connection that listens is lost; made by `_subscribe`
        self._task: LastingTask | None = None

    async def open(self, listener: HintListener) -> None:
        """Create missing tables, and listen; see `CounterStore`."""
        if self._listening.closed:
            self._listening, self._writing = self._accesses()
        await self._subscribe(listener)
        self._task = LastingTask(partial(self._watch, listener), "aiowheel postgres hints")

    async def raise_to(self, values: Mapping[str, int]) -> str:
        """Raise counters to values; see `CounterStore`."""
        keys = sorted(values)
        parts = _parts([(key, values[key]) for key in keys])
        async with self._writing.use() as connection:
            return await _epoch_of(
                connection, self._raise, keys, [values[key] for key in keys], parts
            )

    async def add_one(self, keys: Collection[str]) -> str:
        """Add one to counters; see `CounterStore`."""
        names = sorted(set(keys))
        async with self._writing.use() as connection:
            return await _epoch_of(connection, self._add_one, names, _keys_per_part(names))

    async def advance_in(self, connection: Any, key: str, value: int) -> None:
        """Raise a counter in a transaction of the caller, on the caller's connection.

        The value takes effect, and the hint is sent, when the transaction commits. Make it the last
        statement: the counter's row stays locked until the commit, and publishes of other processes
        wait for it. The commit takes a lock of the whole server, which limits a server to some
        hundred such transactions per second.

        Args:
            connection: A connection of asyncpg or psycopg to the same database, with the same
                search path.
            key: As for `SharedCounters.advance`.
            value: As for `SharedCounters.advance`.

        Raises:
            TypeError, ValueError: *key* or *value* is out of range, or *connection* is not in a
                transaction.
            asyncpg.PostgresError, psycopg.Error: The statement failed; the transaction can only be
                rolled back.
        """
        await self.raise_in(connection, {key: value})

    async def raise_in(self, connection: Any, values: Mapping[str, int]) -> None:
        """Raise several counters in one statement; otherwise as `advance_in`."""
        keys = sorted(checked_key(key) for key in values)
        numbers = [checked_value("value", values[key]) for key in keys]
        parts = _parts(list(zip(keys, numbers, strict=True)))
        await _row_of(transaction_of(connection), self._raise, keys, numbers, parts)

    async def forget_in(self, connection: Any, keys: Collection[str]) -> None:
        """Remove counters in a transaction of the caller; see `advance_in`."""
        await transaction_of(connection).execute(self._forget, sorted(keys))

    async def begin_anew_in(self, connection: Any) -> None:
        """Begin a new epoch in a transaction of the caller; see `advance_in`.

        The counters keep their values. Every wait for them ends with `EpochChangedError`.
        """
        await transaction_of(connection).execute(self._begin_anew, new_epoch())

    async def write(self, step: Callable[[Any], Awaitable[T]]) -> T:
        """Await `step(connection)` in a transaction, on the connection on which the store writes.

        One step runs at a time, in the order of the calls.

        Raises:
            StoreUnavailableError: The server does not answer, or the connection was lost; the
                transaction may have been committed.
            asyncpg.PostgresError: A statement failed; the transaction was rolled back.
        """
        async with (
            self._writing.use() as connection,
            connection.transaction(isolation="read_committed"),
        ):
            return await step(connection)

    async def query(self, step: Callable[[Any], Awaitable[T]]) -> T:
        """Await `step(connection)`, which only reads, in a transaction with one snapshot.

        The snapshot has every write that had returned, in any process, before the call. Errors are
        those of `write`.
        """
        async with (
            self._listening.use() as connection,
            connection.transaction(isolation="repeatable_read", readonly=True),
        ):
            return await step(connection)

    async def read(self, keys: Collection[str]) -> tuple[str, dict[str, int]]:
        """Read counters; see `CounterStore`."""
        epoch, found = await self._fetch(self._read, list(keys))
        return epoch, dict(found)

    async def scan(self, prefix: str, after: str = "", limit: int = 1000) -> CounterPage:
        """List counters; see `CounterStore`."""
        epoch, found = await self._fetch(self._page, prefix, after, limit)
        return page_of(epoch, found, prefix, limit)

    async def compare_and_raise(
        self, changes: Mapping[str, tuple[int | None, int | None]]
    ) -> tuple[str, set[str]]:
        """Change the counters that have their expected values; see `CounterStore`."""
        keys = sorted(changes)
        columns = [[changes[key][place] for key in keys] for place in range(2)]
        async with self._writing.use() as connection:
            row = await _row_of(connection, self._compare, keys, *columns, _keys_per_part(keys))
        return row["epoch"], set(row["changed"])

    async def now_ms(self) -> int:
        """Return the server's time; see `CounterStore`."""
        async with self._listening.use() as connection:
            return int(await connection.fetchval(_NOW))

    async def _fetch(self, statement: str, *arguments: object) -> tuple[str, list[tuple[str, int]]]:
        """Run a statement that reads; return the epoch and the counters that it found."""
        async with self._listening.use() as connection:
            rows = await connection.fetch(statement, *arguments)
            if not rows:
                await _epoch_of(connection, self._raise, [], [], [])
                rows = await connection.fetch(statement, *arguments)
        if not rows:
            raise StoreUnavailableError("PostgreSQL has no epoch: its tables were just emptied")
        return rows[0]["epoch"], [
            (row["key"], row["value"]) for row in rows if row["key"] is not None
        ]

    async def forget(self, keys: Collection[str]) -> None:
        """Remove counters; see `CounterStore`."""
        async with self._writing.use() as connection:
            await connection.execute(self._forget, sorted(keys))

    async def aclose(self) -> None:
        """Close the connections; see `CounterStore`."""
        task, self._task = self._task, None
        async with AsyncExitStack() as steps:  # each runs even if this call is cancelled
            steps.push_async_callback(self._writing.aclose)
            steps.push_async_callback(self._listening.aclose)
            if task is not None:
                steps.push_async_callback(task.end)

    def _accesses(self) -> tuple[_Access, _Access]:
        return _Access(self._dsn, self._make_tables), _Access(self._dsn, self._make_tables)

    # --- listening --------------------------------------------------------------------------

    async def _subscribe(self, listener: HintListener) -> None:
        lost = self._lost = asyncio.Event()
        async with self._listening.use() as connection:

            def on_notify(_: object, __: int, ___: str, payload: object) -> None:
                epoch, _, part = str(payload).partition(" ")
                deliver_hint(listener, epoch, part)

            await connection.add_listener(self._name, on_notify)
            connection.add_termination_listener(lambda _: lost.set())

    async def _make_tables(self, connection: asyncpg.Connection[Any]) -> None:
        found = "SELECT to_regclass($1) IS NOT NULL AND to_regclass($2) IS NOT NULL"
        names = (f"{self._name}_epoch", f"{self._name}_counters")
        if await connection.fetchval(found, *names):
            return
        async with connection.transaction(isolation="read_committed"):
            # CREATE TABLE IF NOT EXISTS fails when two sessions run it at the same time.
            lock = f"SELECT pg_catalog.pg_advisory_xact_lock(hashtext('{self._name} aiowheel'))"
            await connection.execute(lock)
            await connection.execute(self._schema)

    async def _watch(self, listener: HintListener) -> None:
        """Detect the loss of the connection, and listen again on a new one."""
        backoff, outage = Backoff(), Outage("postgres")
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(_HEARTBEAT):
                    await self._lost.wait()
            try:
                if not self._lost.is_set():
                    async with self._listening.use() as connection:
                        await connection.execute("SELECT 1")
                    if self._listening.connection is connection and not self._lost.is_set():
                        continue
                self._listening.drop()
                await self._subscribe(listener)
            except StoreUnavailableError as error:
                outage.failed(error)
                self._lost.set()
                await asyncio.sleep(backoff.next())
            except asyncio.CancelledError:
                self._lost.set()  # the task may start again
                raise
            except Exception as error:  # the task must survive any error
                emit("aiowheel.shared_listen_failed", store="postgres", error=error_repr(error))
                self._lost.set()
                await asyncio.sleep(backoff.next())
            else:
                backoff.reset()
                outage.ended()
                listener.gap()


def _parts(items: Sequence[tuple[str, int]]) -> list[str]:
    """Return JSON objects of these values, each short enough for one NOTIFY."""
    parts: list[list[str]] = []
    room = 0
    for key, value in items:
        item = f"{json.dumps(key, ensure_ascii=False)}:{value}"
        size = len(item.encode()) + 1
        if size > room:
            parts.append([])
            room = _PAYLOAD
        parts[-1].append(item)
        room -= size
    return [f"{{{','.join(part)}}}" for part in parts]


def _keys_per_part(keys: Collection[str]) -> int:
    """Return how many of these keys, with their values as JSON, certainly fit into one NOTIFY."""
    # A value has up to 19 digits; a key may grow to six times its bytes in JSON.
    longest = max([len(json.dumps(key, ensure_ascii=False).encode()) for key in keys], default=0)
    return max(1, (_PAYLOAD - 4) // (longest + 24))


async def _epoch_of(connection: Transaction, statement: str, *arguments: object) -> str:
    """Run a statement that proposes an epoch; return the epoch that the store has."""
    return str((await _row_of(connection, statement, *arguments))["epoch"])


async def _row_of(connection: Transaction, statement: str, *arguments: object) -> Any:
    """Run a statement that proposes an epoch; return its row, which has the store's epoch."""
    for _ in range(3):
        row = await connection.fetchrow(statement, new_epoch(), *arguments)
        if row is not None:
            return row
    raise StoreUnavailableError("PostgreSQL has no epoch: its tables were just emptied")


@cache
def _transient() -> tuple[type[Exception], ...]:
    """Return the errors of a server that may answer later."""
    import asyncpg

    return (
        asyncpg.PostgresConnectionError,
        asyncpg.InterfaceError,
        asyncpg.InternalClientError,  # the connection broke in the middle of a statement
        asyncpg.CannotConnectNowError,
        asyncpg.InsufficientResourcesError,  # a full disk, too many connections
        asyncpg.AdminShutdownError,
        asyncpg.CrashShutdownError,
        asyncpg.DeadlockDetectedError,
        asyncpg.SerializationError,
        asyncpg.QueryCanceledError,  # by `statement_timeout` of the server
        asyncpg.LockNotAvailableError,  # by `lock_timeout`
        asyncpg.UndefinedTableError,  # the server came back without the tables
        asyncpg.ReadOnlySQLTransactionError,  # connected to a replica, during a failover
        OSError,
        TimeoutError,
    )


class _Access:
    """One connection, which is opened at its first use, and again after it was lost.

    It belongs to one event loop, as its lock does, and it is not opened again after `aclose`.
    """

    def __init__(
        self, dsn: str, prepare: Callable[[asyncpg.Connection[Any]], Awaitable[None]]
    ) -> None:
        self.connection: asyncpg.Connection[Any] | None = None
        self._dsn = dsn
        self._prepare = prepare
        self._lock = asyncio.Lock()
        self._silences = 0  # calls that the server did not answer
        self.closed = False

    @asynccontextmanager
    async def use(self) -> AsyncGenerator[asyncpg.Connection[Any]]:
        """Give the connection to one caller at a time.

        Raises:
            StoreUnavailableError: The connection cannot be opened, or was lost.
        """
        silences = self._silences
        async with self._lock:
            if silences != self._silences:  # otherwise waiting calls would fail one by one
                raise StoreUnavailableError("PostgreSQL: no answer to an earlier call")
            try:
                async with asyncio.timeout(_ANSWER):
                    self._refuse_if_closed()
                    connection = self.connection
                    if connection is None or connection.is_closed():
                        connection = self.connection = await self._connect()
                    yield connection
            except _transient() as error:
                self.drop()
                self._silences += isinstance(error, TimeoutError)
                if isinstance(error, StoreUnavailableError):
                    raise
                raise StoreUnavailableError(f"PostgreSQL: {error!r}") from error

    async def _connect(self) -> asyncpg.Connection[Any]:
        import asyncpg

        with errors_of_address(ValueError):
            # Of several hosts, a standby refuses LISTEN and every write.
            connection = await asyncpg.connect(
                self._dsn, server_settings=_SETTINGS, target_session_attrs="primary"
            )
        try:
            await self._prepare(connection)
            self._refuse_if_closed()
        except BaseException:  # cancelled, for example: the next caller must prepare another one
            connection.terminate()
            raise
        return connection

    def _refuse_if_closed(self) -> None:
        if self.closed:
            raise StoreUnavailableError("the store is closed")

    def drop(self) -> None:
        """Abort the connection."""
        connection, self.connection = self.connection, None
        if connection is not None:
            connection.terminate()

    async def aclose(self) -> None:
        """Close the connection; idempotent."""
        self.closed = True
        connection, self.connection = self.connection, None
        if connection is not None:
            try:
                await connection.close(timeout=1)
            except Exception:  # the connection is broken already
                connection.terminate()
