"""The two stateful stages of the streaming purgatory: by key, then by operation. Rank 5.

Both are a `Shard`, the purgatory in virtual time. In the first an operation waits on each of its
keys by itself, and what completes there is a *hit* of that key. In the second it waits for its
hits. The two cannot miss each other: an operation leaves the first stage when it comes, a hit in
the micro-batch whose watermark passes it, and in that batch the second stage settles no further.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from typing import Any, Final

import pandas as pd
from pyspark.sql.streaming.stateful_processor import (
    ExpiredTimerInfo,
    StatefulProcessor,
    StatefulProcessorHandle,
    TimerValues,
)

from aiowheel.pipeline._event_time import frontier, timestamps
from aiowheel.pipeline._shard_state import STATE_DDL, dump, load
from aiowheel.pipeline.shard import Shard
from aiowheel.readers import Unit
from aiowheel.rules import COMPLETED, NO_VALUE, Ending, Event, Operation

STATE_NAME: Final = "state"

#: A row of either stage, beside its shard: an operation on one key, with `keys` in one of its
#: copies and null in the others; or, without keys and a deadline, an event, or a hit.
ROW_DDL: Final = (
    "ts timestamp, id string, key string, time bigint, value bigint, keys array<string>, "
    "wanted bigint, deadline bigint"
)
#: The deadline of rows that are no operations.
NO_OPERATION: Final = -1
OUTCOME_DDL: Final = "id string, outcome string, completed_by string, at bigint"

_Rows = Iterator[pd.DataFrame]


class Stage(StatefulProcessor):
    """One shard of a stage, woken by rows and by each advance of the watermark.

    Args:
        tick: Of the wheel, in *unit*.
        unit: Of the times.
    """

    def __init__(self, tick: int, unit: Unit) -> None:
        self._tick = tick
        self._unit = unit
        self._handle: Any = None  # both are the worker's, and given in `init`
        self._state: Any = None

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Called by Spark before anything else."""
        self._handle = handle
        self._state = handle.getValueState(STATE_NAME, STATE_DDL)

    def handleInputRows(  # noqa: N802 - Spark's names
        self,
        key: Any,  # noqa: ARG002
        rows: Any,
        timerValues: TimerValues,  # noqa: N803
    ) -> _Rows:
        """Take in the rows of a micro-batch, settle, and emit."""
        shard = self._load()
        for frame in rows:
            yield from self._feed(shard, frame)
        yield from self._settle(shard, timerValues)

    def handleExpiredTimer(  # noqa: N802 - Spark's names
        self,
        key: Any,  # noqa: ARG002
        timerValues: TimerValues,  # noqa: N803
        expiredTimerInfo: ExpiredTimerInfo,  # noqa: ARG002, N803
    ) -> _Rows:
        """Settle where no row came, for the watermark has gone on."""
        yield from self._settle(self._load(), timerValues)

    def close(self) -> None:
        """Nothing is held between two calls."""

    def _load(self) -> Shard:
        if self._state.exists():
            return load(self._tick, self._state.get())
        return Shard(self._tick)

    def _settle(self, shard: Shard, times: TimerValues) -> _Rows:
        watermark_ms = times.getCurrentWatermarkInMs()
        endings = shard.settle(frontier(watermark_ms, self._unit))
        for timer_ms in list(self._handle.listTimers()):
            self._handle.deleteTimer(timer_ms)
        if len(shard) or shard.events:
            self._state.update(dump(shard))
            self._handle.registerTimer(watermark_ms + 1)  # at the next advance
        elif self._state.exists():
            self._state.clear()
        if endings:
            yield from self._emit(endings)

    @abstractmethod
    def _feed(self, shard: Shard, frame: pd.DataFrame) -> _Rows:
        """Give the rows of *frame* to *shard*; what goes to the next stage at once."""

    @abstractmethod
    def _emit(self, endings: list[Ending]) -> _Rows:
        """What the ends of operations are to the next stage."""


class MatchKeys(Stage):
    """The first stage: emits each operation once, and its hits."""

    def _feed(self, shard: Shard, frame: pd.DataFrame) -> _Rows:
        operations: list[Operation] = []
        events: list[Event] = []
        columns = (frame[name].tolist() for name in ("id", "key", "time", "value", "deadline"))
        for id_, key, time, value, deadline in zip(*columns, strict=True):
            if not key:
                continue  # the row that ends a stream
            if deadline == NO_OPERATION:
                events.append(Event(key, time, value))
            else:
                operations.append(Operation(id_, (key,), (value,), 1, time, deadline))
        shard.feed(operations, events)
        passed_on = frame[frame["keys"].notna()]
        if len(passed_on):
            yield passed_on.drop(columns="shard")

    def _emit(self, endings: list[Ending]) -> _Rows:
        hits = [ending for ending in endings if ending.outcome == COMPLETED]
        if not hits:
            return
        times = [hit.at for hit in hits]
        frame = pd.DataFrame(
            {
                "ts": timestamps(times, self._unit),
                "id": [hit.id for hit in hits],
                "key": [hit.completed_by for hit in hits],
                "time": times,
            }
        )
        yield frame.assign(value=NO_VALUE, keys=None, wanted=0, deadline=NO_OPERATION)


class DecideOperations(Stage):
    """The second stage: emits how each operation ended."""

    def _feed(self, shard: Shard, frame: pd.DataFrame) -> _Rows:
        operations: list[Operation] = []
        hits: list[Event] = []
        names = ("id", "key", "time", "keys", "wanted", "deadline")
        columns = (frame[name].tolist() for name in names)
        for id_, key, time, keys, wanted, deadline in zip(*columns, strict=True):
            if deadline == NO_OPERATION:
                hits.append(Event(_hit_key(id_, key), time, NO_VALUE))
            else:
                hit_keys = tuple(_hit_key(id_, each) for each in keys)
                least = (NO_VALUE,) * len(hit_keys)
                operations.append(Operation(id_, hit_keys, least, wanted, time, deadline))
        shard.feed(operations, hits)
        return iter(())

    def _emit(self, endings: list[Ending]) -> _Rows:
        yield pd.DataFrame(
            [
                (row.id, row.outcome, key_of_hit(row.id, row.completed_by), row.at)
                for row in endings
            ],
            columns=["id", "outcome", "completed_by", "at"],
        )


def _hit_key(id_: str, key: str) -> str:
    """A key of its own for each operation, in the order of the keys; the length ends the id."""
    return f"{len(id_)}:{id_}{key}"


def key_of_hit(id_: str, hit_key: str | None) -> str | None:
    """The key behind what `_hit_key` made."""
    return None if hit_key is None else hit_key[len(f"{len(id_)}:{id_}") :]
