"""The Spark processor of `shard`: one instance per hash shard of the keys. Rank 5."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import pandas as pd

from aiowheel.jobs.idle.shard import STATE, IdleShard
from aiowheel.jobs.spark.packs import unpack
from aiowheel.jobs.spark.processor import Frames, ShardProcessor
from aiowheel.jobs.spark.watermark import watermark_at
from aiowheel.readers import Unit

#: The latest time of a row, in seconds: the year 2223. The time of a flush is later.
LATEST_SECOND: Final = 8_000_000_000

#: Idle events; and for each shard a row without a key: the number of touches that it has taken.
EVENTS_DDL: Final = "fire bigint, key string, shard int, taken bigint"


class IdleProcessor(ShardProcessor[IdleShard]):
    """A processor that settles a shard when a key may have become idle; see `IdleShard`.

    Args:
        timeout: In *unit*.
        unit: The unit of the column ``t``.
    """

    def __init__(self, timeout: int, unit: Unit) -> None:
        super().__init__(unit, STATE)
        self._timeout = timeout

    def _load(self, values: dict[str, tuple[Any, ...]]) -> IdleShard:
        return IdleShard.load(self._timeout, values)

    def _dump(self, shard: IdleShard) -> dict[str, tuple[Any, ...] | None]:
        return shard.changes()

    def _next_timer(self, shard: IdleShard, watermark_ms: int) -> int | None:
        fire = shard.next_fire()
        return None if fire is None else max(watermark_at(fire, self._unit), watermark_ms + 1)

    def _feed(
        self, number: int, shard: IdleShard, frames: Iterable[pd.DataFrame], settled: int
    ) -> Frames:
        packs = (data for frame in frames for data in frame["pack"].dropna())
        touches = [touch for data in packs for touch in unpack(data) if touch[0] > settled]
        shard.feed(touches)
        yield pd.DataFrame({"fire": [0], "key": [None], "shard": [number], "taken": [len(touches)]})

    def _emit(
        self,
        number: int,
        shard: IdleShard,  # noqa: ARG002
        ends: list[Any],
    ) -> Frames:
        fires, keys = zip(*ends, strict=True)
        yield pd.DataFrame({"fire": fires, "key": keys}).assign(shard=number, taken=0)
