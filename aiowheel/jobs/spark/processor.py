"""A Spark processor for a shard: it gets new rows, and is called when the watermark moves. Rank 5.

Its state is a few values. Rows travel in packs; see `packs`. So this module, and not Spark, checks
each row and drops late ones.
"""

from __future__ import annotations

import gc
import os
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Generic, Protocol, TypeVar

import pandas as pd
from pyspark import SparkContext, SparkFiles
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - Spark's usual name
from pyspark.sql.streaming.stateful_processor import (
    ExpiredTimerInfo,
    StatefulProcessor,
    StatefulProcessorHandle,
    TimerValues,
)

from aiowheel.jobs.spark.watermark import frontier
from aiowheel.readers import Unit

Frames = Iterator[pd.DataFrame]


class Settles(Protocol):
    """The interface of a shard."""

    def settle(self, frontier: int, /) -> list[Any]:
        """Process everything at or before *frontier*; return what ended."""
        ...


ShardT = TypeVar("ShardT", bound=Settles)


class ShardProcessor(StatefulProcessor, Generic[ShardT]):
    """A processor that keeps a shard between micro-batches and settles it up to the watermark.

    Args:
        unit: The unit of the times.
        values: The schema of each value in the state store, by name.
    """

    def __init__(self, unit: Unit, values: Mapping[str, str]) -> None:
        self._unit = unit
        self._values = values
        self._handle: Any = None  # this and the states belong to the worker and are set in `init`
        self._states: dict[str, Any] = {}

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Set up a task; Spark calls this once per task."""
        # All objects of a task live until its end, so the garbage collector would scan them again
        # and again without freeing any, for half of the run time.
        gc.disable()
        self._handle = handle
        self._states = {name: handle.getValueState(name, ddl) for name, ddl in self._values.items()}

    # Spark defines the names of methods and parameters and passes arguments by keyword.

    def handleInputRows(  # noqa: N802
        self,
        key: Any,
        rows: Any,
        timerValues: TimerValues,  # noqa: N803
    ) -> Frames:
        """Feed the shard's new rows, all of one micro-batch, and settle it."""
        number, shard = int(key[0]), self._loaded()
        settled = frontier(int(timerValues.getCurrentWatermarkInMs()), self._unit)
        yield from self._feed(number, shard, rows, settled)
        yield from self._settle(number, shard, timerValues)

    def handleExpiredTimer(  # noqa: N802
        self,
        key: Any,
        timerValues: TimerValues,  # noqa: N803
        expiredTimerInfo: ExpiredTimerInfo,  # noqa: ARG002, N803
    ) -> Frames:
        """Settle a shard without new rows, because the watermark has moved."""
        yield from self._settle(int(key[0]), self._loaded(), timerValues)

    def close(self) -> None:
        """Clean up; Spark calls this at the end of a task."""
        gc.enable()

    def _loaded(self) -> ShardT:
        states = self._states.items()
        return self._load({name: state.get() for name, state in states if state.exists()})

    def _settle(self, number: int, shard: ShardT, times: TimerValues) -> Frames:
        watermark_ms = int(times.getCurrentWatermarkInMs())
        ends = shard.settle(frontier(watermark_ms, self._unit))
        for name, value in self._dump(shard).items():
            if value is not None:
                self._states[name].update(value)
            elif self._states[name].exists():
                self._states[name].clear()
        self._wake_at(self._next_timer(shard, watermark_ms))
        if ends:
            yield from self._emit(number, shard, ends)

    def _wake_at(self, timer: int | None) -> None:
        """Make *timer* the only timer; an unchanged timer is not written again."""
        timers = list(self._handle.listTimers())
        for each in timers:
            if each != timer:
                self._handle.deleteTimer(each)
        if timer is not None and timer not in timers:
            self._handle.registerTimer(timer)

    @abstractmethod
    def _load(self, values: dict[str, tuple[Any, ...]]) -> ShardT:
        """Build the shard from its values, by name; without values, a new one."""

    @abstractmethod
    def _dump(self, shard: ShardT) -> dict[str, tuple[Any, ...] | None]:
        """Return the values of *shard* that have changed; None deletes a value."""

    @abstractmethod
    def _next_timer(self, shard: ShardT, watermark_ms: int) -> int | None:
        """Return the watermark above *watermark_ms* at which to settle *shard* next, or None.

        New rows also settle the shard.
        """

    @abstractmethod
    def _feed(
        self, number: int, shard: ShardT, frames: Iterable[pd.DataFrame], settled: int
    ) -> Frames:
        """Feed the rows after *settled* to the shard; yield rows that are emitted at once.

        One of them states the shard's *number* and how many rows it has taken.
        """

    @abstractmethod
    def _emit(self, number: int, shard: ShardT, ends: list[Any]) -> Frames:
        """Yield the output rows for *ends*, the result of `settle` of the shard *number*."""


def shard_of_key(shards: int) -> Column:
    """Return the shard of a row, from 0 to below *shards*, by the hash of its ``key``."""
    return F.pmod(F.xxhash64("key"), F.lit(shards)).cast("int").alias("shard")


def by_shard(
    rows: DataFrame, processor: ShardProcessor[Any], ddl: str, *, event_time: str = ""
) -> DataFrame:
    """Return the output of *processor* for the rows of each ``shard``.

    Args:
        rows: ``shard``, and the columns that the processor reads.
        processor: One instance of it processes each shard.
        ddl: The schema of the output.
        event_time: The column of the output that a later processor takes as time; "" for none.
    """
    _send_files_to_driver_worker()
    return rows.groupBy("shard").transformWithStateInPandas(
        processor, ddl, "append", "EventTime", eventTimeColumnName=event_time
    )


def _send_files_to_driver_worker() -> None:
    """Put the files of ``--py-files`` on the path of the worker that Spark starts on the driver.

    Spark itself does this only for the workers of executors. Those get the path too, where the
    driver's folder is usually absent and so has no effect.
    """
    context = SparkContext._active_spark_context
    if context is None:  # Spark Connect: the driver is elsewhere
        return
    files = [SparkFiles.getRootDirectory(), *map(SparkFiles.get, context._python_includes or ())]
    theirs = context.environment.get("PYTHONPATH", "").split(os.pathsep)
    paths = dict.fromkeys(filter(None, [*theirs, *files]))
    context.environment["PYTHONPATH"] = os.pathsep.join(paths)
