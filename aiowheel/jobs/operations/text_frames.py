"""Lines of text read by Spark, checked by the one-process parser. Rank 5: no Spark here.

Spark's own JSON and csv readers accept lines that Python rejects: text after a JSON object, an
incomplete record, an object in place of a text. So both engines share one parser.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import groupby, islice
from operator import itemgetter
from typing import Any, Final

import pyarrow as pa

from aiowheel.jobs.operations.files import parse_event, parse_operation
from aiowheel.jobs.operations.rows import Row, rows_of_lines
from aiowheel.jobs.schemas import EVENTS, OPERATIONS, Flaw
from aiowheel.jobs.spark.packs import batch_of
from aiowheel.jobs.spark.uris import file_name
from aiowheel.readers import Format
from aiowheel.rules import Event, Operation

_ROWS: Final = 8_192
_CHECKED: Final = {"flaw": pa.string(), "source": pa.string(), "raw": pa.string()}

#: The columns that `checked_operations` and `checked_events` yield.
CHECKED_OPERATIONS: Final = pa.schema(
    {
        "id": pa.string(),
        "keys": pa.list_(pa.string()),
        "thresholds": pa.list_(pa.int64()),
        "wanted": pa.int32(),
        "created": pa.int64(),
        "deadline": pa.int64(),
        **_CHECKED,
    }
)
CHECKED_EVENTS: Final = pa.schema(
    {"key": pa.string(), "time": pa.int64(), "value": pa.int64(), **_CHECKED}
)

_Lines = Iterable[pa.RecordBatch]


def checked_operations(
    batches: _Lines, form: Format, *, keep_raw: bool
) -> Iterator[pa.RecordBatch]:
    """Check lines of operations, for `mapInArrow`.

    Args:
        batches: The columns ``source``, the URL of a file, ``start``, the offset in it where this
            part begins, and ``line``, the bytes; the lines of a part are consecutive.
        form: Ndjson or csv.
        keep_raw: Whether to keep the text of rows without a flaw.

    Raises:
        BadInputError: The header of a csv has other columns.
    """
    rows = _checked(batches, form, OPERATIONS, parse_operation, keep_raw=keep_raw)
    return _batches(rows, CHECKED_OPERATIONS)


def checked_events(batches: _Lines, form: Format, *, keep_raw: bool) -> Iterator[pa.RecordBatch]:
    """Check lines of events, for `mapInArrow`; see `checked_operations`."""
    rows = _checked(batches, form, EVENTS, parse_event, keep_raw=keep_raw)
    return _batches(rows, CHECKED_EVENTS)


def _checked(
    batches: _Lines,
    form: Format,
    schema: pa.Schema,
    parse: Callable[[Row], Operation | Event | Flaw],
    *,
    keep_raw: bool,
) -> Iterator[tuple[Any, ...]]:
    checked = CHECKED_OPERATIONS if schema is OPERATIONS else CHECKED_EVENTS
    nothing = (None,) * (len(checked) - len(_CHECKED))
    for (url, start), part in groupby(_lines(batches), itemgetter(0, 1)):
        source = file_name(url)
        lines = (line.decode(errors="surrogateescape") for _, _, line in part)
        for row, raw in rows_of_lines(source, lines, form, schema, from_start=start == 0):
            parsed = row if isinstance(row, Flaw) else parse(row)
            if isinstance(parsed, Flaw):
                yield (*nothing, parsed.value, source, raw)
            else:
                yield (*parsed, None, source, raw if keep_raw else None)


def _lines(batches: _Lines) -> Iterator[tuple[str, int, bytes]]:
    for batch in batches:
        columns = (batch.column(name).to_pylist() for name in ("source", "start", "line"))
        yield from zip(*columns, strict=True)


def _batches(rows: Iterator[tuple[Any, ...]], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    while taken := list(islice(rows, _ROWS)):
        yield batch_of(schema, taken)
