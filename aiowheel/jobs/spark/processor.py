"""A shard of a stream as Spark calls it: with new rows, and when the watermark moves. Rank 5.

Its state is one value. Rows come and go in packs; see `packs`. So it is here, not in Spark, that
each row is looked at, and what is late is dropped.
"""

from __future__ import annotations

import gc
from abc import abstractmethod
from collections.abc import Iterable, Iterator
from typing import Any, Generic, Protocol, TypeVar

import pandas as pd
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
    """What a shard can do, whatever it holds."""

    def settle(self, frontier: int, /) -> list[Any]:
        """Work off what lies at or before *frontier*; returns what ended."""
        ...


ShardT = TypeVar("ShardT", bound=Settles)


class ShardProcessor(StatefulProcessor, Generic[ShardT]):
    """Keeps a shard between micro-batches, and settles it up to the watermark.

    Args:
        unit: Of the times.
        name: Of the value in the state store.
        ddl: Of that value.
    """

    def __init__(self, unit: Unit, name: str, ddl: str) -> None:
        self._unit = unit
        self._value = name, ddl
        self._handle: Any = None  # both are the worker's, and given in `init`
        self._state: Any = None

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Called by Spark, once a task."""
        # All a task makes, it keeps until its end: the collector would look at it over and over,
        # and find nothing, for half of the time.
        gc.disable()
        self._handle = handle
        self._state = handle.getValueState(*self._value)

    # The names of methods and parameters are Spark's: it calls by keyword.

    def handleInputRows(  # noqa: N802
        self,
        key: Any,
        rows: Any,
        timerValues: TimerValues,  # noqa: N803
    ) -> Frames:
        """Take the shard's new rows, all of one micro-batch, and settle."""
        shard = self._loaded()
        settled = frontier(int(timerValues.getCurrentWatermarkInMs()), self._unit)
        yield from self._feed(shard, rows, settled)
        yield from self._settle(key, shard, timerValues)

    def handleExpiredTimer(  # noqa: N802
        self,
        key: Any,
        timerValues: TimerValues,  # noqa: N803
        expiredTimerInfo: ExpiredTimerInfo,  # noqa: ARG002, N803
    ) -> Frames:
        """Settle a shard without new rows: the watermark has moved."""
        yield from self._settle(key, self._loaded(), timerValues)

    def close(self) -> None:
        """Called by Spark, at the end of a task."""
        gc.enable()

    def _loaded(self) -> ShardT:
        return self._load(self._state.get() if self._state.exists() else None)

    def _settle(self, key: Any, shard: ShardT, times: TimerValues) -> Frames:
        watermark_ms = int(times.getCurrentWatermarkInMs())
        ends = shard.settle(frontier(watermark_ms, self._unit))
        for timer in list(self._handle.listTimers()):
            self._handle.deleteTimer(timer)
        value = self._dump(shard)
        if value is not None:
            self._state.update(value)
            self._handle.registerTimer(watermark_ms + 1)  # that is: when the watermark moves
        elif self._state.exists():
            self._state.clear()
        if ends:
            yield from self._emit(key, shard, ends)

    @abstractmethod
    def _load(self, value: tuple[Any, ...] | None) -> ShardT:
        """Make the shard of its value; None for a new one."""

    @abstractmethod
    def _dump(self, shard: ShardT) -> tuple[Any, ...] | None:
        """Make the value of *shard*; None where it holds nothing."""

    @abstractmethod
    def _feed(self, shard: ShardT, frames: Iterable[pd.DataFrame], settled: int) -> Frames:
        """Give the rows after *settled* to *shard*; yield what leaves at once."""

    @abstractmethod
    def _emit(self, key: Any, shard: ShardT, ends: list[Any]) -> Frames:
        """Yield what *ends*, which `settle` returned, are to the next step of the query."""
