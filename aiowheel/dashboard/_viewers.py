"""All viewers of one thing, and the one sampling that serves them. Rank 4."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from typing import Generic, TypeVar

from aiowheel.errors import PurgatoryClosedError, TimerClosedError

SECONDS = 0.25  #: between two looks

T = TypeVar("T")


class Viewers(Generic[T]):
    """Hands the latest look to every viewer; takes no look without a viewer.

    The looks are timed by the loop and not by the timer: the dashboard does not show itself.

    Args:
        look: Takes a look; called from the loop. A `TimerClosedError` or `PurgatoryClosedError` of
            it ends all streams.
        rest: Called when the last viewer has left.
    """

    def __init__(self, look: Callable[[], T], rest: Callable[[], object]) -> None:
        self._look = look
        self._rest = rest
        self._queues: set[asyncio.Queue[T | None]] = set()  # None: it is over
        self._next: asyncio.Handle | None = None
        self._closed = False

    def __len__(self) -> int:
        return len(self._queues)

    async def looks(self) -> AsyncGenerator[T, None]:
        """Yield look after look, until `close`; a slow viewer skips some."""
        if self._closed:
            return
        queue: asyncio.Queue[T | None] = asyncio.Queue(1)
        self._queues.add(queue)
        if self._next is None:
            self._next = asyncio.get_running_loop().call_soon(self._take)
        try:
            while (look := await queue.get()) is not None:
                yield look
        finally:
            self._queues.discard(queue)

    def close(self) -> None:
        """End the streams of all viewers, and of those to come; idempotent."""
        self._closed = True
        if self._next is not None:
            self._next.cancel()
            self._next = None
        self._hand_out(None)
        self._rest()

    def _take(self) -> None:
        self._next = None
        if not self._queues:
            self._rest()
            return
        try:
            look = self._look()
        except (PurgatoryClosedError, TimerClosedError):
            self.close()
            return
        self._next = asyncio.get_running_loop().call_later(SECONDS, self._take)
        self._hand_out(look)

    def _hand_out(self, look: T | None) -> None:
        for queue in self._queues:
            if queue.full():
                queue.get_nowait()
            queue.put_nowait(look)
