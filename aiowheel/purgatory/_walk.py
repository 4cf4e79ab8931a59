"""A walk along a watch list that may change under it. Rank 2."""

from __future__ import annotations

from typing import cast

from aiowheel.purgatory._operation import Link
from aiowheel.purgatory._watchers import Watchers
from aiowheel.wheel._bucket import Node


class Walk:
    """Visits the links that hang in a watch list now, whatever happens to the list meanwhile.

    Two bookmarks hang in the ring itself: one behind the link visited last, one at the end of what
    is to be visited. Links may come, go and come back between two steps.
    """

    __slots__ = ("_end", "_here", "_watchers")

    def __init__(self, watchers: Watchers) -> None:
        self._watchers = watchers
        self._here = Node()
        self._end = Node()
        _insert_behind(self._here, watchers)
        watchers.append(self._end)

    def next(self) -> Link | None:
        """The next link, or None at the end, when the bookmarks are gone."""
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

    def close(self) -> None:
        """Take the bookmarks out."""
        self._here.unlink()
        self._end.unlink()


def _insert_behind(node: Node, place: Node) -> None:
    after = cast(Node, place.next)
    place.next = node
    node.prev = place
    node.next = after
    after.prev = node
