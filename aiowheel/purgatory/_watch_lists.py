"""Every key's watch list, and when they are purged. Rank 2.

Source: Kafka's WatcherList and its purge by the estimated total of operations.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, cast

from mypy_extensions import i64

from aiowheel.purgatory._operation import Link, Operation
from aiowheel.purgatory._outcome import Outcome
from aiowheel.purgatory._watchers import Watchers

_SPARSE: Final = 1024  # keys; below that an emptied dict is no burden


class WatchLists:
    """Watch lists by key; a key without watchers has none."""

    __slots__ = ("_by_key", "_peak", "_spare", "keys", "links")

    def __init__(self) -> None:
        self._by_key: dict[object, Watchers] = {}
        # The most keys ever in that dict, which keeps room for them however few are left.
        self._peak: i64 = 0
        self._spare: Watchers | None = None  # an empty list, for the next new key
        self.links: i64 = 0
        self.keys: i64 = 0  # with a link; the dict may have others, see `remove`

    def __len__(self) -> int:
        return len(self._by_key)

    def get(self, key: object) -> Watchers | None:
        """The watch list of *key*, if anybody watches it."""
        return self._by_key.get(key)

    def link(self, operation: Operation, keys: tuple[object, ...]) -> None:
        """Hang *operation* into the list of every key, once each.

        Raises:
            TypeError: A key is not hashable; the operation hangs nowhere then.
        """
        try:
            for key in keys:
                self._link(operation, key)
        except BaseException:
            self.unlink(operation)
            raise

    def _link(self, operation: Operation, key: object) -> None:
        # One look-up, whether the key is new or not: hashing keys is much of what watching costs.
        # The spare list is taken out meanwhile: comparing keys may run code that watches others.
        spare = self._spare
        self._spare = None
        if spare is None:
            spare = Watchers()
        watchers = self._by_key.setdefault(key, spare)
        if watchers is spare:
            watchers.begin(key)
            if len(self._by_key) > self._peak:
                self._peak = len(self._by_key)
        else:
            self._spare = spare
            if watchers.last_operation() is operation:
                return  # the key was given twice; nobody came in between
        link = Link(operation, watchers, operation._links)
        operation._links = link
        watchers.append(link)
        if watchers.count == 0:
            self.keys += 1
        watchers.count += 1
        self.links += 1

    def unlink(self, operation: Operation) -> None:
        """Take *operation* out of all its lists. O(its keys)."""
        link = operation._links
        operation._links = None
        while link is not None:
            sibling = link.sibling
            self.remove(link)
            link = sibling

    def remove(self, link: Link) -> None:
        """Take one link out; the key vanishes with its last."""
        if link.operation is None:
            return
        watchers = cast(Watchers, link.watchers)
        link.unlink()
        link.operation = None
        link.sibling = None
        watchers.count -= 1
        self.links -= 1
        if watchers.count == 0:
            self.keys -= 1
            try:
                del self._by_key[watchers.key]
            except Exception:
                # A key that hashes or compares otherwise by now. Its empty list stays, for others
                # must not miss their end on its account.
                return
            watchers.dissolve()
            if self._peak > _SPARSE and len(self._by_key) * 8 < self._peak:
                self._by_key = dict(self._by_key)
                self._peak = len(self._by_key)

    def purge(self) -> None:
        """Take out every link whose operation is over. O(links)."""
        for watchers in list(self._by_key.values()):
            node = watchers.next
            while node is not None and node is not watchers:
                following = node.next
                if isinstance(node, Link):
                    operation = node.operation
                    if operation is not None and operation._outcome is not Outcome.PENDING:
                        self.remove(node)
                node = following

    def operations(self) -> Iterator[Operation]:
        """Each operation once; the lists must not change meanwhile. O(links)."""
        for watchers in self._by_key.values():
            for operation in watchers.operations():
                first = operation._links
                if first is not None and first.watchers is watchers:
                    yield operation

    def sizes(self) -> Iterator[tuple[int, object]]:
        """Number of links and key, for every key; from any thread."""
        for watchers in list(self._by_key.values()):
            if watchers.count:  # see `remove`
                yield watchers.count, watchers.key

    def watched_among(self, sizes: list[tuple[int, object]]) -> int:
        """How many of these keys have a link."""
        found = 0
        for _, key in sizes:
            watchers = self._by_key.get(key)
            if watchers is not None and watchers.count > 0:
                found += 1
        return found

    def __del__(self) -> None:
        # Only lists that are purged lazily still hold something, and only a ring that was broken
        # by hand is ever freed.
        for watchers in self._by_key.values():
            watchers.dissolve()
