"""A shard of a stream as Spark calls it: with new rows, and when the watermark moves. Rank 5.

Its state is a few values. Rows come and go in packs; see `packs`. So it is here, not in Spark, that
each row is looked at, and what is late is dropped.
"""

from __future__ import annotations

import gc
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping
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
        values: The schema of each value in the state store, by name.
    """

    def __init__(self, unit: Unit, values: Mapping[str, str]) -> None:
        self._unit = unit
        self._values = values
        self._handle: Any = None  # both are the worker's, and given in `init`
        self._states: dict[str, Any] = {}

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Called by Spark, once a task."""
        # All a task makes, it keeps until its end: the collector would look at it over and over,
        # and find nothing, for half of the time.
        gc.disable()
        self._handle = handle
        self._states = {name: handle.getValueState(name, ddl) for name, ddl in self._values.items()}

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
        states = self._states.items()
        return self._load({name: state.get() for name, state in states if state.exists()})

    def _settle(self, key: Any, shard: ShardT, times: TimerValues) -> Frames:
        watermark_ms = int(times.getCurrentWatermarkInMs())
        ends = shard.settle(frontier(watermark_ms, self._unit))
        for name, value in self._dump(shard).items():
            if value is not None:
                self._states[name].update(value)
            elif self._states[name].exists():
                self._states[name].clear()
        self._wake_at(self._next_timer(shard, watermark_ms))
        if ends:
            yield from self._emit(key, shard, ends)

    def _wake_at(self, timer: int | None) -> None:
        """Let *timer* be the only one; an unchanged one is not written again."""
        timers = list(self._handle.listTimers())
        for each in timers:
            if each != timer:
                self._handle.deleteTimer(each)
        if timer is not None and timer not in timers:
            self._handle.registerTimer(timer)

    @abstractmethod
    def _load(self, values: dict[str, tuple[Any, ...]]) -> ShardT:
        """Make the shard of its values, by name; without any a new one."""

    @abstractmethod
    def _dump(self, shard: ShardT) -> dict[str, tuple[Any, ...] | None]:
        """Make the values of *shard* that have changed; None for one that goes."""

    @abstractmethod
    def _next_timer(self, shard: ShardT, watermark_ms: int) -> int | None:
        """The watermark in milliseconds, above *watermark_ms*, that settles *shard* next; or None.

        New rows settle it as well.
        """

    @abstractmethod
    def _feed(self, shard: ShardT, frames: Iterable[pd.DataFrame], settled: int) -> Frames:
        """Give the rows after *settled* to *shard*; yield what leaves at once."""

    @abstractmethod
    def _emit(self, key: Any, shard: ShardT, ends: list[Any]) -> Frames:
        """Yield what *ends*, which `settle` returned, are to the next step of the query."""
