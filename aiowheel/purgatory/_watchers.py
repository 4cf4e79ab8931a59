"""The watch list of one key, in the order the operations came. Rank 2.

Source: Kafka's Watchers, as a ring of links, so that an operation that ends leaves it at O(1).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast

from mypy_extensions import i64, mypyc_attr

from aiowheel.purgatory._operation import Link, Operation
from aiowheel.wheel._bucket import Node


@mypyc_attr(acyclic=True, free_list_len=1)
class Watchers(Node):
    """A ring of links around this root; bookmarks of walks hang in it as well."""

    __slots__ = ("count", "key")

    def __init__(self) -> None:
        self.prev = None
        self.next = None
        self.key: object = None
        self.count: i64 = 0  # links, without bookmarks

    def begin(self, key: object) -> None:
        """Become the list of *key*; before that it is no ring yet, and freed like any object."""
        self.prev = self
        self.next = self
        self.key = key

    def append(self, node: Node) -> None:
        """Hang *node* behind the others. O(1)."""
        last = cast(Node, self.prev)
        last.next = node
        node.prev = last
        node.next = self
        self.prev = node

    def last_operation(self) -> Operation | None:
        """The operation that came last, if its link is the last node."""
        last = self.prev
        return last.operation if isinstance(last, Link) else None

    def operations(self) -> Iterator[Operation]:
        """The operations, oldest first; the list must not change meanwhile."""
        node = self.next
        while node is not None and node is not self:
            if isinstance(node, Link) and node.operation is not None:
                yield node.operation
            node = node.next

    def dissolve(self) -> None:
        """Break the ring, whatever hangs in it: nothing else frees an acyclic one."""
        node = self.next
        while node is not None and node is not self:
            following = node.next
            node.prev = None
            node.next = None
            if isinstance(node, Link):
                node.operation = None
                node.sibling = None
            node = following
        self.prev = None
        self.next = None
