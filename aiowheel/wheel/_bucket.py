"""The entries of one slot, in the order they came. Rank 0: no clock, no loop.

Source: Kafka's TimerTaskList, a ring of nodes around a root.
"""

from __future__ import annotations

from collections.abc import Iterator

from mypy_extensions import mypyc_attr

from aiowheel.wheel._entry import Node, TimerEntry


@mypyc_attr(acyclic=True)
class Bucket(Node):
    """A ring of entries with the bucket itself as its root; an unused bucket has no links."""

    __slots__ = ("flagged",)

    def __init__(self) -> None:
        self._prev = None
        self._next = None
        self.flagged = False  # its level's occupancy map names it; may outlive the last entry

    def is_empty(self) -> bool:
        """Whether no entry hangs here."""
        return self._next is None or self._next is self

    def append(self, entry: TimerEntry) -> None:
        """Hang *entry*, which must be in no bucket, behind the others. O(1)."""
        last = self._prev
        if last is None:
            last = self
        last._next = entry
        entry._prev = last
        entry._next = self
        self._prev = entry

    def pop(self) -> TimerEntry | None:
        """Take the oldest entry off, or None. O(1)."""
        first = self._next
        if not isinstance(first, TimerEntry):
            return None
        first._unlink()
        return first

    def take_all(self, other: Bucket) -> None:
        """Move every entry of *other* behind ours, in order. O(1)."""
        first, last = other._next, other._prev
        if first is None or last is None or first is other:
            return
        end = self._prev
        if end is None:
            end = self
        end._next = first
        first._prev = end
        last._next = self
        self._prev = last
        other._prev = None
        other._next = None

    def unlink_all(self) -> None:
        """Break every link, the root's own included: nothing else frees an acyclic ring."""
        node = self._next
        while node is not None:
            following = node._next
            node._prev = None
            node._next = None
            node = following
        self._prev = None
        self._next = None

    def __iter__(self) -> Iterator[TimerEntry]:
        node = self._next
        while isinstance(node, TimerEntry):
            yield node
            node = node._next
