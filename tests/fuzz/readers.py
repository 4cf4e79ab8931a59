"""Fuzz targets: tables, archives and times as files contain them."""

from __future__ import annotations

import gzip
import io
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa

from aiowheel.errors import BadInputError
from aiowheel.jobs.operations.rows import rows_of_lines
from aiowheel.jobs.operations.schemas import EVENTS, OPERATIONS, Flaw
from aiowheel.readers import (
    LATEST_TIME,
    Format,
    Inputs,
    Reject,
    TimedRows,
    TimeFormat,
    Unit,
    pieces_of,
    time_parser,
)
from aiowheel.readers._inputs import Source, Sources, sources_of

from .draw import Draw, check_reason

TEXT_FORMATS = (Format.CSV, Format.TSV, Format.NDJSON, Format.CLF, Format.ZEEK)
ARCHIVES = ("a.csv.gz", "a.tar.gz", "a.tgz", "a.log", "a.ndjson", "a.tsv.gz", "a")
Seen = tuple[list[tuple[int, str]], list[Reject], str]


def table(data: bytes) -> None:
    """A table of any format yields rows and rejects, or raises `BadInputError`."""
    draw = Draw(data)
    form, written = draw.choice(TEXT_FORMATS), draw.choice(tuple(TimeFormat))
    unit = draw.choice(tuple(Unit))
    check_rows(_TableSource(form, draw.rest()), form, written, unit)


def archive(data: bytes) -> None:
    """A file of any name is read, compressed or not, damaged or not."""
    draw = Draw(data)
    name = draw.choice(ARCHIVES)
    packing = draw.number(0, 3)
    at, flip = draw.number(0, 2_000), draw.number(0, 255)
    content = draw.rest()
    if packing >= 2:
        content = _tar(content)
    if packing % 2:
        content = gzip.compress(content, mtime=0)
    damaged = bytearray(content)
    if flip and at < len(damaged):
        damaged[at] ^= flip
    check_rows(_FileSource(name, bytes(damaged)), None, TimeFormat.EPOCH, Unit.S)


def pieces(data: bytes) -> None:
    """A file cut into pieces yields the rows and rejects of the whole file."""
    draw = Draw(data)
    form = draw.choice(TEXT_FORMATS[:4])
    size = draw.number(1, 60)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, f"table.{'log' if form is Format.CLF else form.value}")
        path.write_bytes(draw.rest())
        whole = check_rows(Inputs([str(path)], form), form, TimeFormat.EPOCH, Unit.S)
        try:
            cut = pieces_of(Inputs([str(path)], form), lambda all_: [p.scan() for p in all_], size)
        except BadInputError as error:
            check_reason(error, whole[2])
            return
        each = [check_rows(piece, form, TimeFormat.EPOCH, Unit.S) for piece in cut]
    errors = [error for _, _, error in each if error]
    assert errors[:1] == ([whole[2]] if whole[2] else [])
    if not errors:
        assert [row for rows, _, _ in each for row in rows] == whole[0]
        assert [reject for _, rejects, _ in each for reject in rejects] == whole[1]


def times(data: bytes) -> None:
    """A time in text is a whole number of the unit, or is refused with a reason."""
    draw = Draw(data)
    written, unit = draw.choice(tuple(TimeFormat)), draw.choice(tuple(Unit))
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


def operations(data: bytes) -> None:
    """A row of a trace fits its schema, or has a flaw; its text is UTF-8."""
    draw = Draw(data)
    schema = draw.choice((OPERATIONS, EVENTS))
    form = draw.choice((Format.NDJSON, Format.CSV))
    nullable = pa.schema([field.with_nullable(True) for field in schema])
    lines = draw.rest().decode("utf-8", "surrogateescape").splitlines()
    if form is Format.CSV and draw.number(0, 1):
        lines.insert(0, ",".join(schema.names))
    try:
        rows = list(rows_of_lines("table", lines, form, schema))
    except BadInputError as error:
        check_reason(error, "table: line 1 must be the columns ")
        return
    pa.Table.from_pylist([row for row, _ in rows if not isinstance(row, Flaw)], schema=nullable)
    for _, raw in rows:
        raw.encode()


class _TableSource:
    """One table in memory."""

    def __init__(self, form: Format, content: bytes) -> None:
        self._form = form
        self._content = content

    def sources(self) -> Iterator[Source]:
        """Yield the table."""
        yield Source("table", self._form, io.BytesIO(self._content))


class _FileSource:
    """One file in memory, which may hold several tables."""

    def __init__(self, name: str, content: bytes) -> None:
        self._name = name
        self._content = content

    def sources(self) -> Iterator[Source]:
        """Yield the tables inside."""
        raw: io.RawIOBase = io.BytesIO(self._content)  # type: ignore[assignment]
        yield from sources_of(self._name, io.BufferedReader(raw), None)


def check_rows(inputs: Sources, form: Format | None, written: TimeFormat, unit: Unit) -> Seen:
    """Read everything; check that every row is usable and every count correct."""
    rejects: list[Reject] = []
    names = {Format.CLF: ("host", "time"), Format.ZEEK: ("id", "ts")}
    key, time = names.get(form, ("key", "t")) if form is not None else ("key", "t")
    rows = TimedRows(
        inputs,
        key=(key, "conn[].id"),
        time=time,
        parse_time=time_parser(written, unit),
        unit=unit,
        allow_empty=True,
        put_aside=rejects.append,
    )
    taken: list[tuple[int, str]] = []
    error = ""
    try:
        for batch in rows.batches():
            taken += zip(batch.times, batch.keys, strict=True)
    except BadInputError as refused:
        check_reason(refused)
        error = str(refused)
    for moment, each in taken:
        assert 0 <= moment <= LATEST_TIME
        assert each
        each.encode()
    assert sum(not reject.used for reject in rejects) == rows.rejected
    assert error or len(taken) == rows.accepted
    return taken, rejects, error


def _tar(content: bytes) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        member = tarfile.TarInfo("inside.csv")
        member.size = len(content)
        archive.addfile(member, io.BytesIO(content))
    return packed.getvalue()
