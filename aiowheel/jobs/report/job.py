"""The report job: the analysis of a trace. Rank 5; needs the `spark` extra.

Source: a folder of files that `aiowheel.trace.TraceRecorder` wrote. Spark does the work for a trace
of any size; the result is small: a few tables and a page.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from aiowheel.errors import BadInputError, MissingExtraError

try:
    import pyarrow as pa
    import pyarrow.parquet as pq
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql import functions as F  # noqa: N812 - Spark's usual name
    from pyspark.sql.pandas.types import to_arrow_schema
except ImportError as _error:
    raise MissingExtraError("spark") from _error

from aiowheel._outputs import whole_folder
from aiowheel.jobs.report.origin import origin_of
from aiowheel.jobs.report.page import write_page
from aiowheel.jobs.report.tables import report_tables
from aiowheel.jobs.spark.sources import NO_FILE_SKIPPED
from aiowheel.jobs.spark.uris import Table, Topic, local_path, parse_uri, spark_path
from aiowheel.trace import TRACE_COLUMNS, TraceColumn
from aiowheel.trace._check import check_trace

_BUCKETS = 60


def _widest(column: TraceColumn) -> str:
    """Return the type of Spark that holds what any program may write into a column."""
    if pa.types.is_integer(column.type):
        return "bigint"
    return "array<string>" if pa.types.is_list(column.type) else "string"


# Without a schema, Spark would read all files by the types of one.
_SCHEMA = ", ".join(f"{column.name} {_widest(column)}" for column in TRACE_COLUMNS)


@dataclass(frozen=True)
class ReportResult:
    """The result of the report job.

    Attributes:
        folder: The folder with one Parquet file per table, the page and the picture.
        operations: Number of rows of the trace.
        tables: The tables by name; the unit of a column is in its name.
        page: The report as one HTML file.
        picture: The charts as one PNG; None without the `plot` extra.
        origin: The trace, its recorder and the build that read it, by name.
    """

    folder: Path
    operations: int
    tables: Mapping[str, pa.Table]
    page: Path
    picture: Path | None
    origin: Mapping[str, str]


def run_report(
    trace_folder: str | os.PathLike[str],
    out_folder: str | os.PathLike[str],
    spark: SparkSession,
) -> ReportResult:
    """Analyse a trace and write the tables, the page and the picture.

    Args:
        trace_folder: Folder with the `trace-*.parquet` files of one or several runs, or its URI.
        out_folder: A folder on this machine. Created if missing; files of an earlier report are
            replaced, after all are complete.
        spark: The session to use.

    Raises:
        BadInputError: The folder holds no trace, or a file in it is not a trace; or *out_folder* is
            an address elsewhere.
        AiowheelError: A result cannot be written; *out_folder* then stays unchanged.

    Cost: nine passes over the trace, one per table.
    """
    folder = local_path(str(out_folder))
    if folder is None:
        raise BadInputError(f"out_folder must be a path on this machine, got {str(out_folder)!r}")
    trace = read_trace_frame(trace_folder, spark)
    operations, span_ns = _measure(trace)
    plans = report_tables(trace, bucket_ns=choose_bucket_ns(span_ns))
    results = {
        name: _rows(plan).sort_by([(key, "ascending") for key in _order(plan)])
        for name, plan in plans.items()
    }
    origin = origin_of(trace_folder)
    with whole_folder(folder) as hidden:
        for name, table in results.items():
            write_table(table, hidden / f"{name}.parquet")
        page = write_page(results, origin, hidden / "report.html")
        picture = _draw(results, hidden / "report.png")
    if picture is None:  # a picture of an earlier report would not match the new tables
        (folder / "report.png").unlink(missing_ok=True)
    drawn = None if picture is None else folder / picture.name
    return ReportResult(folder, operations, results, folder / page.name, drawn, origin)


def choose_bucket_ns(span_ns: int) -> int:
    """Return the width of a time bucket: 1, 2 or 5 times a power of ten, at least 1 ms.

    Args:
        span_ns: From the first to the last operation, at least 0.

    Returns:
        The least such width that divides the span into at most 60 buckets.
    """
    power = 1_000_000
    while True:
        for step in (1, 2, 5):
            if step * power * _BUCKETS >= span_ns:
                return step * power
        power *= 10


def read_trace_frame(trace_folder: str | os.PathLike[str], spark: SparkSession) -> DataFrame:
    """Read a trace as a DataFrame with the columns of the schema.

    Args:
        trace_folder: A folder, or the URI of a folder or of a Delta table.
        spark: The session.

    Raises:
        BadInputError: The folder holds no trace, or a file in it is not a trace.
    """
    place = parse_uri(str(trace_folder))
    if isinstance(place, Topic):
        raise BadInputError(f"{trace_folder}: a trace is a folder of Parquet or a Delta table")
    reader = spark.read.options(**NO_FILE_SKIPPED)
    if isinstance(place, Table):
        frame = spark.read.format("delta").load(place.folder.for_spark)
    elif (folder := local_path(str(trace_folder))) is not None:
        frame = reader.schema(_SCHEMA).parquet(*map(spark_path, check_trace(folder)))
    else:
        frame = reader.parquet(place.pattern)
    for column in TRACE_COLUMNS:
        if column.name not in frame.columns:
            raise BadInputError(f"{trace_folder}: not a trace: no column {column.name!r}")
    frame = frame.withColumns(
        {
            "keys": F.coalesce("keys", F.array().cast("array<string>")),
            "checks": F.col("checks").cast("int"),
        }
    )
    return frame.select(*(column.name for column in TRACE_COLUMNS))


def _draw(results: Mapping[str, pa.Table], path: Path) -> Path | None:
    if find_spec("matplotlib") is None:
        return None
    from aiowheel.jobs.report.picture import draw_picture

    return draw_picture(results, path)


def _measure(trace: DataFrame) -> tuple[int, int]:
    """Return the number of rows, and the nanoseconds from the first to the last end."""
    (row,) = trace.agg(
        F.count("*").alias("operations"),
        (F.max("finished") - F.min("finished")).alias("span_ns"),
    ).collect()
    return int(row["operations"]), int(row["span_ns"] or 0)


def _rows(plan: DataFrame) -> pa.Table:
    """Return the rows of one table, in types that do not depend on the session's settings."""
    return plan.toArrow().cast(to_arrow_schema(plan.schema))


def _order(plan: DataFrame) -> list[str]:
    """Return the columns that identify a row of one table."""
    keys = ("purgatory", "kind", "bucket_start_ns", "lower_ns", "rank")
    return [name for name in keys if name in plan.columns]


def write_table(table: pa.Table, path: Path) -> None:
    """Write *table* as Parquet."""
    pq.write_table(table, path, compression="zstd")
