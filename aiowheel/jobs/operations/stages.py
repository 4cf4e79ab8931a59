"""The two stateful stages of the streaming purgatory: by key, then by operation. Rank 5.

Both stages are `Shard`s, purgatories in virtual time. In the first stage an operation waits on each
of its keys separately, and a completion is a *hit* of that key. In the second stage the operation
waits for its hits. A hit always finds its operation: the first stage emits an operation when it
arrives, and a hit in the micro-batch whose watermark passes it; the second stage settles no further
than that watermark.

Rows travel in packs; see `packs`. So the first stage, and not Spark, drops late rows and counts the
rows that it takes. Operations that the second stage decides before all keys are met are reported to
the first stage, so that it drops their copies; see `decided`.
"""

from __future__ import annotations

from abc import abstractmethod
from collections import defaultdict
from collections.abc import Iterable
from functools import cached_property
from typing import Any, Final
from zlib import crc32

import pandas as pd
import pyarrow as pa

from aiowheel.jobs.operations.decided import Decided, Decision, current_batch
from aiowheel.jobs.operations.shard import Shard
from aiowheel.jobs.operations.shard_state import STATE_DDL, dump, load
from aiowheel.jobs.spark.packs import pack, unpack
from aiowheel.jobs.spark.processor import Frames, ShardProcessor
from aiowheel.jobs.spark.watermark import timestamps
from aiowheel.readers import Unit
from aiowheel.rules import COMPLETED, NO_VALUE, Ending, Event, Operation

STATE_NAME: Final = "state"

#: The columns of operations in the packs of the first stage; events have those of their table. An
#: operation has one copy for each of its keys; one copy holds all keys, and the others hold null.
COPIES: Final = ("id", "key", "time", "least", "keys", "wanted", "deadline")

#: The columns of operations in the packs of the second stage.
ENTRANTS: Final = pa.schema(
    {
        "id": pa.string(),
        "time": pa.int64(),
        "keys": pa.list_(pa.string()),
        "wanted": pa.int64(),
        "deadline": pa.int64(),
    }
)
#: The columns of hits in the packs of the second stage.
HITS: Final = pa.schema({"id": pa.string(), "time": pa.int64(), "key": pa.string()})

#: The numbers of rows that a shard of the first stage has taken.
TAKEN_COUNTS: Final = ("taken_operations", "taken_events")
#: The output of the first stage: packs for a shard of the second; and for each shard of the first
#: a row without a pack, which holds these numbers.
MATCHED_DDL: Final = (
    "ts timestamp, shard int, taken_operations bigint, taken_events bigint, "
    "operations binary, events binary"
)
#: The outcomes; rows without one hold the number of operations that the second stage has taken.
OUTCOME_DDL: Final = "id string, outcome string, completed_by string, at bigint, entered bigint"
_OUTCOME: Final = ("id", "outcome", "completed_by", "at", "entered")


class Stage(ShardProcessor[Shard]):
    """One shard of a stage.

    Args:
        tick: The tick of the wheel, in *unit*.
        unit: The unit of the times.
        decided: The operations decided early, written by the second stage and read by the first;
            None if there is no folder for them.
    """

    def __init__(self, tick: int, unit: Unit, decided: Decided | None) -> None:
        super().__init__(unit, {STATE_NAME: STATE_DDL})
        self._tick = tick
        self._decided = decided

    def _load(self, values: dict[str, tuple[Any, ...]]) -> Shard:
        value = values.get(STATE_NAME)
        return (
            Shard(self._tick) if value is None else load(self._tick, value, self._decided_before())
        )

    def _dump(self, shard: Shard) -> dict[str, tuple[Any, ...] | None]:
        return {STATE_NAME: dump(shard) if len(shard) or shard.events else None}

    def _next_timer(self, shard: Shard, watermark_ms: int) -> int | None:
        # Run at each move of the watermark: hits are emitted and decisions are read.
        return watermark_ms + 1 if len(shard) or shard.events else None

    def _feed(
        self, number: int, shard: Shard, frames: Iterable[pd.DataFrame], settled: int
    ) -> Frames:
        operations: list[Any] = []
        events: list[Any] = []
        for frame in frames:
            for name, rows in (("operations", operations), ("events", events)):
                rows += [row for data in frame[name].dropna() for row in unpack(data)]
        yield from self._feed_rows(number, shard, operations, events, settled)

    def _decided_before(self) -> set[Decision]:
        """Return the decided operations whose copies in the state can be dropped."""
        return set()

    @abstractmethod
    def _feed_rows(
        self, number: int, shard: Shard, operations: list[Any], events: list[Any], settled: int
    ) -> Frames:
        """Feed the unpacked rows after *settled* to the shard; yield rows for the next stage."""


class MatchKeys(Stage):
    """The first stage: emits each operation once, and its hits.

    Args:
        tick: The tick of the wheel, in *unit*.
        unit: The unit of the times.
        decided: The operations decided early by the second stage; or None.
        shards: The number of shards of the second stage.
    """

    def __init__(self, tick: int, unit: Unit, decided: Decided | None, shards: int) -> None:
        super().__init__(tick, unit, decided)
        self._shards = shards

    @cached_property
    def _seen(self) -> set[Decision]:
        return self._decided.before(current_batch()) if self._decided is not None else set()

    def _decided_before(self) -> set[Decision]:
        return self._seen  # read once per task, because a task serves many shards

    def _feed_rows(
        self, number: int, shard: Shard, operations: list[Any], events: list[Any], settled: int
    ) -> Frames:
        waiting: list[Operation] = []
        passed_on: list[tuple[Any, ...]] = []
        for id_, key, time, least, keys, wanted, deadline in operations:
            if time > settled:
                waiting.append(Operation(id_, (key,), (least,), 1, time, deadline))
                if keys is not None:
                    passed_on.append((id_, time, keys, wanted, deadline))
        happened = [Event(*row) for row in events if row[1] > settled]
        shard.feed(waiting, happened)
        times = [*(row.created for row in waiting), *(row.time for row in happened)]
        if times:
            yield self._frame([(max(times), number, len(passed_on), len(happened), None, None)])
            yield from self._spread(passed_on, ENTRANTS)

    def _emit(
        self,
        number: int,  # noqa: ARG002
        shard: Shard,  # noqa: ARG002
        ends: list[Ending],
    ) -> Frames:
        hits = [(row.id, row.at, row.completed_by) for row in ends if row.outcome == COMPLETED]
        yield from self._spread(hits, HITS)

    def _spread(self, rows: Iterable[tuple[Any, ...]], schema: pa.Schema) -> Frames:
        """Pack rows that begin with an id and a time for the shards of the second stage."""
        by_shard: defaultdict[int, list[tuple[Any, ...]]] = defaultdict(list)
        for row in rows:
            by_shard[crc32(row[0].encode()) % self._shards].append(row)
        packs: list[tuple[Any, ...]] = []
        for shard, part in by_shard.items():
            data = pack(schema, part)
            both = (data, None) if schema is ENTRANTS else (None, data)
            packs.append((max(row[1] for row in part), shard, 0, 0, *both))
        if packs:
            yield self._frame(packs)

    def _frame(self, rows: list[tuple[Any, ...]]) -> pd.DataFrame:
        times = timestamps([latest for latest, *_ in rows], self._unit)
        names = ["shard", *TAKEN_COUNTS, "operations", "events"]
        frame = pd.DataFrame([row[1:] for row in rows], columns=names)
        # In the order of MATCHED_DDL: a session may assign columns by position.
        frame.insert(0, "ts", times)
        return frame


class DecideOperations(Stage):
    """The second stage: emits how each operation ended."""

    def _feed_rows(
        self,
        number: int,  # noqa: ARG002 - the first stage states what was taken
        shard: Shard,
        operations: list[Any],
        events: list[Any],
        settled: int,  # noqa: ARG002 - the first stage emits no late rows
    ) -> Frames:
        hits = [Event(_hit_key(id_, key), time, NO_VALUE) for id_, time, key in events]
        waiting: list[Operation] = []
        for id_, time, keys, wanted, deadline in operations:
            hit_keys = tuple([_hit_key(id_, each) for each in keys])
            least = (NO_VALUE,) * len(hit_keys)
            waiting.append(Operation(id_, hit_keys, least, wanted, time, deadline))
        shard.feed(waiting, hits)
        if waiting:
            yield pd.DataFrame([(None, None, None, 0, len(waiting))], columns=[*_OUTCOME])

    def _emit(self, number: int, shard: Shard, ends: list[Ending]) -> Frames:
        if shard.unmet and self._decided is not None:
            decisions = [(row.id, row.created) for row in shard.unmet]
            self._decided.write(current_batch(), number, decisions)
        yield pd.DataFrame(
            [
                (row.id, row.outcome, key_of_hit(row.id, row.completed_by), row.at, 0)
                for row in ends
            ],
            columns=[*_OUTCOME],
        )


def _hit_key(id_: str, key: str) -> str:
    """Return a key unique to the operation; it sorts like *key*, and the length delimits the id."""
    return f"{len(id_)}:{id_}{key}"


def key_of_hit(id_: str, hit_key: str | None) -> str | None:
    """Return the original key of a key made by `_hit_key`."""
    return None if hit_key is None else hit_key[len(f"{len(id_)}:{id_}") :]
