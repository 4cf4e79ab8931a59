"""Large text files, cut into pieces that several workers read by the same rules. Rank 4.

A piece begins at the start of a row. A line is a row, except in CSV: a quoted field may hold line
ends, so a scan counts the quotes to find the line ends inside quoted fields.
"""

import codecs
import csv
import io
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import BinaryIO, NamedTuple

from aiowheel.errors import BadInputError
from aiowheel.readers._formats import Format, format_of
from aiowheel.readers._inputs import (
    GZIP_MAGIC,
    TAR_SUFFIXES,
    Inputs,
    Source,
    is_zeek,
    opened,
    sources_of,
)

#: Bytes of a piece; a worker holds the whole piece in memory while it reads.
PIECE_BYTES = 16 << 20

_BY_LINES = (Format.CSV, Format.TSV, Format.NDJSON, Format.CLF)
_QUOTE = ord('"')
# A file with longer fields, for example because a quote is missing, is read line by line: pieces
# with parts of one field are joined, and would fill the memory.
_LONGEST_QUOTED = 65_536


@dataclass(frozen=True, slots=True)
class Piece:
    """A file, or a range of its lines.

    Attributes:
        name: The name of the file in error messages.
        path: The absolute path of the file.
        format: The format; None derives it from the suffix.
        start: Offset of the first byte.
        end: Offset after the last byte; None for a whole file.
        head: Bytes to read before the piece: the header of the file.
        lines_before: Number of lines of the file before the piece, minus those of *head*.
        ends_file: Whether this is the last piece of the file.
    """

    name: str
    path: Path
    format: Format | None
    start: int = 0
    end: int | None = None
    head: bytes = b""
    lines_before: int = 0
    ends_file: bool = True

    def sources(self) -> Iterator[Source]:
        """Yield the tables of the piece; see `Inputs.sources`."""
        try:
            raw = opened(self.path)
        except BadInputError as error:
            raise BadInputError(str(error).replace(str(self.path), self.name, 1)) from error
        with raw:
            if self.end is None:
                yield from sources_of(self.name, raw, self.format)
                return
            assert self.format is not None
            data = io.BytesIO(self.head + self.read(raw))
            yield Source(self.name, self.format, data, self.lines_before)

    def read(self, raw: BinaryIO) -> bytes:
        """Read the bytes of the piece."""
        raw.seek(self.start)
        return raw.read(-1 if self.end is None else self.end - self.start)

    def scan(self) -> "Scan":
        """Count lines and quotes, at the speed of the disk."""
        with self.path.open("rb") as raw:
            data = self.read(raw)
        lines = _lines_in(data)
        if self.format is not Format.CSV or b'"' not in data:
            return Scan(lines, 0, outside=True, inside=False)
        return Scan(
            lines,
            data.count(b'"'),
            outside=_quotes_pair(data, inside=False),
            inside=_quotes_pair(data, inside=True),
        )


class Scan(NamedTuple):
    """The counts of one piece.

    Attributes:
        lines: Number of line ends.
        quotes: Number of double quotes.
        outside: Whether the quotes alternately open and close fields, by the rules of the CSV
            reader, if the piece begins outside a quoted field.
        inside: The same, if the piece begins inside a quoted field.
    """

    lines: int
    quotes: int
    outside: bool
    inside: bool


def pieces_of(
    inputs: Inputs, scan_all: Callable[[Sequence[Piece]], Sequence[Scan]], size: int = PIECE_BYTES
) -> list[Piece]:
    """Cut the files of *inputs* into pieces of about *size* bytes, in file order.

    Some files stay one piece because they cannot be cut: archives, gzipped files, Parquet, Zeek
    logs, and CSV whose quotes are not balanced.

    Args:
        inputs: The files.
        scan_all: Calls `Piece.scan` of each piece, in parallel where that is faster.
        size: In bytes, above 0.

    Raises:
        BadInputError: A file cannot be read.
    """
    cut = [_cut(path, inputs.forced_format, size) for path in inputs.paths]
    scans = iter(scan_all([piece for pieces in cut if len(pieces) > 1 for piece in pieces]))
    return [piece for pieces in cut for piece in _joined(pieces, scans)]


def _cut(path: Path, form: Format | None, size: int) -> list[Piece]:
    """Cut a file at line ends; the lines are not counted yet."""
    whole = Piece(str(path), path.absolute(), form)
    detected = form or format_of(path.name)
    if detected is None or detected not in _BY_LINES or path.name.endswith(TAR_SUFFIXES):
        return [whole]
    with opened(path) as file:
        if file.peek(2)[:2] == GZIP_MAGIC or is_zeek(file) or not file.seekable():
            return [whole]
        head = _head(file, detected)
        total = file.seek(0, io.SEEK_END)
        bounds = [0]
        for at in range(size, total, size):
            if at > bounds[-1]:
                file.seek(at)
                file.readline()
                bounds.append(file.tell())
        if bounds[-1] < total:
            bounds.append(total)
    if head is None or len(bounds) < 3 or len(head) > bounds[1]:
        return [whole]
    heads = [b"", *[head] * len(bounds)]
    return [
        replace(whole, format=detected, start=start, end=end, head=before, ends_file=end == total)
        for (start, end), before in zip(pairwise(bounds), heads, strict=False)
    ]


def _head(file: BinaryIO, form: Format) -> bytes | None:
    """Read the header that every later piece needs in front; None if it cannot be determined."""
    if form not in {Format.CSV, Format.TSV}:
        return b"\n"  # a blank line, so that no leading bytes are read as a byte order mark
    taken: list[bytes] = []

    def lines() -> Iterator[str]:
        for line in file:
            text = line if taken else line.removeprefix(codecs.BOM_UTF8)
            taken.append(line)
            yield text.decode("utf-8", "surrogateescape")

    reader = (
        csv.reader(lines())
        if form is Format.CSV
        else csv.reader(lines(), delimiter="\t", quoting=csv.QUOTE_NONE)
    )
    try:
        any(reader)  # reads up to the first row that is not empty
    except csv.Error:
        return None
    return b"".join(taken)


def _joined(pieces: Sequence[Piece], scans: Iterator[Scan]) -> Iterator[Piece]:
    """Number the lines of the pieces, and join adjacent pieces if a quoted field spans the cut."""
    if len(pieces) == 1:
        yield pieces[0]
        return
    lines, inside, found = 0, False, list[Piece]()
    for piece, scan in [(piece, next(scans)) for piece in pieces]:
        if not (scan.inside if inside else scan.outside):
            yield Piece(piece.name, piece.path, piece.format)
            return
        if inside:
            found[-1] = replace(found[-1], end=piece.end, ends_file=piece.ends_file)
        else:
            found.append(replace(piece, lines_before=lines - _lines_in(piece.head)))
        lines += scan.lines
        inside ^= scan.quotes % 2 == 1
    yield from found


def _lines_in(data: bytes) -> int:
    return data.count(b"\n") + data.count(b"\r") - data.count(b"\r\n")


def _quotes_pair(data: bytes, *, inside: bool) -> bool:
    """Return whether the quotes alternately open and close fields, by the rules of `csv.reader`.

    The CSV reader opens a field only at a quote at the start of the field; a doubled quote inside
    a field stands for one quote character.
    """
    import numpy as np

    text = np.frombuffer(data, np.uint8)
    at = np.flatnonzero(text == _QUOTE)
    edges = [-1] * inside, [len(data)] * ((len(at) + inside) % 2)
    at = np.concatenate((edges[0], at, edges[1])).astype(np.int64)
    opens, closes = at[::2], at[1::2]
    before = text[opens[opens > 0] - 1]
    if not np.isin(before, np.frombuffer(b',"\n\r', np.uint8)).all():
        return False
    apart = opens[1:] - closes[:-1] > 1  # adjacent quotes are a doubled quote inside a field
    starts = opens[np.concatenate(([True], apart))]
    ends = closes[np.concatenate((apart, [True]))]
    return int((ends - starts).max()) <= _LONGEST_QUOTED
