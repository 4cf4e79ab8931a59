"""Fuzz targets: tables, folders, archives and times."""

from __future__ import annotations

import gzip
import io
import json
import os
import socket
import tarfile
import tempfile
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, cast
from unittest.mock import patch

import pyarrow as pa
import pyarrow.parquet as pq

from aiowheel.errors import BadInputError
from aiowheel.jobs.operations.rows import Row, json_text, parquet_files, rows_of, rows_of_lines
from aiowheel.jobs.schemas import EVENTS, OPERATIONS, Flaw
from aiowheel.readers import (
    LATEST_TIME,
    Format,
    Inputs,
    Reject,
    Tally,
    TimedRows,
    TimeFormat,
    Unit,
    _table,
    pieces_of,
    time_parser,
)
from aiowheel.readers._inputs import Source, Sources
from aiowheel.readers._times import duration_in_unit

from .draw import Draw, check_reason

TEXT_FORMATS = (Format.CSV, Format.TSV, Format.NDJSON, Format.CLF, Format.ZEEK)
FILES = (
    *("a.csv.gz", "a.tar.gz", "a.tgz", "a.log", "a.ndjson", "a.tsv.gz", "a", "a.parquet"),
    *("sub/a.csv", "sub/.hidden.csv", "_SUCCESS"),
)
PATTERNS = (".", "a*", "sub", "**", "nothing", "", "*.gz", "a.csv.gz", "[", "a" * 300, "\0", *FILES)
MEMBERS = ("inside.csv", "access_log", ".hidden.csv", "b.log.gz", "c.ndjson")
Seen = tuple[list[tuple[int, str]], list[Reject], str]
#: The names of the key column, and of the time column.
COLUMNS: tuple[tuple[str | tuple[str, ...], str], ...] = (
    (("key", "conn[].id"), "t"),
    ("host", "time"),
    ("id", "ts"),
    (("x", "conn[].id", "conn[].of.id"), "conn[].t"),
    ("a.key", "a.b.t"),
)
NAMES = ("key", "t", "conn[].id", "T")
KINDS = (
    *(pa.null(), pa.uint64()),
    *(pa.int64(), pa.string(), pa.timestamp("ms"), pa.timestamp("ns"), pa.float64()),
    *(pa.dictionary(pa.int32(), pa.string()), pa.large_string()),
)


class Rules(NamedTuple):
    """The options of `TimedRows`."""

    key: str | tuple[str, ...]
    time: str
    written: TimeFormat = TimeFormat.EPOCH
    unit: Unit = Unit.S
    earliest: int = 0
    latest: int = LATEST_TIME
    strict: bool = False
    allow_empty: bool = True
    puts_aside: bool = True

    def rows(self, inputs: Sources, rejects: list[Reject]) -> TimedRows:
        """Return the rows of these inputs; bad ones become *rejects*."""
        return TimedRows(
            inputs,
            key=self.key,
            time=self.time,
            parse_time=time_parser(self.written, self.unit),
            unit=self.unit,
            earliest=self.earliest,
            latest=self.latest,
            strict=self.strict,
            allow_empty=self.allow_empty,
            put_aside=rejects.append if self.puts_aside else None,
        )


def table(data: bytes) -> None:
    """A table of any format yields rows and rejects, or raises `BadInputError`.

    The reader that takes over the results of another one raises the same error, or has the same
    counts.
    """
    draw = Draw(data)
    form = draw.choice((*TEXT_FORMATS, Format.PARQUET))
    rules = _rules(draw)
    is_cut = draw.number(0, 7) == 1
    content = _parquet(draw, NAMES) if form is Format.PARQUET and draw.number(0, 3) else draw.rest()
    source = _TableSource(form, content, is_cut=is_cut)
    rejects: list[Reject] = []
    with patch.object(_table, "_BATCH_ROWS", 2):
        rows = rules.rows(source, rejects)
        error = _check_read(rows, rejects, rules)[2]
        other = _taken_over(rules, source, form, error)
    assert rows.reads_whole_numbers == (rules.written is TimeFormat.EPOCH)
    if not error:
        assert _counts(other) == _counts(rows)


def _rules(draw: Draw) -> Rules:
    written, unit = draw.choice(tuple(TimeFormat)), draw.choice(tuple(Unit))
    key, time = draw.choice(COLUMNS)
    if not draw.number(0, 1):
        return Rules(key, time, written, unit)
    return Rules(
        key,
        time,
        written,
        unit,
        earliest=draw.number(0, 9),
        latest=draw.choice((LATEST_TIME, 7)),
        strict=draw.number(0, 3) == 1,
        allow_empty=draw.number(0, 1) == 1,
        puts_aside=draw.number(0, 1) == 1,
    )


def _parquet(draw: Draw, among: Sequence[str]) -> bytes:
    """Return a Parquet file with columns of drawn types, whose texts may be no UTF-8."""
    columns: list[Any] = []
    names = [draw.choice(among) for _ in range(draw.number(0, 3))]
    count = draw.number(0, 5)
    for _ in names:
        if draw.number(0, 1):
            texts = [draw.take(draw.number(0, 3)) for _ in range(count)]
            columns.append(pa.array(texts, pa.binary()).view(pa.string()))
        else:
            numbers = [draw.choice((None, draw.number(0, 9), 2**59)) for _ in range(count)]
            whole = pa.array(numbers, pa.int64())
            kind = draw.choice(KINDS)
            is_text = pa.types.is_dictionary(kind)
            plain = whole.cast(pa.string()) if is_text else whole
            is_null = kind == pa.null()
            columns.append(pa.nulls(count) if is_null else plain.cast(kind, safe=False))
        if draw.number(0, 1):  # one value in each list
            offsets = pa.array(range(count + 1), pa.int32())
            columns[-1] = pa.ListArray.from_arrays(offsets, columns[-1])
    packed = io.BytesIO()
    pq.write_table(pa.Table.from_arrays(columns, names=names), packed)
    return packed.getvalue()


def _taken_over(rules: Rules, source: Sources, form: Format, error: str) -> TimedRows:
    """Return rows that take over what other rows have found; check that *error* is the same."""
    found: list[Reject | Tally | BadInputError] = []
    other = rules.rows(source, []).by_the_same_rules(source, found.append)
    try:
        deque(other.batches(), 0)
    except BadInputError as refused:
        found.append(refused)
    else:
        found.append(Tally("table", form, other.accepted, ends_source=True))
    rows = rules.rows(source, [])
    again = ""
    try:
        rows.take_over(found)
    except BadInputError as refused:
        again = str(refused)
    assert again == error
    return rows


def _counts(rows: TimedRows) -> tuple[object, ...]:
    counts = rows.files, rows.accepted, rows.rejected, rows.irregular
    return *counts, rows.rejects, rows.irregularities


def files(data: bytes) -> None:
    """Files of any names are read through any paths, compressed or not, damaged or not."""
    draw = Draw(data)
    form = draw.choice((None, *TEXT_FORMATS, Format.PARQUET))
    patterns = [draw.choice(PATTERNS) for _ in range(draw.number(1, 2))]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for _ in range(draw.number(1, 3)):
            _make_file(draw, folder / draw.choice(FILES))
        try:
            inputs = Inputs([each and str(folder / each) for each in patterns], form)
        except BadInputError as error:
            check_reason(error)
            return
        check_rows(inputs, form)
        assert 0 <= inputs.bytes_read <= inputs.total_bytes


def pieces(data: bytes) -> None:
    """A file cut into pieces yields the rows and rejects of the whole file."""
    draw = Draw(data)
    form = draw.choice(TEXT_FORMATS[:4])
    size = draw.number(1, 60)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, f"table.{'log' if form is Format.CLF else form.value}")
        path.write_bytes(draw.rest())
        whole = check_rows(Inputs([str(path)], form), form)
        try:
            cut = pieces_of(Inputs([str(path)], form), lambda all_: [p.scan() for p in all_], size)
        except BadInputError as error:
            check_reason(error, whole[2])
            return
        each = [check_rows(piece, form) for piece in cut]
    errors = [error for _, _, error in each if error]
    assert errors[:1] == ([whole[2]] if whole[2] else [])
    if not errors:
        assert [row for rows, _, _ in each for row in rows] == whole[0]
        assert [reject for _, rejects, _ in each for reject in rejects] == whole[1]


def times(data: bytes) -> None:
    """A time in text is a whole number of the unit, or is refused with a reason."""
    draw = Draw(data)
    written, unit = draw.choice(tuple(TimeFormat)), draw.choice(tuple(Unit))
    if draw.number(0, 1):
        _check_duration(_duration(draw), unit)
        return
    text = draw.rest().decode("utf-8", "surrogateescape")
    try:
        moment = time_parser(written, unit)(text)
    except ValueError as error:
        check_reason(error)
        return
    assert type(moment) is int
    assert moment >= 0
    if written is TimeFormat.EPOCH:
        assert str(moment) == (text.lstrip("0") or "0")


def _duration(draw: Draw) -> float:
    kind = draw.number(0, 2)
    return (True, draw.number(0, 2**33) / 1000)[kind - 1] if kind else draw.real()


def _check_duration(seconds: float, unit: Unit) -> None:
    """A duration is a whole number of the unit, by its printed digits, or is refused."""
    try:
        duration = duration_in_unit(seconds, unit)
    except (TypeError, ValueError) as error:
        check_reason(error, "timeout must be ")
        return
    assert type(seconds) is not bool
    assert 0 < duration <= LATEST_TIME
    assert Decimal(duration).scaleb(-unit.digits) == Decimal(repr(seconds))


def operations(data: bytes) -> None:
    """A row of a trace fits its schema, or has a flaw; its text is UTF-8."""
    draw = Draw(data)
    schema = draw.choice((OPERATIONS, EVENTS))
    form = draw.choice((Format.NDJSON, Format.CSV, Format.PARQUET))
    nullable = pa.schema([field.with_nullable(True) for field in schema])
    if draw.number(0, 1) or form is Format.PARQUET:
        rows = _rows_of_file(draw, form, schema)
    else:
        has_header = draw.number(0, 1) == 1
        lines = draw.rest().decode("utf-8", "surrogateescape").splitlines()
        rows = _rows_of_lines(lines, form, schema, has_header=has_header)
    pa.Table.from_pylist([row for row, _ in rows if not isinstance(row, Flaw)], schema=nullable)
    for row, raw in rows:
        raw.encode()
        if not isinstance(row, Flaw):
            there = {name: value for name, value in row.items() if value is not None}
            assert json.loads(json_text(row)) == there


def _rows_of_lines(
    lines: list[str], form: Format, schema: pa.Schema, *, has_header: bool
) -> list[tuple[Row | Flaw, str]]:
    if form is Format.CSV and has_header:
        lines.insert(0, ",".join(schema.names))
    try:
        return list(rows_of_lines("table", lines, form, schema))
    except BadInputError as error:
        check_reason(error, "table: line 1 must be the columns ")
        return []


def _rows_of_file(draw: Draw, form: Format, schema: pa.Schema) -> list[tuple[Row | Flaw, str]]:
    """Return the rows of a file, which may be damaged; its readers agree on their number."""
    is_parquet = form is Format.PARQUET and draw.number(0, 3) > 0
    suffix = draw.choice((f".{form.value}", f".{form.value}.gz"))
    damage = draw.number(0, 999), draw.number(0, 255)
    stem = draw.choice(("table", os.fsdecode(b"\xff")))
    content = _parquet(draw, (*schema.names, *schema.names, "KEYS")) if is_parquet else draw.rest()
    content = gzip.compress(content, mtime=0) if suffix.endswith(".gz") else content
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, f"{stem}{suffix}")
        path.write_bytes(_damaged(content, *damage))
        rows: list[tuple[Row | Flaw, str]] = []
        try:
            for place, row, raw in rows_of(path, form, schema):
                assert place == str(path)
                rows.append((row, raw))
            if form is Format.PARQUET:
                assert sum(parquet_files(path, schema).values()) == len(rows)
        except BadInputError as error:
            check_reason(error, str(path))
    return rows


def _damaged(content: bytes, at: int, flip: int) -> bytes:
    damaged = bytearray(content)
    if at < len(damaged):
        damaged[at] ^= flip
    return bytes(damaged)


class _TableSource:
    """One table in memory, which may be the rest of a gzip file that was cut off."""

    def __init__(self, form: Format, content: bytes, *, is_cut: bool) -> None:
        self._form = form
        self._content = content
        self._is_cut = is_cut

    def sources(self) -> Iterator[Source]:
        """Yield the table."""
        data: BinaryIO = io.BytesIO(self._content)
        if self._is_cut:
            packed = io.BytesIO(gzip.compress(self._content, mtime=0)[:-8])
            data = cast("BinaryIO", gzip.GzipFile(fileobj=packed))
        yield Source("table", self._form, data)


def check_rows(inputs: Sources, form: Format | None) -> Seen:
    """Read everything; check that every row is usable and every count correct."""
    names = {Format.CLF: COLUMNS[1], Format.ZEEK: COLUMNS[2]}
    rules = Rules(*(names.get(form, COLUMNS[0]) if form is not None else COLUMNS[0]))
    rejects: list[Reject] = []
    return _check_read(rules.rows(inputs, rejects), rejects, rules)


def _check_read(rows: TimedRows, rejects: list[Reject], rules: Rules) -> Seen:
    taken: list[tuple[int, str]] = []
    error = ""
    try:
        for batch in rows.batches():
            taken += zip(batch.times, batch.keys, strict=True)
    except BadInputError as refused:
        check_reason(refused)
        error = str(refused)
    for moment, each in taken:
        assert rules.earliest <= moment <= rules.latest
        assert each
        each.encode()
    if rules.strict:
        assert error or not (rows.rejected or rows.irregular)
    elif rules.puts_aside:
        assert sum(not reject.used for reject in rejects) == rows.rejected
        assert sum(reject.used for reject in rejects) == rows.irregular
    assert error or len(taken) == rows.accepted
    return taken, rejects, error


def _make_file(draw: Draw, path: Path) -> None:
    """Create a file with drawn content, or something that only looks like a file."""
    path.parent.mkdir(exist_ok=True)
    if path.exists() or path.is_symlink():
        return
    kind = draw.number(0, 7)
    if kind < len(ODD):
        ODD[kind](path)
        return
    packing = draw.number(0, 3)
    content = _tar(draw) if packing >= 2 else draw.take(draw.number(0, 200))
    if packing % 2:
        content = gzip.compress(content, mtime=0)
    path.write_bytes(_damaged(content, draw.number(0, 2_000), draw.number(0, 255)))


def _make_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))


#: What a folder may hold instead of a file: a folder, a link to nothing, a loop of links, a socket.
ODD: tuple[Callable[[Path], object], ...] = (
    Path.mkdir,
    lambda path: path.symlink_to("missing"),
    lambda path: path.symlink_to(path.name),
    _make_socket,
)


def _tar(draw: Draw) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        for _ in range(draw.number(1, 2)):
            member = tarfile.TarInfo(draw.choice(MEMBERS))
            member.type = draw.choice((tarfile.REGTYPE, tarfile.REGTYPE, tarfile.DIRTYPE))
            content = draw.take(draw.number(0, 200))
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return packed.getvalue()
