"""Export of a store of durable timers as a trace, for `aiowheel report` and Spark. Rank 5.

The rows have the columns of `aiowheel.trace`. A store holds pending timers and dead letters, but no
fires of the past. A pending timer is written with its due time as the time of its fire, an overdue
timer with the time of the export. Needs pyarrow.
"""

from __future__ import annotations

import secrets
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from aiowheel._progress import Progress
from aiowheel.durable import DeadLetter, Row, Store
from aiowheel.errors import AiowheelError, BadInputError
from aiowheel.trace._batch import BATCH_SCHEMA
from aiowheel.trace._file import TraceFile

_PAGE = 1000
_LAST_NS = 2**63 - 1  # in the year 2262; the last time that a trace can hold


class Exported(NamedTuple):
    """The result of an export.

    Attributes:
        file: Path of the file.
        pending: Number of timers.
        overdue: Number of timers that are due.
        dead: Number of dead letters.
    """

    file: Path
    pending: int
    overdue: int
    dead: int


class _Line(NamedTuple):
    """The columns of one row of the trace, without those that are the same in all rows."""

    purgatory: str
    kind: str
    keys: list[str]
    created: int
    deadline: int
    finished: int
    outcome: str
    lateness: int | None
    checks: int


async def export_trace(
    store: Store, folder: Path, progress: Progress, *, ahead_us: int | None
) -> Exported:
    """Write the timers and the dead letters of a store as one file of a trace.

    Args:
        store: An open store.
        folder: Folder for the trace; created if it is missing.
        progress: Shows the number of timers and dead letters read so far.
        ahead_us: Leave out timers that are due later than this many microseconds from now; None:
            export all timers.

    Raises:
        BadInputError: The folder holds a trace already.
        AiowheelError: The file cannot be written; no part of it remains, and no new folder.
        StoreError: The store cannot be used.

    Cost: some 20 us per timer; one page of timers is in memory at a time.
    """
    counts: Counter[str] = Counter()
    run = f"durable-{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}-{secrets.token_hex(4)}"
    made = [each for each in (folder, *folder.parents) if not each.exists()]
    try:
        file = _begin(folder, run)
        try:
            async for lines in _pages(store, progress, ahead_us):
                file.write(_batch(run, file.rows, lines))
                counts.update(line.purgatory for line in lines)
            file.close()
        except BaseException:
            file.abandon()
            with suppress(OSError):  # another program may have written into it
                for each in made:
                    each.rmdir()
            raise
    except OSError as error:
        raise AiowheelError(f"{folder}: {error.strerror or error}") from error
    pending = counts["pending"] + counts["overdue"]
    return Exported(file.path, pending, counts["overdue"], counts["dead"])


def _begin(folder: Path, run: str) -> TraceFile:
    folder.mkdir(parents=True, exist_ok=True)
    if next(folder.glob("trace-*.parquet"), None) is not None:
        raise BadInputError(f"{folder}: must hold no trace yet: two would be reported as one")
    return TraceFile(folder / f"trace-{run}.parquet")


async def _pages(
    store: Store, progress: Progress, ahead_us: int | None
) -> AsyncIterator[list[_Line]]:
    summary = await store.summary()
    read, of = 0, summary.pending + summary.dead
    now_us = time.time_ns() // 1000
    window_us = int(store.default_window * 1e6)
    until_us = None if ahead_us is None else now_us + ahead_us
    name = ""
    while rows := await store.rows(after=name, limit=_PAGE):
        lines = [
            _of_timer(row, now_us, window_us)
            for row in rows
            if until_us is None or row.due_us <= until_us
        ]
        if lines:
            yield lines
        name = rows[-1].name
        read += len(rows)
        progress.show("exporting", read, of)
    number = 0
    while letters := await store.dead_letters(after=number, limit=_PAGE):
        yield [_of_dead_letter(letter) for letter in letters]
        number = letters[-1].id


def _of_timer(row: Row, now_us: int, window_us: int) -> _Line:
    due, now = _to_ns(row.due_us), _to_ns(now_us)
    finished = max(due, now)
    return _Line(
        purgatory="overdue" if due <= now else "pending",
        kind=row.handler,
        keys=[row.name],
        created=min(due, max(now, due - _to_ns(window_us))),
        deadline=due,
        finished=finished,
        outcome="expired",
        lateness=finished - due,
        checks=row.attempt,
    )


def _of_dead_letter(letter: DeadLetter) -> _Line:
    due = _to_ns(letter.due_us)
    return _Line(
        purgatory="dead",
        kind=letter.handler,
        keys=[letter.name],
        created=due,
        deadline=due,
        finished=_to_ns(letter.died_us),
        outcome="failed",
        lateness=None,
        checks=letter.attempts,
    )


def _to_ns(us: int) -> int:
    return min(max(us * 1000, 0), _LAST_NS)


def _batch(run: str, first: int, lines: Iterable[_Line]) -> pa.RecordBatch:
    rows: list[dict[str, Any]] = [
        {"run_id": run, "operation_id": number, "completed_by": None, **line._asdict()}
        for number, line in enumerate(lines, first)
    ]
    return pa.RecordBatch.from_pylist(rows, schema=BATCH_SCHEMA)
