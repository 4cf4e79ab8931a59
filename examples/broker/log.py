"""One partition of a topic on its leader: records, and the offsets that followers have copied."""

from __future__ import annotations

from collections.abc import Iterable


class PartitionLog:
    """An append-only list of records; an offset is an index into it.

    Args:
        followers: Brokers that keep a copy. A record is committed once all of them have it.
    """

    def __init__(self, followers: Iterable[str]) -> None:
        self.records: list[str] = []
        self._copied = dict.fromkeys(followers, 0)

    @property
    def end(self) -> int:
        """The offset that the next record will have."""
        return len(self.records)

    @property
    def high_watermark(self) -> int:
        """Records below this offset are committed: every follower has them."""
        return min([self.end, *self._copied.values()])

    @property
    def committed_bytes(self) -> int:
        """The size of all committed records."""
        return sum(len(record) for record in self.records[: self.high_watermark])

    def append(self, records: Iterable[str]) -> int:
        """Add records; return the end of the log after them."""
        self.records += records
        return self.end

    def note_copied(self, follower: str, offset: int) -> bool:
        """Record that a follower has all before *offset*; return whether the watermark moved."""
        before = self.high_watermark
        self._copied[follower] = max(offset, self._copied[follower])
        return self.high_watermark > before
