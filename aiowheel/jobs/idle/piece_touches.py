"""Touches in text, archives and unusual Parquet files, read by Spark's workers. Rank 5.

The workers run the common reader on pieces of the files. Bad rows travel as notes in the same table
as the good rows: one job finds the idle events and the rejects, and a task that Spark repeats is
counted once.
"""

import contextlib
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Self

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

from aiowheel.errors import BadInputError
from aiowheel.jobs.idle.batch import FoundIdle
from aiowheel.jobs.spark.values import ddl
from aiowheel.readers import Format, Inputs, Piece, Reject, Scan, Tally, TimedRows, pieces_of
from aiowheel.readers._inputs import Source

# A note is a bad row, the tally of a piece (`accepted`), or the error that ends the run (`reason`).
_NOTE = pa.struct(
    {
        "source": pa.binary(),  # names and rows may not be valid UTF-8
        "line": pa.int64(),
        "reason": pa.binary(),
        "raw": pa.binary(),
        "used": pa.bool_(),
        "format": pa.string(),
        "accepted": pa.int64(),
        "ends_source": pa.bool_(),
    }
)
_ROWS = pa.schema({"key": pa.string(), "t": pa.int64(), "note": _NOTE})

_TASK_BYTES = 16 << 20
_ROW_BYTES = 40
_NOTES_AT_ONCE = 10_000
_PIECE_NOTES = 40  # bits that number the notes of one piece, in their order


@dataclass(frozen=True)
class PieceTouches:
    """The rows of any files, good and bad.

    Attributes:
        rows: ``key: string, t: bigint`` and a note. The note of a good row is null; a row with a
            note has a null key, and its t is the number of the note.
        size: The approximate number of rows.
    """

    rows: DataFrame
    size: int

    @classmethod
    def of(cls, spark: SparkSession, inputs: Inputs, rows: TimedRows) -> Self:
        """Plan reading *inputs* with the rules of *rows*.

        Raises:
            BadInputError: A file cannot be opened.
        """
        pieces = pieces_of(inputs, lambda cut: _scan_all(spark, cut))
        tasks = _tasks_of(pieces)
        read = _reader(tasks, rows.by_the_same_rules(inputs, None))
        numbers = spark.range(0, len(tasks), 1, len(tasks))
        return cls(numbers.mapInArrow(read, ddl(_ROWS)), inputs.total_bytes // _ROW_BYTES)

    def found(self, idle: FoundIdle) -> Iterator[Reject | Tally | BadInputError]:
        """Yield the notes among the events, in the order of the inputs."""
        for part in idle.parts:  # notes are all in one part, because their key is null
            with pq.ParquetFile(part) as file:
                for batch in file.iter_batches(columns=["note"]):
                    yield from map(_unpacked, batch.column("note").drop_null().to_pylist())

    @contextlib.contextmanager
    def reader_errors(self, _rows: TimedRows) -> Generator[None]:
        """Do nothing: the workers use the readers, so their errors are those of the readers."""
        yield


def _scan_all(spark: SparkSession, pieces: Sequence[Piece]) -> list[Scan]:
    if not pieces:
        return []

    def scan(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column("id").to_pylist():
                yield pa.RecordBatch.from_pylist(
                    [{"id": number, **pieces[number].scan()._asdict()}]
                )

    types = "id bigint, lines bigint, quotes bigint, outside boolean, inside boolean"
    numbers = spark.range(0, len(pieces), 1, len(pieces))
    scans = sorted(numbers.mapInArrow(scan, types).collect())
    return [Scan(*row[1:]) for row in scans]


def _tasks_of(pieces: Sequence[Piece]) -> list[list[tuple[int, Piece]]]:
    """Distribute the pieces: a large piece has its own task, small files share one."""
    tasks: list[list[tuple[int, Piece]]] = []
    room = 0
    for number, piece in enumerate(pieces):
        size = (piece.end or piece.path.stat().st_size) - piece.start
        if not tasks or size > room:
            tasks.append([])
            room = _TASK_BYTES
        tasks[-1].append((number, piece))
        room -= size
    return tasks


def _reader(
    tasks: Sequence[Sequence[tuple[int, Piece]]], rules: TimedRows
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return the function for ``mapInArrow`` that maps the number of a task to its rows."""

    def read(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for task in batch.column("id").to_pylist():
                for number, piece in tasks[task]:
                    yield from _rows_of(piece, number, rules)

    return read


def _rows_of(piece: Piece, number: int, rules: TimedRows) -> Iterator[pa.RecordBatch]:
    notes = _Notes(number)
    try:
        for source in piece.sources():
            rows = rules.by_the_same_rules(_SingleSource(source), notes.put)
            for batch in rows.batches():
                nothing = pa.nulls(len(batch.keys), _NOTE)
                yield pa.record_batch([batch.keys, batch.times, nothing], schema=_ROWS)
                if notes.are_many:
                    yield notes.taken()
            notes.put(Tally(source.name, source.format, rows.accepted, piece.ends_file))
    except BadInputError as error:
        # Not raised here: the error reported of several must not depend on the order of the tasks.
        notes.put(error)
    yield notes.taken()


@dataclass(frozen=True, slots=True)
class _SingleSource:
    """A single table as `Sources`."""

    source: Source

    def sources(self) -> Iterator[Source]:
        yield self.source


class _Notes:
    """The notes of one piece that have not been put into a batch yet."""

    def __init__(self, piece: int) -> None:
        self._next = piece << _PIECE_NOTES
        self._waiting: list[dict[str, object]] = []

    @property
    def are_many(self) -> bool:
        return len(self._waiting) >= _NOTES_AT_ONCE

    def put(self, note: Reject | Tally | BadInputError) -> None:
        fields = {"reason": str(note)} if isinstance(note, BadInputError) else note._asdict()
        self._waiting.append(
            {
                name: fields[name].encode(errors="surrogateescape")
                if pa.types.is_binary(_NOTE.field(name).type)
                else fields[name]
                for name in fields
            }
        )

    def taken(self) -> pa.RecordBatch:
        places = range(self._next, self._next + len(self._waiting))
        self._next = places.stop
        columns = [pa.nulls(len(places), pa.string()), pa.array(places, pa.int64())]
        batch = pa.record_batch([*columns, pa.array(self._waiting, _NOTE)], schema=_ROWS)
        self._waiting = []
        return batch


def _unpacked(note: dict[str, Any]) -> Reject | Tally | BadInputError:
    texts = {
        name: note[name].decode(errors="surrogateescape")
        for name in ("source", "reason", "raw")
        if note[name] is not None
    }
    if note["accepted"] is not None:
        form = Format(note["format"])
        return Tally(texts["source"], form, note["accepted"], note["ends_source"])
    if "source" not in texts:
        return BadInputError(texts["reason"])
    return Reject(**texts, line=note["line"], used=note["used"])
