"""A selector that calls a function instead of blocking. Rank 4."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from selectors import BaseSelector, SelectorKey
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from _typeshed import FileDescriptorLike

Events = list[tuple[SelectorKey, int]]

_LONGEST_WAIT = 1e6  # seconds; epoll counts milliseconds in 32 bits


class IdleSelector(BaseSelector):
    """A wrapper of a real selector that calls *on_idle* when the loop would block.

    Args:
        selector: The real selector, which polls and waits.
        on_idle: Called after a poll without an event; returns the events of its own wait.
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
        """Block in real time for at most *seconds*, or 11 days; `inf` waits without a limit."""
        return self._selector.select(
            None if seconds == float("inf") else min(seconds, _LONGEST_WAIT)
        )

    def register(
        self, fileobj: FileDescriptorLike, events: int, data: object = None
    ) -> SelectorKey:
        """Call the method of the real selector."""
        return self._selector.register(fileobj, events, data)

    def unregister(self, fileobj: FileDescriptorLike) -> SelectorKey:
        """Call the method of the real selector."""
        return self._selector.unregister(fileobj)

    def modify(self, fileobj: FileDescriptorLike, events: int, data: object = None) -> SelectorKey:
        """Call the method of the real selector."""
        return self._selector.modify(fileobj, events, data)

    def get_key(self, fileobj: FileDescriptorLike) -> SelectorKey:
        """Call the method of the real selector."""
        return self._selector.get_key(fileobj)

    def get_map(self) -> Mapping[FileDescriptorLike, SelectorKey]:
        """Call the method of the real selector."""
        return self._selector.get_map()

    def close(self) -> None:
        """Close the real selector and drop *on_idle*."""
        self._selector.close()
        self._on_idle = list  # returns no events; breaks the reference cycle with the loop
