"""A selector that asks before it blocks. Rank 4."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from selectors import BaseSelector, SelectorKey
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from _typeshed import FileDescriptorLike

Events = list[tuple[SelectorKey, int]]


class IdleSelector(BaseSelector):
    """A real selector; where the loop would block in it, *on_idle* decides what happens.

    Args:
        selector: Does the work.
        on_idle: Called once a poll found nothing; returns the events it waited for, or none.
    """

    def __init__(self, selector: BaseSelector, on_idle: Callable[[], Events]) -> None:
        self._selector = selector
        self._on_idle = on_idle

    def select(self, timeout: float | None = None) -> Events:
        """Poll; a *timeout* of 0 or less leaves it at that."""
        events = self._selector.select(0)
        if events or (timeout is not None and timeout <= 0):
            return events
        return self._on_idle()

    def wait(self, seconds: float) -> Events:
        """Block for real, for *seconds* at most; `inf` is no bound."""
        return self._selector.select(None if seconds == float("inf") else seconds)

    def register(
        self, fileobj: FileDescriptorLike, events: int, data: object = None
    ) -> SelectorKey:
        """As the real one does."""
        return self._selector.register(fileobj, events, data)

    def unregister(self, fileobj: FileDescriptorLike) -> SelectorKey:
        """As the real one does."""
        return self._selector.unregister(fileobj)

    def modify(self, fileobj: FileDescriptorLike, events: int, data: object = None) -> SelectorKey:
        """As the real one does."""
        return self._selector.modify(fileobj, events, data)

    def get_key(self, fileobj: FileDescriptorLike) -> SelectorKey:
        """As the real one does."""
        return self._selector.get_key(fileobj)

    def get_map(self) -> Mapping[FileDescriptorLike, SelectorKey]:
        """As the real one does."""
        return self._selector.get_map()

    def close(self) -> None:
        """As the real one does; lets go of whoever decides."""
        self._selector.close()
        self._on_idle = list  # nothing is ready; the loop, which made us, is in no cycle now
