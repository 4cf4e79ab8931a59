"""The tables and statements of the PostgreSQL store, on a connection in a transaction. Rank 4."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Sequence
from contextlib import AbstractAsyncContextManager
from operator import itemgetter
from typing import Any, Final, Protocol

from aiowheel._postgres_transaction import Transaction
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
from aiowheel.durable._instants import FIRST_US
from aiowheel.durable.operations import (
    LARGE_PAYLOAD,
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

VERSION: Final = 2
CHANNEL: Final = "aiowheel_timers"  #: of the hints
_NOTIFY: Final = f"SELECT pg_notify('{CHANNEL}', '')"

#: The index of due times orders rows by partition, due time and id. It packs these into two
#: integers, of which the second one has the lower bits of the due time and the id. PostgreSQL fills
#: the pages of an index whose keys arrive in ascending order only if neighbours have the same first
#: column and all columns have 16 bytes at most. Else the pages remain half empty.
_YEAR_ONE_US: Final = -FIRST_US  # from the year 1 to 1970
_DUE_BITS: Final = 59  # microseconds from the year 1 to the year 9999
_LOW_BITS: Final = 16  # the bits of the due time in the second integer
_HIGH_BITS: Final = _DUE_BITS - _LOW_BITS
_ID_BITS: Final = 63 - _LOW_BITS  # enough for 100,000 timers a second in 44 years
_HIGH: Final = f"((part::bigint << {_HIGH_BITS}) | ((due_us + {_YEAR_ONE_US}) >> {_LOW_BITS}))"
_LOW: Final = f"((((due_us + {_YEAR_ONE_US}) & {2**_LOW_BITS - 1}) << {_ID_BITS}) | id)"
DUE_INDEX: Final = f"{_HIGH}, {_LOW}"

_TABLES: Final = f"""
CREATE TABLE aiowheel_meta (
    key text PRIMARY KEY,
    value bigint NOT NULL
);
CREATE TABLE aiowheel_timers (
    id bigserial,
    due_us bigint NOT NULL,
    gen bigint NOT NULL,
    first_due_us bigint,
    part integer NOT NULL,
    attempt integer NOT NULL,
    name text COLLATE "C" PRIMARY KEY,
    handler text NOT NULL,
    recurrence text,
    fire_id text,
    payload bytea NOT NULL
);
CREATE INDEX aiowheel_timers_due ON aiowheel_timers ({DUE_INDEX});
CREATE TABLE aiowheel_dead (
    id bigserial PRIMARY KEY,
    name text NOT NULL,
    handler text NOT NULL,
    due_us bigint NOT NULL,
    fire_id text NOT NULL,
    attempts integer NOT NULL,
    died_us bigint NOT NULL,
    error text NOT NULL,
    payload bytea NOT NULL
);
CREATE TABLE aiowheel_parts (
    part integer PRIMARY KEY,
    owner text NOT NULL,
    epoch bigint NOT NULL,
    until_us bigint NOT NULL,
    horizon_us bigint NOT NULL
) WITH (fillfactor = 50);
CREATE TABLE aiowheel_members (
    owner text PRIMARY KEY,
    until_us bigint NOT NULL
);
CREATE TABLE aiowheel_inbox (
    seq bigserial PRIMARY KEY,
    part integer NOT NULL,
    timer bigint NOT NULL,
    name text COLLATE "C" NOT NULL
);
"""
_LOCK: Final = 0x61696F77  # advisory lock: one process at a time creates the tables

_ROW: Final = ", ".join(Row._fields)
_ROW_WITHOUT_PAYLOAD: Final = _ROW.replace(
    "payload", "CASE WHEN payload IS NOT NULL THEN ''::bytea END"
)
_T_WINDOW_ROW: Final = ", ".join(f"t.{column}" for column in Row._fields).replace(
    "t.payload", f"CASE WHEN octet_length(t.payload) <= {LARGE_PAYLOAD} THEN t.payload END"
)
_DEAD: Final = ", ".join(DeadLetter._fields)
_NOW: Final = "(extract(epoch FROM clock_timestamp()) * 1000000)::bigint"
_INSERT: Final = (
    "INSERT INTO aiowheel_timers AS t "
    "(name, handler, part, due_us, gen, attempt, recurrence, payload) "
    "SELECT name, coalesce(handler, ($2::text[])[1]), part, due_us, 1, 0, recurrence, payload "
    "FROM unnest"
    "($1::text[], $2::text[], $3::integer[], $4::bigint[], $5::text[], $6::bytea[]) "
    "AS new (name, handler, part, due_us, recurrence, payload)"
)
_CONFLICT: Final = " ON CONFLICT (name) DO "
_REPLACE: Final = (
    "UPDATE SET handler = excluded.handler, due_us = excluded.due_us, gen = t.gen + 1, "
    "attempt = 0, recurrence = excluded.recurrence, first_due_us = NULL, fire_id = NULL, "
    "payload = excluded.payload"
)
_RETURNING: Final = " RETURNING name, id, gen, part"
_ON_CONFLICT: Final = {
    "replace": f"{_CONFLICT}{_REPLACE}",
    "revise": f"{_CONFLICT}{_REPLACE} WHERE (t.handler, t.recurrence, t.payload) IS DISTINCT FROM "
    "(excluded.handler, excluded.recurrence, excluded.payload)",
    "keep": f"{_CONFLICT}NOTHING",
    "error": f"{_CONFLICT}NOTHING",
}
_PUT: Final = {mode: f"{_INSERT}{rest}{_RETURNING}" for mode, rest in _ON_CONFLICT.items()}
#: A whole commit of puts in one statement and one round trip: it does the work of
#: `Statements.lock`, `_PUT` and `Statements.leave`. The condition on the count of leases makes
#: PostgreSQL lock the leases before the first name, and writes nothing if one is missing; a row
#: without a name returns that count. "new" costs a fifth less than the others, and fails at a name
#: that is taken.
_PUT_ALONE: Final = {
    mode: (
        "WITH leases AS MATERIALIZED (SELECT part, owner, horizon_us FROM aiowheel_parts "
        "WHERE part = ANY($3::integer[]) ORDER BY part FOR SHARE), "
        f"placed AS ({_INSERT} WHERE (SELECT count(*) FROM leases) = $8{rest} "
        "RETURNING name, id, gen, part, due_us), "
        "noted AS (INSERT INTO aiowheel_inbox (part, timer, name) "
        "SELECT part, id, name FROM placed JOIN leases USING (part) WHERE owner NOT IN ('', $7) "
        "AND (gen > 1 OR due_us <= horizon_us) RETURNING seq), "
        f"hint AS MATERIALIZED ({_NOTIFY} FROM noted LIMIT 1) "
        "SELECT name, id, gen, part FROM placed WHERE (SELECT count(*) FROM hint) >= 0 "
        "UNION ALL SELECT NULL, count(*), NULL, NULL FROM leases"
    )
    for mode, rest in {"new": "", **_ON_CONFLICT}.items()
}
_MISSING_PARTITION: Final = (
    "a partition of these timers is missing in aiowheel_parts: `aiowheel durable check` names it"
)
_MOVE: Final = (
    "UPDATE aiowheel_timers SET due_us = $1, gen = gen + 1, attempt = 0, first_due_us = NULL, "
    f"fire_id = NULL WHERE name = $2 RETURNING {_ROW}"
)
_BURY: Final = (
    "INSERT INTO aiowheel_dead (name, handler, due_us, fire_id, attempts, died_us, error, payload) "
    "SELECT name, handler, coalesce($6::bigint, first_due_us, due_us), "
    f"coalesce(fire_id, id || '.' || gen), $1, {_NOW}, $2, payload "
    "FROM aiowheel_timers WHERE name = $3 AND id = $4 AND gen = $5"
)
_ACKNOWLEDGE: Final = (
    "DELETE FROM aiowheel_timers AS t "
    "USING unnest($1::text[], $2::bigint[], $3::bigint[]) AS wanted (name, id, gen) "
    "WHERE t.name = wanted.name AND t.id = wanted.id AND t.gen = wanted.gen "
    "RETURNING t.id, t.gen, t.name"
)
_AGAIN: Final = (
    "UPDATE aiowheel_timers SET due_us = $1, gen = $2, attempt = $3, first_due_us = $4, "
    "fire_id = CASE WHEN gen = $2 THEN fire_id END "
    "WHERE name = $5 AND id = $6 AND gen = $7 RETURNING id"
)
#: The rows after each place in the index. The bound of the last place ends the search at the
#: partition's end; it is rounded, so that the due time is compared as well.
PAGE: Final = (
    f"SELECT {_T_WINDOW_ROW} FROM unnest($1::bigint[], $2::bigint[], $3::bigint[]) "
    "AS wanted (high, low, last) CROSS JOIN LATERAL (SELECT * FROM aiowheel_timers "
    f"WHERE ({DUE_INDEX}) > (high, low) AND {_HIGH} <= last AND due_us <= $4 "
    f"ORDER BY {DUE_INDEX} LIMIT $5) AS t"
)


class Connection(Transaction, Protocol):
    """A connection of the store itself, with the methods that a user's transaction may lack."""

    async def execute(self, query: str, *arguments: object) -> str:
        """Execute a statement, and return the tag of the command."""
        ...

    async def executemany(self, command: str, args: Iterable[Sequence[object]]) -> None:
        """Execute a statement for each sequence of arguments."""
        ...

    def get_settings(self) -> Any:
        """Return the settings of the session."""
        ...

    def transaction(self) -> AbstractAsyncContextManager[object]:
        """Begin a transaction for a block."""
        ...


async def prepare(
    connection: Connection, partitions: int | None, default: int, *, create: bool
) -> int:
    """Create the tables, or check existing ones; return their number of partitions."""
    await connection.execute("SELECT pg_catalog.pg_advisory_xact_lock($1)", _LOCK)
    if await connection.fetchval("SELECT to_regclass('aiowheel_meta')") is None:
        if not create:
            raise StoreError("there are no tables of durable timers in this database")
        await connection.execute(_TABLES)
        await connection.executemany(
            "INSERT INTO aiowheel_meta VALUES ($1, $2)",
            [("version", VERSION), ("partitions", partitions or default)],
        )
        await connection.executemany(
            "INSERT INTO aiowheel_parts VALUES ($1, '', 0, 0, 0)",
            [(n,) for n in range(partitions or default)],
        )
    records = await connection.fetch("SELECT key, value FROM aiowheel_meta")
    return checked_tables(dict(map(tuple, records)), VERSION, partitions)


def _parts_of_tables() -> list[tuple[str, str]]:
    """Return the columns and the indexes of `_TABLES`, with the table of each."""
    found: list[tuple[str, str]] = []
    for table, body in re.findall(r"CREATE TABLE (\w+) \((.+?)\n\)", _TABLES, re.DOTALL):
        for name, kind, rest in re.findall(r"^    (\w+) (\w+)(.*)", body, re.MULTILINE):
            found.append((table, f"column {name} of type {kind.replace('serial', 'int')}"))
            if "PRIMARY KEY" in rest:
                found.append((table, f"valid unique index on {name}"))
    return [*found, ("aiowheel_timers", "valid index aiowheel_timers_due")]


_FIND_PARTS: Final = """
WITH tables AS (SELECT name, to_regclass(name) AS oid FROM pg_catalog.unnest($1::text[]) AS name)
SELECT name, 'column ' || attname || ' of type ' || format_type(atttypid, NULL)
FROM tables JOIN pg_attribute ON attrelid = oid WHERE attnum > 0 AND NOT attisdropped
UNION ALL SELECT name, pg_catalog.unnest(ARRAY[
    'valid index ' || relname,
    CASE WHEN indisunique AND indpred IS NULL AND indnkeyatts = 1
    THEN 'valid unique index on ' || pg_get_indexdef(indexrelid, 1, true) END
]) FROM tables JOIN pg_index ON indrelid = tables.oid JOIN pg_class ON pg_class.oid = indexrelid
WHERE indisvalid
"""


async def missing(connection: Transaction) -> list[str]:
    """Return a line of text for each column and index that another program has removed."""
    wanted = _parts_of_tables()
    records = await connection.fetch(_FIND_PARTS, list(dict(wanted)))
    return missing_parts(wanted, {(table, part) for table, part in records})


#: The columns that a sequence numbers, each with the sequence from which its default takes values,
#: and whether this role may read the sequence itself.
_SEQUENCES: Final = """
SELECT name, attname::text, seqrelid::regclass::text,
    pg_catalog.has_sequence_privilege(seqrelid, 'SELECT')
FROM pg_catalog.unnest($1::text[]) AS name JOIN pg_attribute ON attrelid = to_regclass(name)
JOIN pg_attrdef ON adrelid = attrelid AND adnum = attnum
JOIN pg_depend ON classid = 'pg_attrdef'::regclass AND objid = pg_attrdef.oid
JOIN pg_sequence ON refclassid = 'pg_class'::regclass AND refobjid = seqrelid
WHERE pg_catalog.has_sequence_privilege(seqrelid, 'SELECT, USAGE') ORDER BY name
"""
_SHARED_IDS: Final = """
SELECT sum(count(*)) OVER (), id, min(name), max(name)
FROM aiowheel_timers GROUP BY id HAVING count(*) > 1 ORDER BY id LIMIT 1
"""


async def flaws_of_ids(connection: Transaction) -> list[str]:
    """Return a line of text for each sequence behind its column, and for ids of several timers.

    A copy of the rows does not move the sequences; the next timers then get ids of earlier ones.
    """
    flaws: list[str] = []
    tables = list(dict(_parts_of_tables()))
    for table, column, sequence, may_select in await connection.fetch(_SEQUENCES, tables):
        literal = "'" + sequence.replace("'", "''") + "'"  # a schema may have any name
        last = (
            f"(SELECT CASE WHEN is_called THEN last_value ELSE last_value - 1 END FROM {sequence})"
            if may_select
            else f"pg_sequence_last_value({literal}::regclass)"  # NULL before the first use
        )
        greatest, at = await connection.fetchrow(f"SELECT max({column}), {last} FROM {table}")
        if greatest is not None and at is not None and at < greatest:
            flaws.append(
                f"{sequence} is at {at}, behind the greatest {column} of {table}, which is "
                f"{greatest}: run SELECT setval({literal}, {greatest})"
            )
    shared = await connection.fetchrow(_SHARED_IDS)
    if shared is not None:
        count, number, first, last = shared
        flaws.append(
            f"{count} timers share their ids with others, such as {first!r} and {last!r} the id "
            f"{number}: a process fires only one of them; stop all processes, and after setval run "
            "UPDATE aiowheel_timers SET id = DEFAULT WHERE id IN (SELECT id FROM aiowheel_timers "
            "GROUP BY id HAVING count(*) > 1)"
        )
    return flaws


class Statements:
    """Executes operations in the transaction that a connection is in.

    Args:
        connection: The connection of the store or of the user.
        owner: The owner that executes the operations. "" for operations in a user's transaction,
            whose changes are always left for the owner of the partition.
        partitions: The number of partitions.
    """

    def __init__(self, connection: Transaction, owner: str, partitions: int) -> None:
        self._connection = connection
        self._owner = owner
        self._partitions = partitions
        self._parts: dict[int, tuple[str, int, int, int]] = {}
        self._now_us = 0
        self._left: set[tuple[int, int, str]] = set()  # partitions, ids and names

    async def lock(self, operations: Sequence[Operation]) -> None:
        """Read the leases of the affected partitions, and lock them until the commit.

        Without the lock, another process could take the partition and read a timer that this
        transaction changes, and the change would not be left for it.
        """
        if any(isinstance(each, Redrive) for each in operations):
            parts = list(range(self._partitions))
        else:
            parts = sorted({self._part(each) for each in operations})
        records = await self._connection.fetch(
            f"SELECT part, owner, epoch, until_us, horizon_us, {_NOW} AS now_us "
            "FROM aiowheel_parts WHERE part = ANY($1::integer[]) ORDER BY part FOR SHARE",
            parts,
        )
        if len(records) < len(parts):
            raise StoreError(_MISSING_PARTITION)
        for part, owner, epoch, until_us, horizon_us, now_us in records:
            self._parts[part] = (owner, epoch, until_us, horizon_us)
            self._now_us = now_us

    def _part(self, operation: Operation) -> int:
        if isinstance(operation, Settle):
            return operation.part
        assert not isinstance(operation, Redrive)
        return part_of(operation.name, self._partitions)

    async def execute_all(self, operations: Sequence[Operation]) -> list[Result]:
        """Execute operations: acknowledgements first, the others in order; see `batches_of`."""
        results: list[Result] = [None] * len(operations)
        for places in batches_of(operations):
            batch: list[Any] = [operations[place] for place in places]
            for place, result in zip(places, await self._execute(batch), strict=True):
                results[place] = result
        return results

    async def _execute(self, batch: list[Any]) -> list[Result]:
        first: Operation = batch[0]
        match first:
            case Put():
                return await self._put_many(batch)
            case Cancel():
                return await self._cancel_many(batch)
            case Settle() if is_acknowledgement(first):
                return await self._acknowledge(batch)
            case Settle():
                return [await self._settle(first)]
            case Move():
                return [await self._move(first)]
            case Redrive():
                return [await self._redrive(first)]

    def _note(self, part: int, timer: int, name: str, due_us: int | None = None) -> None:
        """Note a change to leave for the owner, if another process may hold the timer in memory."""
        if self._owner:
            owner, _, _, horizon_us = self._parts[part]
            if owner in {"", self._owner} or (due_us is not None and due_us > horizon_us):
                return
        self._left.add((part, timer, name))

    async def leave(self) -> None:
        """Write the noted changes, and notify the owners once."""
        if self._left:
            await self._connection.execute(
                "INSERT INTO aiowheel_inbox (part, timer, name) "
                "SELECT * FROM unnest($1::integer[], $2::bigint[], $3::text[])",
                *zip(*sorted(self._left), strict=True),
            )
            await self._connection.execute(_NOTIFY)

    async def _put_many(self, puts: list[Put]) -> list[Result]:
        placed: dict[str, Result] = {}
        for mode in dict.fromkeys(put.if_exists for put in puts):
            chosen = sorted((put for put in puts if put.if_exists == mode), key=_name_of)
            records = await self._connection.fetch(_PUT[mode], *_columns(chosen, self._partitions))
            found = {record[0]: record for record in records}
            for put in chosen:
                placed[put.name] = _placed(put, found.get(put.name))
        for result in placed.values():
            if isinstance(result, Placed):
                # The owner may hold the old version of a replaced timer, even if the new one is
                # due late.
                row = result.row
                self._note(row.part, row.id, row.name, row.due_us if result.is_new else None)
        return [placed[put.name] for put in puts]

    async def _cancel_many(self, cancels: list[Cancel]) -> list[Result]:
        records = await self._connection.fetch(
            "DELETE FROM aiowheel_timers WHERE name = ANY($1::text[]) "
            "RETURNING name, id, gen, part, due_us",
            [cancel.name for cancel in cancels],
        )
        removed: dict[str, Removed] = {}
        unread = await self._unread([(part, timer) for _, timer, _, part, _ in records])
        for name, timer, gen, part, due_us in records:
            owner, _, until_us, horizon_us = self._parts[part]
            is_final = (
                owner in {"", self._owner}
                or until_us < self._now_us
                or (min(until_us, horizon_us) < due_us and timer not in unread)
            )
            self._note(part, timer, name, due_us)
            removed[name] = Removed(timer, gen, due_us, is_final)
        return [removed.get(cancel.name) for cancel in cancels]

    async def _unread(self, timers: list[tuple[int, int]]) -> set[int]:
        """Return the ids of the timers of which the owner may hold an older version."""
        foreign = [timer for part, timer in timers if self._parts[part][0] not in {"", self._owner}]
        if not foreign:
            return set()
        records = await self._connection.fetch(
            "SELECT timer FROM aiowheel_inbox WHERE timer = ANY($1::bigint[])", foreign
        )
        return {timer for (timer,) in records} | {timer for _, timer, _ in self._left}

    async def _move(self, move: Move) -> Result:
        record = await self._connection.fetchrow(_MOVE, move.due_us, move.name)
        if record is None:
            return None
        row = Row(*record)
        self._note(row.part, row.id, row.name)
        return Placed(row, is_new=False)

    def _is_stale(self, settle: Settle) -> bool:
        return bool(self._owner) and self._parts[settle.part][1] != settle.epoch

    async def _acknowledge(self, settles: list[Settle]) -> list[Result]:
        stale = [self._is_stale(each) for each in settles]
        current = [each for each, is_stale in zip(settles, stale, strict=True) if not is_stale]
        records = await self._connection.fetch(
            _ACKNOWLEDGE,
            [each.name for each in current],
            [each.id for each in current],
            [each.gen for each in current],
        )
        return answers_of(settles, stale, {tuple(record) for record in records})

    async def _settle(self, settle: Settle) -> Result:
        if self._is_stale(settle):
            return "stale"
        fetchval = self._connection.fetchval
        identity = (settle.name, settle.id, settle.gen)
        if settle.error is not None:
            await self._connection.execute(
                _BURY, settle.attempts, settle.error, *identity, settle.dead_due_us
            )
        if settle.due_us is None:
            found = await fetchval(_ACKNOWLEDGE, *([each] for each in identity))
        else:
            again = (settle.due_us, settle.next_gen, settle.next_attempt, settle.first_due_us)
            found = await fetchval(_AGAIN, *again, *identity)
        if found is None:
            return "gone"
        if not self._owner and settle.due_us is not None:
            self._note(settle.part, settle.id, settle.name)
        return "done"

    async def _redrive(self, redrive: Redrive) -> Result:
        record = await self._connection.fetchrow(
            f"SELECT {_DEAD} FROM aiowheel_dead WHERE id = $1 FOR UPDATE", redrive.dead_id
        )
        if record is None:
            return None
        dead = DeadLetter(*record)
        put = Put(dead.name, dead.handler, self._now_us, dead.payload, if_exists="keep")
        (placed,) = await self._put_many([put])
        if placed is None:
            put = put._replace(name=second_name(dead), if_exists="error")
            (placed,) = await self._put_many([put])
        if not isinstance(placed, Placed):
            return placed
        await self._connection.execute("DELETE FROM aiowheel_dead WHERE id = $1", dead.id)
        await self._connection.execute(
            "UPDATE aiowheel_timers SET fire_id = $1 WHERE name = $2", dead.fire_id, placed.row.name
        )
        return Placed(placed.row._replace(fire_id=dead.fire_id), is_new=True)


_name_of: Final = itemgetter(0)


def _columns(puts: Sequence[Put], partitions: int) -> list[Sequence[Any]]:
    """Return the arguments of `_INSERT`, in which `unnest` fills shorter arrays with NULL.

    The driver takes as long for an element as PostgreSQL for the insertion of its column. Therefore
    a handler that all timers share is sent once, and recurrences are sent only if there are any.
    """
    names, handlers, dues, payloads, recurrences, _ = zip(*puts, strict=True)
    parts = [part_of(name, partitions) for name in names]
    if handlers.count(handlers[0]) == len(handlers):
        handlers = handlers[:1]
    if not any(recurrences):
        recurrences = ()
    return [names, handlers, parts, dues, recurrences, payloads]


def _placed(put: Put, record: Any) -> Result:
    """Return the result of *put*; *record* has the columns of `_RETURNING`, or is None."""
    if record is None:
        return TimerExistsError(put.name) if put.if_exists == "error" else None
    _, timer, gen, part = record
    return made(Placed, (row_of(put, timer, gen, part), gen == 1))


def as_puts(operations: Sequence[Operation]) -> list[Put] | None:
    """Return the operations if they are puts of one mode with different names, else None."""
    first = operations[0] if operations else None
    if not isinstance(first, Put):
        return None
    mode = first.if_exists
    puts = {
        each.name: each for each in operations if isinstance(each, Put) and each.if_exists == mode
    }
    return list(puts.values()) if len(puts) == len(operations) else None


async def put_alone(
    connection: Transaction, owner: str, partitions: int, puts: Sequence[Put], *, are_new: bool
) -> list[Result]:
    """Execute a whole commit of puts, outside of a transaction.

    If *are_new*, a name that is taken raises the driver's UniqueViolationError.
    """
    chosen = sorted(puts, key=_name_of)  # one order for all processes
    statement = _PUT_ALONE["new" if are_new else puts[0].if_exists]
    columns = _columns(chosen, partitions)
    parts = set(columns[2])
    records = await connection.fetch(statement, *columns, owner, len(parts))
    found = {record[0]: record for record in records}
    _, leases, *_ = found[None]
    if leases < len(parts):
        raise StoreError(_MISSING_PARTITION)
    return [_placed(put, found.get(put.name)) for put in puts]


async def now_us(connection: Transaction) -> int:
    """Return the server's clock in microseconds since the Unix epoch."""
    return int(await connection.fetchval(f"SELECT {_NOW}"))


# --- leases -----------------------------------------------------------------------------------


async def renew(
    connection: Transaction, owner: str, lease_us: int, horizon_us: int, give_up: Sequence[int]
) -> tuple[Leased, list[int]]:
    """See `Store.renew`; returns no changes, but the partitions that were taken."""
    # Locks all rows in order, so that renewals run one after the other and after open commits.
    parts = await connection.fetch(
        "SELECT part, owner, epoch, until_us FROM aiowheel_parts ORDER BY part FOR UPDATE"
    )
    now = await now_us(connection)
    until_us = now + lease_us
    await connection.execute("DELETE FROM aiowheel_members WHERE until_us < $1", now)
    members: int = await connection.fetchval(
        "WITH mine AS (INSERT INTO aiowheel_members VALUES ($1, $2) "
        "ON CONFLICT (owner) DO UPDATE SET until_us = $2) "
        "SELECT count(*) + 1 FROM aiowheel_members WHERE owner <> $1",
        owner,
        until_us,
    )
    if give_up:
        await connection.execute(
            "UPDATE aiowheel_parts SET owner = '', until_us = 0, horizon_us = 0 "
            "WHERE owner = $1 AND part = ANY($2::integer[])",
            owner,
            list(give_up),
        )
        await connection.execute(_NOTIFY)
    epochs, share, expiry, gained = distributed(parts, members, owner, now, give_up)
    await connection.execute(
        "UPDATE aiowheel_parts AS t SET owner = $1, until_us = $2, horizon_us = $3, "
        "epoch = mine.epoch FROM unnest($4::integer[], $5::bigint[]) AS mine (part, epoch) "
        "WHERE t.part = mine.part",
        owner,
        until_us,
        now + horizon_us,
        list(epochs),
        list(epochs.values()),
    )
    return Leased(now, epochs, share, expiry, []), gained


async def release(connection: Transaction, owner: str) -> None:
    """See `Store.release`."""
    await connection.execute("DELETE FROM aiowheel_members WHERE owner = $1", owner)
    await connection.execute(
        "UPDATE aiowheel_parts SET owner = '', until_us = 0, horizon_us = 0 WHERE owner = $1",
        owner,
    )
    await connection.execute(_NOTIFY)


async def forget_changes(connection: Connection, parts: list[int], most: int) -> bool:
    """Remove changes of partitions, at most *most*; return whether there may be more."""
    removed = await connection.execute(
        "DELETE FROM aiowheel_inbox WHERE seq IN "
        "(SELECT seq FROM aiowheel_inbox WHERE part = ANY($1::integer[]) LIMIT $2)",
        parts,
        most,
    )
    return removed == f"DELETE {most}"


async def changes(
    connection: Transaction, owner: str, after: int, most: int
) -> tuple[list[Change], int | None, bool]:
    """Remove and return changes for *owner* with numbers above *after*, at most *most*.

    Also return the last of their numbers if there may be more, and whether a partition has no
    owner.
    """
    records = await connection.fetch(
        "DELETE FROM aiowheel_inbox WHERE seq IN (SELECT seq FROM aiowheel_inbox WHERE part IN "
        "(SELECT part FROM aiowheel_parts WHERE owner = $1) AND seq > $2 ORDER BY seq LIMIT $3) "
        "RETURNING timer, name, seq",
        owner,
        after,
        most,
    )
    timers = {timer: name for timer, name, _ in records}
    rows: dict[int, Row] = {}
    if timers:
        # The owner does not hold a timer beyond its horizon, whose payload would be read in vain.
        query = (
            f"SELECT {_T_WINDOW_ROW} FROM aiowheel_timers AS t "
            "JOIN aiowheel_parts AS p USING (part) "
            "WHERE name = ANY($1::text[]) AND due_us <= horizon_us"
        )
        names = set(timers.values())
        rows = {record["id"]: window_row(record) for record in await connection.fetch(query, names)}
    query = "SELECT EXISTS (SELECT 1 FROM aiowheel_parts WHERE owner = '')"
    is_free: bool = await connection.fetchval(query)
    found = [Change(timer, rows.get(timer)) for timer in timers]
    last = max(seq for _, _, seq in records) if len(records) == most else None
    return found, last, is_free


# --- reading ----------------------------------------------------------------------------------


def _keys_of(cursor: Cursor) -> tuple[int, int]:
    """Return the place of a cursor in the index of due times: the values of `_HIGH` and `_LOW`."""
    due_us = min(max(0, cursor.due_us + _YEAR_ONE_US), 2**_DUE_BITS - 1)
    timer = min(cursor.id, 2**_ID_BITS - 1)
    high = (cursor.part << _HIGH_BITS) | (due_us >> _LOW_BITS)
    return high, ((due_us & (2**_LOW_BITS - 1)) << _ID_BITS) | timer


def page_arguments(cursors: Sequence[Cursor], until_us: int, limit: int) -> list[Any]:
    """Return the arguments of `PAGE`."""
    highs, lows = zip(*map(_keys_of, cursors), strict=True)
    lasts = [_keys_of(Cursor(cursor.part, until_us, 0))[0] for cursor in cursors]
    return [highs, lows, lasts, until_us, limit]


async def page(
    connection: Transaction, cursors: Sequence[Cursor], until_us: int, limit: int
) -> list[list[Row]]:
    """Return rows of several partitions in one round trip."""
    records = await connection.fetch(PAGE, *page_arguments(cursors, until_us, limit))
    pages: dict[int, list[Row]] = {cursor.part: [] for cursor in cursors}
    for record in records:
        row = window_row(record)
        pages[row.part].append(row)
    for rows_of_part in pages.values():
        rows_of_part.sort(key=lambda row: (row.due_us, row.id))
    return list(pages.values())


async def get(connection: Transaction, name: str) -> Row | None:
    """Return the timer of that name."""
    query = f"SELECT {_ROW} FROM aiowheel_timers WHERE name = $1"
    record = await connection.fetchrow(query, name)
    return None if record is None else Row(*record)


def _end_of(prefix: str) -> str | None:
    """Return the first text after all texts that begin with *prefix*, or None if there is none."""
    start = prefix.rstrip(chr(sys.maxunicode))
    if not start:
        return None
    last = ord(start[-1]) + 1
    return start[:-1] + chr(0xE000 if last == 0xD800 else last)  # no text has a surrogate


# The first of the found rows, up to `PAGE_BYTES` of payloads, whose lengths are known without
# reading them.
_LIST: Final = (
    "SELECT {columns} FROM (SELECT *, coalesce(sum(octet_length(payload)) OVER "
    "(ORDER BY {key} ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), 0) AS earlier "
    f"FROM ({{found}}) AS found) AS page WHERE earlier < {PAGE_BYTES} ORDER BY {{key}}"
)


async def rows(
    connection: Connection,
    after: str = "",
    prefix: str = "",
    limit: int = 1000,
    *,
    has_payloads: bool = True,
) -> list[Row]:
    """Return timers by name; without *has_payloads* an empty payload stands for each."""
    values: list[object] = [after, prefix, limit]
    bound = ""
    # In other encodings, the order of the bytes is not that of the code points.
    if connection.get_settings().server_encoding in {"UTF8", "SQL_ASCII"}:
        end = _end_of(prefix)
        if end is not None:
            bound = "AND name < $4 "
            values.append(end)
    found = (
        "SELECT * FROM aiowheel_timers WHERE name > $1 AND name >= $2 "
        f"AND starts_with(name, $2) {bound}ORDER BY name LIMIT $3"
    )
    if has_payloads:
        query = _LIST.format(columns=_ROW, found=found, key="name")
    else:
        query = f"SELECT {_ROW_WITHOUT_PAYLOAD} FROM ({found}) AS found ORDER BY name"
    return [Row(*record) for record in await connection.fetch(query, *values)]


async def dead_letters(connection: Transaction, after: int, limit: int) -> list[DeadLetter]:
    """Return dead letters by id."""
    found = "SELECT * FROM aiowheel_dead WHERE id > $1 ORDER BY id LIMIT $2"
    query = _LIST.format(columns=_DEAD, found=found, key="id")
    return [DeadLetter(*record) for record in await connection.fetch(query, after, limit)]


async def parts(connection: Transaction) -> list[int]:
    """Return the numbers of the partitions."""
    return [part for (part,) in await connection.fetch("SELECT part FROM aiowheel_parts")]


async def summary(connection: Transaction) -> Summary:
    """Return the counts of the tables."""
    now = await now_us(connection)
    pending, overdue = await connection.fetchrow(
        "SELECT count(*), count(*) FILTER (WHERE due_us <= $1) FROM aiowheel_timers", now
    )
    dead = await connection.fetchval("SELECT count(*) FROM aiowheel_dead")
    owners = await connection.fetch("SELECT owner, count(*) FROM aiowheel_parts GROUP BY owner")
    hours = [0] * 24
    for hour, count in await connection.fetch(
        "SELECT greatest(0, (due_us - $1) / 3600000000) AS hour, count(*) FROM aiowheel_timers "
        "WHERE due_us < $1 + 86400000000 GROUP BY 1",
        now,
    ):
        hours[hour] += count
    return Summary(pending, overdue, dead, dict(map(tuple, owners)), hours)
