"""A selector that calls back where it would block. Rank 4."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from selectors import BaseSelector, SelectorKey
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from _typeshed import FileDescriptorLike

Events = list[tuple[SelectorKey, int]]


class IdleSelector(BaseSelector):
    """A wrapper of a real selector that calls *on_idle* where the loop would block.

    Args:
        selector: The real one, which polls and waits.
        on_idle: Called after a poll that found nothing; returns the events it waited for.
    """

    def __init__(self, selector: BaseSelector, on_idle: Callable[[], Events]) -> None:
        self._selector = selector
        self._on_idle = on_idle

    def select(self, timeout: float | None = None) -> Events:
        """Poll, and call *on_idle* if there is no event, unless *timeout* is 0 or less."""
        events = self._selector.select(0)
        if events or (timeout is not None and timeout <= 0):
            return events
        return self._on_idle()

    def wait(self, seconds: float) -> Events:
        """Block in real time, for *seconds* at most; `inf` is no bound."""
        return self._selector.select(None if seconds == float("inf") else seconds)

    def register(
        self, fileobj: FileDescriptorLike, events: int, data: object = None
    ) -> SelectorKey:
        """Do what the real selector does."""
        return self._selector.register(fileobj, events, data)

    def unregister(self, fileobj: FileDescriptorLike) -> SelectorKey:
        """Do what the real selector does."""
        return self._selector.unregister(fileobj)

    def modify(self, fileobj: FileDescriptorLike, events: int, data: object = None) -> SelectorKey:
        """Do what the real selector does."""
        return self._selector.modify(fileobj, events, data)

    def get_key(self, fileobj: FileDescriptorLike) -> SelectorKey:
        """Do what the real selector does."""
        return self._selector.get_key(fileobj)

    def get_map(self) -> Mapping[FileDescriptorLike, SelectorKey]:
        """Do what the real selector does."""
        return self._selector.get_map()

    def close(self) -> None:
        """Close the real selector and drop *on_idle*."""
        self._selector.close()
        self._on_idle = list  # returns no events; breaks the reference cycle with the loop
