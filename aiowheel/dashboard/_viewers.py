"""Viewers that share one series of snapshots. Rank 4."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from typing import Generic, TypeVar

from aiowheel.errors import PurgatoryClosedError, TimerClosedError

SECONDS = 0.25  #: between two snapshots

T = TypeVar("T")


class Viewers(Generic[T]):
    """Gives the latest snapshot to all viewers; takes no snapshot while there is no viewer.

    The loop schedules the snapshots. The observed timer does not, so that the dashboard does not
    count its own work.

    Args:
        snapshot: Called on the loop to take a snapshot. If it raises `TimerClosedError` or
            `PurgatoryClosedError`, all streams end.
        discard: Called when the last viewer has gone.
    """

    def __init__(self, snapshot: Callable[[], T], discard: Callable[[], object]) -> None:
        self._snapshot = snapshot
        self._discard = discard
        self._queues: set[asyncio.Queue[T | None]] = set()  # None ends a stream
        self._next: asyncio.Handle | None = None
        self._closed = False

    def __len__(self) -> int:
        return len(self._queues)

    async def snapshots(self) -> AsyncGenerator[T, None]:
        """Yield the snapshots until `close`; a slow viewer misses some."""
        if self._closed:
            return
        queue: asyncio.Queue[T | None] = asyncio.Queue(1)
        self._queues.add(queue)
        if self._next is None:
            self._next = asyncio.get_running_loop().call_soon(self._take)
        try:
            while (snapshot := await queue.get()) is not None:
                yield snapshot
        finally:
            self._queues.discard(queue)

    def close(self) -> None:
        """End all streams, and those that start later. Idempotent."""
        self._closed = True
        if self._next is not None:
            self._next.cancel()
            self._next = None
        self._hand_out(None)
        self._discard()

    def _take(self) -> None:
        self._next = None
        if not self._queues:
            self._discard()
            return
        try:
            snapshot = self._snapshot()
        except (PurgatoryClosedError, TimerClosedError):
            self.close()
            return
        self._next = asyncio.get_running_loop().call_later(SECONDS, self._take)
        self._hand_out(snapshot)

    def _hand_out(self, snapshot: T | None) -> None:
        for queue in self._queues:
            if queue.full():
                queue.get_nowait()
            queue.put_nowait(snapshot)
