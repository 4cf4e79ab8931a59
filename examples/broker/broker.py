"""The leader of a few partitions: requests, answers, and the requests that wait."""

from __future__ import annotations

from collections.abc import Awaitable, Iterable, Mapping

from aiowheel import Purgatory, Timer
from examples.broker.coordinator import Coordinator
from examples.broker.delayed import DelayedFetch, DelayedProduce
from examples.broker.log import PartitionLog


class Broker:
    """Answers produce and fetch requests; every answer may be awaited, or dropped.

    Args:
        timer: The timer of all timeouts.
        partitions: Names of the partitions that it leads.
        followers: Names of the brokers that copy them.
        rebalance_timeout: Seconds, see `Coordinator`.
        session_timeout: Seconds, see `Coordinator`.
    """

    def __init__(
        self,
        timer: Timer,
        partitions: Iterable[str],
        followers: Iterable[str] = (),
        rebalance_timeout: float = 60.0,
        session_timeout: float = 10.0,
    ) -> None:
        names = tuple(followers)
        self.logs = {partition: PartitionLog(names) for partition in partitions}
        self.produces = Purgatory("produce", timer=timer)
        self.fetches = Purgatory("fetch", timer=timer)
        self.watermarks = Purgatory("watermark", timer=timer)
        self.coordinator = Coordinator(timer, rebalance_timeout, session_timeout)

    def produce(
        self, batches: Mapping[str, list[str]], timeout: float = 30.0
    ) -> Awaitable[dict[str, str]]:
        """Append, and answer when all followers have copied the records (acks=all)."""
        needed = self._append(batches)
        return self.produces.watch(DelayedProduce(self.logs, needed, timeout), needed)

    def produce_counted(
        self, batches: Mapping[str, list[str]], timeout: float = 30.0
    ) -> Awaitable[bool]:
        """Produce with counters: return True at the watermarks, or False after the timeout."""
        return self.watermarks.wait_until(self._append(batches), timeout)

    def fetch(
        self, offsets: Mapping[str, int], min_bytes: int = 1, max_wait: float = 0.5
    ) -> Awaitable[dict[str, list[str]]]:
        """Read committed records from the offsets on; wait for *min_bytes* of them."""
        return self._watch_fetch(offsets, min_bytes, max_wait, follower=False)

    def wait_for_bytes(
        self, partition: str, position: int, min_bytes: int, max_wait: float
    ) -> Awaitable[bool]:
        """Wait with a counter for *min_bytes* after byte *position* of one partition."""
        return self.watermarks.wait_until({("bytes", partition): position + min_bytes}, max_wait)

    def copy(
        self, follower: str, offsets: Mapping[str, int], max_wait: float = 0.5
    ) -> Awaitable[dict[str, list[str]]]:
        """Answer a follower's fetch; a fetch of an offset acknowledges all earlier records."""
        for partition, offset in offsets.items():
            if self.logs[partition].note_copied(follower, offset):
                self._check_waiters(partition)
        return self._watch_fetch(offsets, 1, max_wait, follower=True)

    def _watch_fetch(
        self, offsets: Mapping[str, int], min_bytes: int, max_wait: float, *, follower: bool
    ) -> Awaitable[dict[str, list[str]]]:
        operation = DelayedFetch(self.logs, offsets, min_bytes, max_wait, follower=follower)
        return self.fetches.watch(operation, offsets)

    def _append(self, batches: Mapping[str, list[str]]) -> dict[str, int]:
        logs = {partition: self.logs[partition] for partition in batches}  # all of them, or none
        ends = {partition: log.append(batches[partition]) for partition, log in logs.items()}
        for partition in batches:
            self._check_waiters(partition)
        return ends

    def _check_waiters(self, partition: str) -> None:
        """Check the operations that wait for records of the partition, or for their commit."""
        log = self.logs[partition]
        self.produces.check_and_complete(partition)
        self.fetches.check_and_complete(partition)
        self.watermarks.advance(partition, log.high_watermark)
        self.watermarks.advance(("bytes", partition), log.committed_bytes)

    async def aclose(self) -> None:
        """End all waiting requests as if their timeouts had elapsed."""
        # Sessions first: an expired session would start a rebalance of the other members.
        await self.coordinator.heartbeats.aclose("cancel")
        for purgatory in (self.produces, self.fetches, self.watermarks, self.coordinator.joins):
            await purgatory.aclose()
