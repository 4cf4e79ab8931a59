"""The delayed operations of a broker, each with its condition and its answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from aiowheel import DelayedOperation
from examples.broker.group import Group
from examples.broker.log import PartitionLog

Logs = Mapping[str, PartitionLog]


class DelayedProduce(DelayedOperation[dict[str, str]]):
    """acks=all: complete when every partition has committed the written records."""

    def __init__(self, logs: Logs, needed: Mapping[str, int], timeout: float) -> None:
        super().__init__(timeout)
        self._logs = logs
        self._needed = needed  # the high watermark to reach, by partition

    def _committed(self, partition: str) -> bool:
        return self._logs[partition].high_watermark >= self._needed[partition]

    def try_complete(self) -> bool:
        """Check the high watermarks; called whenever one of them has moved."""
        return all(self._committed(partition) for partition in self._needed)

    def on_complete(self) -> dict[str, str]:
        """Return the result by partition: committed in time, or timed out."""
        return {
            partition: "NONE" if self._committed(partition) else "REQUEST_TIMED_OUT"
            for partition in self._needed
        }


class DelayedFetch(DelayedOperation[dict[str, list[str]]]):
    """A long poll: complete with *min_bytes* to read in all partitions, or after *max_wait*.

    Args:
        logs: The logs of all partitions.
        offsets: The first offset to read, by partition.
        min_bytes: The least size of an answer before *max_wait*.
        max_wait: Seconds after which the answer has any size.
        follower: Whether a follower reads, which must also get uncommitted records.
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
        """Check the sizes; called whenever a partition has new records."""
        readable = (self._readable(partition) for partition in self._offsets)
        return sum(len(record) for records in readable for record in records) >= self._min_bytes

    def on_complete(self) -> dict[str, list[str]]:
        """Read the records now, including those that came after the check."""
        return {partition: self._readable(partition) for partition in self._offsets}


class DelayedJoin(DelayedOperation[dict[str, Any]]):
    """A rebalance: complete when all members of the group have joined, or after the timeout."""

    def __init__(self, group: Group, timeout: float) -> None:
        super().__init__(timeout)
        self._group = group

    def try_complete(self) -> bool:
        """Check the members; called whenever a member has joined or left."""
        return self._group.all_joined

    def on_complete(self) -> dict[str, Any]:
        """Start the next generation with the joined members; remove the others."""
        return self._group.begin_generation()


class DelayedHeartbeat(DelayedOperation[None]):
    """A member's session: it expires, or a heartbeat or leaving cancels it."""

    def __init__(self, timeout: float, on_silence: Callable[[], object]) -> None:
        super().__init__(timeout)
        self._on_silence = on_silence

    def try_complete(self) -> bool:
        """Never complete: the operation can only expire."""
        return False

    def on_expiration(self) -> None:
        """Remove the member, which sent no heartbeat in time."""
        self._on_silence()
