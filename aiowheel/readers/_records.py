"""Splitting one table into records, with one function per layout. Rank 4.

Blank lines are skipped. A malformed record does not stop the reader: the record carries an error
text, and the table decides what to do with it.
"""

import csv
import io
import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Protocol, TextIO, cast

from aiowheel.errors import BadInputError
from aiowheel.readers._formats import Format, Unit
from aiowheel.readers._inputs import Source
from aiowheel.readers._json_paths import values_of
from aiowheel.readers._record import Names, Raw, Record

CLF_COLUMNS = (
    "host", "logname", "user", "time", "request", "response", "bytes", "referer", "useragent",
)  # fmt: skip

# A user may have blanks. One that begins with "- " is a logname: the line has another column in
# front, as the format vhost_combined has, and its host is the name of the server.
# The time excludes "[" as well: otherwise a line of many " [" takes quadratic time to match.
_CLF_LINE = re.compile(
    r"(?P<host>\S+) (?P<logname>\S+) (?!- [^[])(?P<user>.+?) \[(?P<time>[^\[\]]*)\] "
    r'"(?P<request>(?:[^"\\]|\\.)*)" (?P<response>\S+) (?P<bytes>\S+)'
    r'(?: "(?P<referer>(?:[^"\\]|\\.)*)" "(?P<useragent>(?:[^"\\]|\\.)*)".*)?'
)


# Rows of CSV up to a quoted field without an end. The possessive parts take a doubled quote whole.
_OPEN_FIELD = re.compile(
    r'(?:(?:"(?:[^"]|"")*+"[^,\r\n]*+|[^",\r\n][^,\r\n]*+)?[,\r\n])*+"(?:[^"]|"")*+'
)
# Half of a surrogate pair, which JSON may name; the others stand for bytes that are not UTF-8.
_HALF = re.compile("[\ud800-\udc7f\udd00-\udfff]")
_UNESCAPED = re.compile(r"\\x([0-9a-fA-F]{2})")
_UNCLOSED = "the file ends inside a quoted field"


class _FieldReader(Protocol):
    """The type of `csv.reader` objects, which is public only from Python 3.13 on."""

    @property
    def line_num(self) -> int: ...
    def __iter__(self) -> Iterator[list[str]]: ...
    def __next__(self) -> list[str]: ...


def records(source: Source, key: Names, time: str, unit: Unit | None) -> Iterator[Record]:
    """Yield the records of a table.

    Args:
        source: An open table.
        key: Possible names of the key column; the first one that the table has is used.
        time: Name of the time column.
        unit: The unit to which Parquet timestamps are converted; None: they are refused.

    Raises:
        BadInputError: The table lacks a header or one of the columns, or is not of its format.
        MissingExtraError: The file is Parquet, and pyarrow is not installed.
    """
    if source.format is Format.PARQUET:
        from aiowheel.readers._parquet import parquet_records

        return parquet_records(source, key, time, unit)
    split: dict[Format, Callable[[Source, Names, str], Iterator[Record]]] = {
        Format.CSV: _csv_records,
        Format.TSV: _tsv_records,
        Format.NDJSON: _ndjson_records,
        Format.CLF: _clf_records,
        Format.ZEEK: _zeek_records,
    }
    return split[source.format](source, key, time)


def raw_text(raw: Raw) -> str:
    """Convert an unparsed row to text that UTF-8 with surrogate escapes can hold.

    Fields become one line of CSV, in which half of a surrogate pair is its escape in JSON.
    """
    if isinstance(raw, str):
        return raw
    line = io.StringIO()
    csv.writer(line).writerow(raw)
    return _HALF.sub(_escape, line.getvalue().removesuffix("\r\n"))


def _csv_records(source: Source, key: Names, time: str) -> Iterator[Record]:
    # RFC 4180: a field in double quotes may hold commas and line ends; "" stands for a quote.
    text = _Text(source.text, quoted=True)
    yield from _delimited(source, csv.reader(text), text, key, time)


def _tsv_records(source: Source, key: Names, time: str) -> Iterator[Record]:
    # Tab-separated values have no quoting: a quote is an ordinary character.
    text = _Text(source.text, quoted=False)
    reader = csv.reader(text, delimiter="\t", quoting=csv.QUOTE_NONE)
    yield from _delimited(source, reader, text, key, time)


class _Text:
    """The lines of a table, for `csv.reader`.

    Attributes:
        is_over: Whether the reader read past the last line. It does so only inside a quoted field,
            and then accepts the field as complete.
    """

    def __init__(self, lines: Iterable[str], *, quoted: bool) -> None:
        self.is_over = False
        self._quoted = quoted
        self._last = ""
        self._lines = self._each(lines)

    def __iter__(self) -> Iterator[str]:
        return self._lines

    def _each(self, lines: Iterable[str]) -> Iterator[str]:
        for line in lines:
            self._last = line
            yield line
        self.is_over = True

    def skip_field(self, *, begun: bool) -> int:
        """Skip the rest of a field that the reader has given up; return the number of lines.

        The reader would go on at the next line, also inside of a quoted field, and would take what
        a client has written there for rows.

        Args:
            begun: Whether the last line began inside the field.
        """
        skipped = 0
        is_open = self._quoted and _is_open(self._last, begun=begun)
        while is_open and (line := next(self._lines, None)) is not None:
            skipped += 1
            is_open = _is_open(line, begun=True)
        return skipped


def _is_open(line: str, *, begun: bool) -> bool:
    """Return whether a line of CSV, which may begin inside a quoted field, ends inside of one."""
    return _OPEN_FIELD.fullmatch('"' + line if begun else line) is not None


def _delimited(
    source: Source, reader: _FieldReader, text: _Text, key: Names, time: str
) -> Iterator[Record]:
    header: list[str] = []
    try:
        header = next((fields for fields in reader if fields), header)
    except csv.Error as error:
        raise BadInputError(f"{source.name}: line 1: {error}: not a table of text?") from error
    if header and text.is_over:
        raise BadInputError(f"{source.name}: line 1: {_UNCLOSED}")
    key_at, time_at = _columns(source, header, key, time)
    width, last = len(header), max(key_at, time_at)
    skipped = 0
    while True:
        first_line = reader.line_num + skipped + 1
        try:
            fields = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            skipped += text.skip_field(begun=reader.line_num + skipped > first_line)
            yield first_line, "", "", _UNCLOSED if text.is_over else str(error), ""
            continue
        if text.is_over:
            yield first_line, "", "", _UNCLOSED, fields
        elif len(fields) == width:
            yield first_line, fields[key_at], fields[time_at], "", fields
        elif len(fields) > last:
            flaw = f"{len(fields)} fields where the header has {width}"
            yield first_line, fields[key_at], fields[time_at], flaw, fields
        elif fields:
            yield first_line, "", "", f"{len(fields)} fields where the header has {width}", fields


def _columns(
    source: Source, header: Sequence[str], key: Names, time: str, line: int = 1
) -> tuple[int, int]:
    """Return the positions of the key and of the time in a row."""
    present = [name for name in key if name in header]
    for name, is_there in ((key, present), ((time,), time in header)):
        if not is_there:
            wanted = " or ".join(map(repr, name))
            columns = ", ".join(header) or "none: the file is empty"
            raise BadInputError(
                f"{source.name}: line {line}: no column {wanted} (columns: {columns[:200]})"
            )
    for used in (present[0], time):
        if header.count(used) > 1:
            raise BadInputError(
                f"{source.name}: line {line}: {header.count(used)} columns are named {used!r}"
            )
    return header.index(present[0]), header.index(time)


def _ndjson_records(source: Source, key: Names, time: str) -> Iterator[Record]:
    for line, text in _lines(source.text):
        try:
            # Numbers stay text: a float would round nanoseconds.
            row: object = json.loads(text, parse_int=str, parse_float=str, parse_constant=str)
        except (ValueError, RecursionError) as error:
            yield line, "", "", f"no JSON: {error}", text
            continue
        if not isinstance(row, dict):
            yield line, "", "", "no JSON object", text
            continue
        try:
            touches = values_of(cast("dict[str, object]", row), key, time)
        except ValueError as error:
            yield line, "", "", str(error), text
            continue
        raw: Raw = text
        for key_value, time_value in touches:
            if len(touches) > 1:  # the whole line for each of them would take quadratic space
                raw = [each if isinstance(each, str) else "" for each in (key_value, time_value)]
            if isinstance(key_value, str) and isinstance(time_value, str):
                yield line, key_value, time_value, "", raw
            else:
                name = time if isinstance(key_value, str) else key[0]
                flaw = f"field {name!r} is missing or neither text nor number"
                yield line, "", "", flaw, raw


def _clf_records(source: Source, key: Names, time: str) -> Iterator[Record]:
    key_at, _ = _columns(source, CLF_COLUMNS, key, time)
    column = CLF_COLUMNS[key_at]
    for line, text in _lines(source.text):
        match = _CLF_LINE.fullmatch(text)
        if match is None:
            yield line, "", "", "not in Common or Combined Log Format", text
        else:
            yield line, match[column] or "", match[time] or "", "", text


def _zeek_records(source: Source, key: Names, time: str) -> Iterator[Record]:
    separator, nothing = "\t", {"unset_field": "-", "empty_field": "(empty)"}
    header: list[str] = []
    key_at = time_at = 0
    for line, text in _lines(source.text):
        if text.startswith("#separator "):
            separator = _UNESCAPED.sub(_character, text.partition(" ")[2])
            if not separator:
                raise BadInputError(f"{source.name}: line {line}: the separator is empty")
        elif text.startswith("#"):  # never a value: Zeek escapes a leading "#"
            name, *values = text[1:].split(separator)
            if name == "fields":
                header = values
                key_at, time_at = _columns(source, header, key, time, line)
            elif name in nothing and values:
                nothing[name] = values[0]
        elif not header:
            raise BadInputError(f"{source.name}: line {line}: a row before the line #fields")
        else:
            fields = ["" if value in nothing.values() else value for value in text.split(separator)]
            if len(fields) == len(header):
                yield line, fields[key_at], fields[time_at], "", text
            else:
                flaw = f"{len(fields)} fields where the header has {len(header)}"
                is_usable = len(fields) > max(key_at, time_at)
                key_value, moment = (fields[key_at], fields[time_at]) if is_usable else ("", "")
                yield line, key_value, moment, flaw, text


def _character(escape: re.Match[str]) -> str:
    return chr(int(escape[1], 16))


def _escape(half: re.Match[str]) -> str:
    return f"\\u{ord(half[0]):04x}"


def _lines(text: TextIO) -> Iterator[tuple[int, str]]:
    for number, line in enumerate(text, start=1):
        if bare := line.strip("\r\n"):
            yield number, bare
