"""The entries of one slot, in a linked list. Rank 0: no clock, no loop.

Source: Kafka's TimerTaskEntry and TimerTaskList, an intrusive doubly linked ring around a root.
"""

from __future__ import annotations

from collections.abc import Iterator

from mypy_extensions import i64, mypyc_attr

from aiowheel.wheel._statistics import Counts


# Acyclic, so that the cyclic collector does not visit a million pending entries. The collector does
# not traverse these classes, so the owner of a bucket must call `unlink_all` before it drops the
# bucket. Only in the compiled build does the collector find cycles through entries: a wheel of at
# most 10,000 pending entries reports their references in its own traversal (hatch_c.py).
@mypyc_attr(acyclic=True)
class Node:
    """An element of a linked list. A node outside every list has no links."""

    __slots__ = ("next", "prev")

    def __init__(self) -> None:
        self.prev: Node | None = None
        self.next: Node | None = None

    def unlink(self) -> None:
        """Remove this node from its list. O(1)."""
        before = self.prev
        after = self.next
        if before is not None and after is not None:
            before.next = after
            after.prev = before
            self.prev = None
            self.next = None

    def __reduce_ex__(self, protocol: object) -> str:
        raise TypeError(f"{type(self).__name__} cannot be copied or pickled: it is part of a list")


@mypyc_attr(acyclic=True, free_list_len=1)
class TimerEntry(Node):
    """A deadline and its payload; `TimingWheel.schedule` creates it.

    An entry is pending until it is cancelled or returned by `advance`. All its methods stay safe to
    call after that.
    """

    __slots__ = ("_counts", "_deadline", "_filed", "_payload")

    def __init__(self, deadline: i64, payload: object) -> None:
        self.prev: Node | None = None
        self.next: Node | None = None
        # In this order, the fields that `TimerHandle.touch` reads and writes share one cache line
        # with the delay of the handle: at a million entries, cache misses determine the cost.
        self._deadline = deadline
        # The tick of its bucket; the deadline may have moved later since. Negative while overdue.
        self._filed: i64 = 0
        self._counts: Counts | None = None  # None when not pending
        self._payload = payload

    @property
    def deadline(self) -> int:
        """The deadline exactly as given, in the wheel's unit."""
        return self._deadline

    @property
    def payload(self) -> object:
        """The payload given to `schedule`; None once cancelled."""
        return self._payload

    @property
    def pending(self) -> bool:
        """Whether the entry is neither cancelled nor expired."""
        return self._counts is not None

    def late_at(self, now: i64) -> i64:
        """Return how far *now* is past the deadline; negative before it."""
        return now - self._deadline

    def cancel(self) -> bool:
        """Remove the entry from the wheel and drop its payload.

        Returns:
            True exactly once, and only if the entry was still pending.

        Cost: O(1).
        """
        counts = self._counts
        if counts is None:
            return False
        self.unlink()
        self._counts = None
        self._payload = None
        counts.pending -= 1
        counts.cancelled += 1
        return True

    def drop(self) -> None:
        """Drop every reference, because the wheel was dropped or its owner closed it."""
        self._payload = None

    def __repr__(self) -> str:
        state = "pending" if self.pending else "finished"
        return f"<TimerEntry deadline={self.deadline} {state} payload={self.payload!r}>"


@mypyc_attr(acyclic=True)
class Bucket(Node):
    """A ring of entries in the order in which they were filed; the bucket itself is the root.

    An empty bucket may have no links.
    """

    __slots__ = ("flagged",)

    def __init__(self) -> None:
        self.prev: Node | None = None
        self.next: Node | None = None
        self.flagged = False  # set in its level's occupancy map; may outlive the last entry

    def is_empty(self) -> bool:
        """Return whether the bucket holds no entry."""
        return self.next is None or self.next is self

    def append(self, entry: TimerEntry) -> None:
        """Add *entry*, which must be in no bucket, behind the others. O(1)."""
        self.insert(entry, self.prev)

    def insert(self, entry: TimerEntry, place: Node | None) -> None:
        """Add *entry*, which must be in no bucket, behind *place*, or first for the root. O(1)."""
        if place is None:
            place = self
        after = place.next
        if after is None:
            after = self
        place.next = entry
        entry.prev = place
        entry.next = after
        after.prev = entry

    def pop(self) -> TimerEntry | None:
        """Remove the oldest entry and return it, or None. O(1)."""
        first = self.next
        if not isinstance(first, TimerEntry):
            return None
        first.unlink()
        return first

    def take_all(self, other: Bucket) -> None:
        """Move every entry of *other* behind this bucket's own, in order. O(1)."""
        first, last = other.next, other.prev
        if first is None or last is None or first is other:
            return
        end = self.prev
        if end is None:
            end = self
        end.next = first
        first.prev = end
        last.next = self
        self.prev = last
        other.prev = None
        other.next = None

    def unlink_all(self) -> None:
        """Remove every entry and break the root's own links."""
        node = self.next
        while node is not None:
            following = node.next
            node.prev = None
            node.next = None
            node = following
        self.prev = None
        self.next = None

    def count(self, most: i64) -> i64:
        """Return the number of entries, at most *most*. O(*most*)."""
        count: i64 = 0
        node = self.next
        while count < most and isinstance(node, TimerEntry):
            count += 1
            node = node.next
        return count

    def __iter__(self) -> Iterator[TimerEntry]:
        node = self.next
        while isinstance(node, TimerEntry):
            yield node
            node = node.next
