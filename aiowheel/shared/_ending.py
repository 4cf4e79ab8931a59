"""The end of a background task. Rank 4."""

from __future__ import annotations

import asyncio


async def end_task(task: asyncio.Task[None] | None) -> None:
    """Cancel *task* and wait for its end; its exception is dropped.

    A client of a server may swallow a cancellation that arrives together with a timeout or a lost
    connection, so the task is cancelled until it has ended.
    """
    if task is None:
        return
    while not task.done():
        task.cancel()
        await asyncio.wait([task], timeout=0.1)
    if not task.cancelled():
        task.exception()
