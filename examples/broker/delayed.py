"""What a broker cannot answer at once: three operations, each with its condition and its answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from aiowheel import DelayedOperation
from examples.broker.group import Group
from examples.broker.log import PartitionLog

Logs = Mapping[str, PartitionLog]


class DelayedProduce(DelayedOperation[dict[str, str]]):
    """acks=all: done when every partition has committed what was written to it."""

    def __init__(self, logs: Logs, needed: Mapping[str, int], timeout: float) -> None:
        super().__init__(timeout)
        self._logs = logs
        self._needed = needed  # by partition, the high watermark that will do

    def _committed(self, partition: str) -> bool:
        return self._logs[partition].high_watermark >= self._needed[partition]

    def try_complete(self) -> bool:
        """Asked whenever the high watermark of one of the partitions has moved."""
        return all(self._committed(partition) for partition in self._needed)

    def on_complete(self) -> dict[str, str]:
        """By partition, whether it made it in time."""
        return {
            partition: "NONE" if self._committed(partition) else "REQUEST_TIMED_OUT"
            for partition in self._needed
        }


class DelayedFetch(DelayedOperation[dict[str, list[str]]]):
    """A long poll: done when there are *min_bytes* to read over all partitions, or in *max_wait*.

    Args:
        logs: Of all partitions.
        offsets: By partition, where to read from.
        min_bytes: Less than that is not worth an answer yet.
        max_wait: Seconds; then whatever there is will do.
        follower: Followers may read what is not committed yet: how else would it become so?
    """

    def __init__(
        self,
        logs: Logs,
        offsets: Mapping[str, int],
        min_bytes: int,
        max_wait: float,
        *,
        follower: bool,
    ) -> None:
        super().__init__(max_wait)
        self._logs = logs
        self._offsets = offsets
        self._min_bytes = min_bytes
        self._follower = follower

    def _readable(self, partition: str) -> list[str]:
        log = self._logs[partition]
        end = log.end if self._follower else log.high_watermark
        return log.records[self._offsets[partition] : end]

    def try_complete(self) -> bool:
        """Asked whenever there is more to read in one of the partitions."""
        readable = (self._readable(partition) for partition in self._offsets)
        return sum(len(record) for records in readable for record in records) >= self._min_bytes

    def on_complete(self) -> dict[str, list[str]]:
        """Read now, not when it was asked for: between the two more may have come."""
        return {partition: self._readable(partition) for partition in self._offsets}


class DelayedJoin(DelayedOperation[dict[str, Any]]):
    """A rebalance: done when all members of the group have joined, or the timeout has passed."""

    def __init__(self, group: Group, timeout: float) -> None:
        super().__init__(timeout)
        self._group = group

    def try_complete(self) -> bool:
        """Asked whenever a member has joined or left."""
        return self._group.everybody_joined

    def on_complete(self) -> dict[str, Any]:
        """Begin the next generation with those who came; the timeout leaves the others behind."""
        return self._group.begin_generation()


class DelayedHeartbeat(DelayedOperation[None]):
    """A member's session: nothing completes it, a heartbeat or a farewell cancels it."""

    def __init__(self, timeout: float, on_silence: Callable[[], object]) -> None:
        super().__init__(timeout)
        self._on_silence = on_silence

    def try_complete(self) -> bool:
        """It only ever expires."""
        return False

    def on_expiration(self) -> None:
        """The member has been silent for too long."""
        self._on_silence()
