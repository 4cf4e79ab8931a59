"""The two engines behind `aiowheel idle`: rows in, one file of idle events out. Rank 5."""

import sqlite3
import tempfile
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path

from aiowheel.cli._idle_file import IdleSummary, write_idle_events
from aiowheel.cli._idle_report import Progress
from aiowheel.errors import AiowheelError, MissingExtraError
from aiowheel.readers import Inputs, TimedRows, TimeOrder
from aiowheel.recipes._idle_trace import idle_events


class Engine(StrEnum):
    """What finds the idle events; the files are the same byte for byte."""

    WHEEL = "wheel"
    SPARK = "spark"


EngineRun = Callable[[Inputs, TimedRows, int, Path, Progress], tuple[IdleSummary, int]]


def run_engine(
    engine: Engine, inputs: Inputs, rows: TimedRows, timeout: int, out: Path, progress: Progress
) -> tuple[IdleSummary, int]:
    """Read all rows, find the idle events and write them to *out*.

    Args:
        engine: Which engine to use.
        inputs: The files behind *rows*.
        rows: The table, not read yet.
        timeout: In the unit of the rows.
        out: The file to write.
        progress: Where to show how far it is.

    Returns:
        What the file holds, and the number of distinct keys among the rows.

    Raises:
        BadInputError: The input cannot be used; *out* is untouched.
        MissingExtraError: The Spark engine lacks PySpark or Java.
        AiowheelError: The disk refuses; *out* is untouched.
    """
    runs: dict[Engine, EngineRun] = {Engine.WHEEL: _run_wheel, Engine.SPARK: _run_spark}
    return runs[engine](inputs, rows, timeout, out, progress)


def _run_wheel(
    inputs: Inputs, rows: TimedRows, timeout: int, out: Path, progress: Progress
) -> tuple[IdleSummary, int]:
    try:
        with TimeOrder() as order:
            for batch in progress.reading(inputs, rows):
                order.add(batch)
            replay = progress.walking(order, "replaying", rows.accepted)
            summary = write_idle_events(idle_events(replay, timeout), out)
            return summary, order.distinct_keys()
    except sqlite3.Error as error:
        raise AiowheelError(f"sorting on disk failed: {error}") from error


def _run_spark(
    inputs: Inputs, rows: TimedRows, timeout: int, out: Path, progress: Progress
) -> tuple[IdleSummary, int]:
    try:
        from aiowheel.pipeline.idle import count_keys, find_idle, stage_rows
    except ImportError as error:
        raise MissingExtraError("spark") from error
    from aiowheel.pipeline.java import find_java
    from aiowheel.pipeline.session import open_session

    find_java()  # a missing Java is told before the reading, bad rows before Spark's slow start
    with tempfile.TemporaryDirectory(prefix="aiowheel-idle-") as name:
        staged = Path(name, "rows.parquet")
        stage_rows(progress.reading(inputs, rows), staged)
        progress.waiting("running Spark")
        with open_session("aiowheel idle") as spark:
            events = find_idle(spark, staged, timeout, Path(name, "events"))
            return write_idle_events(events, out), count_keys(spark, staged)
