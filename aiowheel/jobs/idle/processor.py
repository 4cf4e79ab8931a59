"""The engine of `_idle_shard` as Spark calls it: one a hash shard of the keys. Rank 5."""

import gc
from collections.abc import Iterator
from typing import Any

import pandas as pd
from pyspark.sql.streaming.stateful_processor import (
    ExpiredTimerInfo,
    StatefulProcessor,
    StatefulProcessorHandle,
    TimerValues,
)

from aiowheel.jobs.idle.shard import STATE_VERSION, IdleShard
from aiowheel.jobs.spark.packs import unpack
from aiowheel.readers import Unit

#: The time of a flush, in milliseconds: the year 2255. Spark hands timestamps to pandas, which ends
#: in 2262.
FLUSH_MS = 9_000_000_000_000
_FLUSHED_MS = 8_500_000_000_000

#: The latest time of a row, in seconds: the year 2223.
LATEST_SECOND = 8_000_000_000

#: Idle events; and rows without a key, with how many touches a shard has taken.
EVENTS_DDL = "fire bigint, key string, taken bigint"


class IdleProcessor(StatefulProcessor):
    """Settles a shard up to the watermark; its state is one value, a version and bytes.

    Args:
        timeout: In *unit*.
        unit: Of the column ``t``.
    """

    def __init__(self, timeout: int, unit: Unit) -> None:
        self._timeout = timeout
        self._unit = unit

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Called by Spark, once a task."""
        # All a task makes, it keeps until its end: the collector would look at it over and over,
        # and find nothing.
        gc.disable()
        self._handle = handle
        self._state = handle.getValueState("touches", "version int, touches binary")

    # The names of methods and parameters are Spark's: it calls by keyword.

    def handleInputRows(  # noqa: N802
        self,
        key: Any,  # noqa: ARG002
        rows: Any,
        timerValues: TimerValues,  # noqa: N803
    ) -> Iterator[pd.DataFrame]:
        """Take a shard's new rows, all of one batch, and settle."""
        shard = self._load()
        settled = frontier(int(timerValues.getCurrentWatermarkInMs()), self._unit)
        if settled is not None:
            # A pack is as late for Spark as its last touch, so it is here that each is looked at.
            packs = (data for frame in rows for data in frame["pack"].dropna())
            touches = [touch for data in packs for touch in unpack(data) if touch[0] > settled]
            shard.feed(touches)
            yield pd.DataFrame({"fire": [0], "key": [None], "taken": [len(touches)]})
        yield from self._settle(shard, timerValues)

    def handleExpiredTimer(  # noqa: N802
        self,
        key: Any,  # noqa: ARG002
        timerValues: TimerValues,  # noqa: N803
        expiredTimerInfo: ExpiredTimerInfo,  # noqa: ARG002, N803
    ) -> Iterator[pd.DataFrame]:
        """Settle a shard without new rows: the watermark has moved."""
        yield from self._settle(self._load(), timerValues)

    def close(self) -> None:
        """Called by Spark, at the end of a task."""
        gc.enable()

    def _load(self) -> IdleShard:
        state: Any = self._state.get() if self._state.exists() else None
        if state is None:
            return IdleShard(self._timeout)
        version, touches = state
        return IdleShard.load(self._timeout, int(version), bytes(touches))

    def _settle(self, shard: IdleShard, times: TimerValues) -> Iterator[pd.DataFrame]:
        watermark_ms = int(times.getCurrentWatermarkInMs())
        events = shard.settle(frontier(watermark_ms, self._unit))
        for timer in list(self._handle.listTimers()):
            self._handle.deleteTimer(timer)
        if len(shard):
            self._state.update((STATE_VERSION, shard.dump()))
            self._handle.registerTimer(watermark_ms + 1)  # that is: when the watermark moves
        elif self._state.exists():
            self._state.clear()
        if events:
            fires, keys = zip(*events, strict=True)
            yield pd.DataFrame({"fire": fires, "key": keys}).assign(taken=0)


def frontier(watermark_ms: int, unit: Unit) -> int | None:
    """The last time in *unit* of which no row can come any more, None after a flush.

    A row's timestamp is its millisecond plus one, and Spark drops what lies at the watermark.
    """
    if watermark_ms > _FLUSHED_MS:
        return None
    if unit is Unit.S:
        return -(-watermark_ms // 1_000) - 1
    return int(watermark_ms * 10 ** (unit.digits - 3)) - 1
