"""Reading the rows of a Parquet file. Rank 4; needs pyarrow."""

import io
from collections.abc import Iterator
from typing import cast

from aiowheel.errors import BadInputError, MissingExtraError
from aiowheel.readers._formats import Unit
from aiowheel.readers._inputs import Source
from aiowheel.readers._record import Names, Record

try:
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq
except ImportError as error:
    raise MissingExtraError("trace") from error

_BATCH_ROWS = 65_536


def parquet_records(source: Source, names: Names, time: str, unit: Unit | None) -> Iterator[Record]:
    """Yield the records of a file: texts and whole numbers unchanged, timestamps in *unit*.

    A timestamp that *unit* cannot hold is yielded as text, which the table then rejects.

    Raises:
        BadInputError: The file is not Parquet, lacks a column, or has a column of another type; or
            *unit* is None, and the times are timestamps.
    """
    # Parquet needs random access, because its index is at the end; a tar member is a stream.
    data = source.data if source.data.seekable() else io.BytesIO(source.data.read())
    try:
        file = pq.ParquetFile(data)
        key = next((name for name in names if name in file.schema_arrow.names), names[0])
        _check_column(source, file.schema_arrow, key, may_be_timestamp=False)
        _check_column(source, file.schema_arrow, time, may_be_timestamp=True)
        kind = file.schema_arrow.field(time).type
        if unit is None and pa.types.is_timestamp(kind):
            raise BadInputError(
                f"{source.name}: the time format must be epoch for a column of timestamps, got "
                f"another one for {time!r} of {kind}"
            )
        rows = 0
        for batch in file.iter_batches(_BATCH_ROWS, columns=[key, time]):
            keys = _texts(batch.column(key))
            times = _written(batch.column(time), unit)
            for line, (text, moment) in enumerate(zip(keys, times, strict=True), start=rows + 1):
                yield line, text or "", moment or "", "", [text or "", moment or ""]
            rows += batch.num_rows
        check_row_count(source.name, file.metadata.num_rows, rows)
    except (pa.ArrowException, UnicodeDecodeError) as error:  # a column's name may be no UTF-8
        raise BadInputError(f"{source.name}: not a sound Parquet file: {error}") from error


def check_row_count(name: str, promised: int, read: int) -> None:
    """Compare the rows of a file with its footer: Arrow takes some damaged pages for empty ones.

    Raises:
        BadInputError: The numbers differ.
    """
    if read != promised:
        raise BadInputError(f"{name}: must have {promised:,} rows by its footer, got {read:,}")


def _check_column(source: Source, schema: pa.Schema, name: str, *, may_be_timestamp: bool) -> None:
    if name not in schema.names:
        columns = ", ".join(schema.names)
        raise BadInputError(f"{source.name}: no column {name!r} (columns: {columns[:200]})")
    if (count := schema.names.count(name)) > 1:
        raise BadInputError(f"{source.name}: must have one column {name!r}, got {count}")
    kind = schema.field(name).type
    while pa.types.is_dictionary(kind):
        kind = kind.value_type
    is_timestamp = may_be_timestamp and pa.types.is_timestamp(kind)
    if not (is_text(kind) or is_timestamp or pa.types.is_integer(kind)):
        wanted = f"text{', timestamps' if may_be_timestamp else ''} or whole numbers"
        raise BadInputError(f"{source.name}: column {name!r} must be {wanted}, got {kind}")


def is_text(kind: pa.DataType) -> bool:
    """Return whether a column of this type holds texts, in any of Arrow's layouts."""
    tests = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)
    return any(test(kind) for test in tests)


def _texts(column: pa.Array) -> list[str | None]:
    texts = pc.cast(column, pa.string())
    try:
        return cast("list[str | None]", texts.to_pylist())
    except UnicodeDecodeError:  # become lone surrogates, so that the table rejects only these rows
        read: list[bytes | None] = pc.cast(texts, pa.binary()).to_pylist()
        return [None if text is None else text.decode(errors="surrogateescape") for text in read]


def _written(column: pa.Array, unit: Unit | None) -> list[str | None]:
    texts = _texts(column)
    if unit is None or not pa.types.is_timestamp(column.type):
        return texts
    moments: list[int | None] = pc.cast(column, pa.int64()).to_pylist()
    given = Unit(column.type.unit).digits
    factor, step = 10 ** max(0, unit.digits - given), 10 ** max(0, given - unit.digits)
    return [
        text if moment is None or moment % step else str(moment * factor // step)
        for text, moment in zip(texts, moments, strict=True)
    ]
