"""Watch lists: for each key the operations that watch it, oldest first. Rank 2.

Sources: Kafka's WatcherList and Watchers, here as rings of links, so that an operation that ends
leaves each of its lists in O(1).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, cast

from mypy_extensions import i64, mypyc_attr

from aiowheel._arguments import refuse_unhashable
from aiowheel._units import FOREVER
from aiowheel.purgatory._operation import Operation, Outcome
from aiowheel.wheel._bucket import Node

_SPARSE: Final = 1024  # keys; a smaller dict needs no shrinking
_PENDING: Final = Outcome.PENDING


@mypyc_attr(acyclic=True, free_list_len=1)
class Link(Node):
    """One operation in the watch list of one key."""

    __slots__ = ("operation", "sibling", "watchers")

    def __init__(self, operation: Operation, watchers: Watchers, sibling: Node | None) -> None:
        self.prev = None
        self.next = None
        self.operation: Operation | None = operation
        self.watchers = watchers
        self.sibling = sibling  # the same operation's link to its previous key


@mypyc_attr(acyclic=True, free_list_len=1)
class Watchers(Node):
    """The watch list of one key: a ring of links, and of the bookmarks of cursors."""

    __slots__ = ("count", "key")

    def __init__(self) -> None:
        self.prev = None
        self.next = None
        self.key: object = None
        self.count: i64 = 0  # links, without bookmarks

    def begin(self, key: object) -> None:
        """Become the list of *key*.

        Before this call, the object is in no reference cycle. A list that is not used, because its
        key has another one already, is therefore freed without the cyclic collector.
        """
        self.prev = self
        self.next = self
        self.key = key

    def append(self, node: Node) -> None:
        """Insert *node* at the end. O(1)."""
        last = cast(Node, self.prev)
        last.next = node
        node.prev = last
        node.next = self
        self.prev = node

    def last_operation(self) -> Operation | None:
        """Return the newest operation if its link is the last node."""
        last = self.prev
        return last.operation if isinstance(last, Link) else None

    def operations(self, most: i64 = FOREVER) -> list[Operation]:
        """Return the pending operations, oldest first, but at most the first *most*.

        O(most), and those before them that have ended and are not purged yet.
        """
        found: list[Operation] = []
        node = self.next
        while node is not None and node is not self and len(found) < most:
            if isinstance(node, Link):
                operation = node.operation
                if operation is not None and operation._outcome is _PENDING:
                    found.append(operation)
            node = node.next
        if node is None and self.next is not None:  # a finalizer has removed the node just visited
            return self.operations(most)
        return found

    def dissolve(self) -> None:
        """Break the ring and its links: the cyclic collector does not see an acyclic class."""
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


class Cursor:
    """An iterator over the links that a watch list holds now, even if the list changes meanwhile.

    Two bookmarks are in the ring itself: one behind the last visited link, one at the end of the
    part to visit. Links may be added, removed and added again between two steps.
    """

    __slots__ = ("_end", "_here")

    def __init__(self, watchers: Watchers) -> None:
        self._here = Node()
        self._end = Node()
        _insert_behind(self._here, watchers)
        watchers.append(self._end)

    def next(self) -> Link | None:
        """Return the next link, or None at the end, when the bookmarks have been removed."""
        here = self._here
        while True:
            node = here.next
            if node is None:  # the list was dissolved
                return None
            if node is self._end:
                self.close()
                return None
            here.unlink()
            _insert_behind(here, node)
            if isinstance(node, Link):
                return node

    def rest(self) -> list[Link]:
        """Remove the bookmarks and return the links that were not visited."""
        found: list[Link] = []
        link = self.next()
        while link is not None:
            found.append(link)
            link = self.next()
        return found

    def close(self) -> None:
        """Remove the bookmarks."""
        self._here.unlink()
        self._end.unlink()


def _insert_behind(node: Node, place: Node) -> None:
    after = cast(Node, place.next)
    place.next = node
    node.prev = place
    node.next = after
    after.prev = node


class WatchLists:
    """The watch lists by key; a key without links has no list."""

    __slots__ = ("_peak", "_spare", "by_key", "keys", "links")

    def __init__(self) -> None:
        self.by_key: dict[object, Watchers] = {}
        # The most keys ever in that dict, which keeps room for them until it is copied.
        self._peak: i64 = 0
        self._spare: Watchers | None = None  # an empty list, for the next new key
        self.links: i64 = 0
        self.keys: i64 = 0  # keys with a link; the dict may hold others, see `remove`

    def get(self, key: object) -> Watchers | None:
        """Return the watch list of *key*, if there is one."""
        try:
            return self.by_key.get(key)
        except TypeError:
            refuse_unhashable("key", key)
            raise

    def link(self, operation: Operation, keys: tuple[object, ...]) -> None:
        """Add *operation* to the list of every key, once each.

        Raises:
            TypeError: A key is not hashable; the operation is then in no list.
        """
        try:
            for key in keys:
                self._link(operation, key)
        except BaseException:
            self.unlink(operation)
            raise

    def _link(self, operation: Operation, key: object) -> None:
        # One look-up for new and known keys, because hashing is much of the cost of watching. The
        # spare list is removed meanwhile, because comparing keys may run code that watches others.
        spare = self._spare
        self._spare = None
        if spare is None:
            spare = Watchers()
        watchers = self.by_key.setdefault(key, spare)
        if watchers is spare:
            watchers.begin(key)
            if len(self.by_key) > self._peak:
                self._peak = len(self.by_key)
        else:
            self._spare = spare
            if watchers.last_operation() is operation:
                return  # the key was given twice
        link = Link(operation, watchers, operation._links)
        operation._links = link
        watchers.append(link)
        if watchers.count == 0:
            self.keys += 1
        watchers.count += 1
        self.links += 1

    def unlink(self, operation: Operation) -> None:
        """Remove *operation* from all its lists. O(its keys)."""
        link = cast("Link | None", operation._links)
        operation._links = None
        while link is not None:
            sibling = cast("Link | None", link.sibling)
            try:
                self.remove(link)
            except BaseException:  # the hash of a key was interrupted; first remove the other links
                operation._links = sibling
                self.unlink(operation)
                raise
            link = sibling

    def remove(self, link: Link) -> None:
        """Remove one link; the last link of a key removes its list."""
        if link.operation is None:
            return
        watchers = link.watchers
        link.unlink()
        link.operation = None
        link.sibling = None
        watchers.count -= 1
        self.links -= 1
        if watchers.count == 0:
            self.keys -= 1
            try:
                # Each look-up runs code of the key, which may watch another operation.
                if self.by_key.get(watchers.key) is not watchers or watchers.count > 0:
                    return  # or the key has changed, and equals another one now
                del self.by_key[watchers.key]
                if watchers.count > 0:
                    self.by_key.setdefault(watchers.key, watchers)
                    return
            except Exception:
                # The hash or the equality of the key has changed. Its empty list stays: one bad key
                # must not prevent other operations from ending.
                return
            watchers.dissolve()
            if self._peak > _SPARSE and len(self.by_key) * 8 < self._peak:
                self.by_key = dict(self.by_key)
                self._peak = len(self.by_key)

    def purge(self) -> None:
        """Remove every link of an operation that has ended. O(links)."""
        for watchers in list(self.by_key.values()):
            node = watchers.next
            while node is not None and node is not watchers:
                following = node.next
                if isinstance(node, Link):
                    operation = node.operation
                    if operation is not None and operation._outcome is not _PENDING:
                        self.remove(node)
                node = following

    def operations(self) -> list[Operation]:
        """Return each operation once. O(links)."""
        found: list[Operation] = []
        for watchers in list(self.by_key.values()):  # a finalizer may remove a key meanwhile
            for operation in watchers.operations():
                first = cast("Link | None", operation._links)
                if first is not None and first.watchers is watchers:
                    found.append(operation)
        return found

    def sizes(self) -> Iterator[tuple[int, object]]:
        """Iterate over the number of links and the key of every list; from any thread."""
        for watchers in list(self.by_key.values()):
            if watchers.count:  # see `remove`
                yield watchers.count, watchers.key

    def watched_among(self, sizes: list[tuple[int, object]]) -> int:
        """Return the number of these keys that have a link."""
        found = 0
        for _, key in sizes:
            watchers = self.by_key.get(key)
            if watchers is not None and watchers.count > 0:
                found += 1
        return found

    def __del__(self) -> None:
        # Only lists that are purged lazily still hold links. Without this, a ring is never freed.
        for watchers in self.by_key.values():
            watchers.dissolve()
