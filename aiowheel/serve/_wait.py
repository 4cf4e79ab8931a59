"""Waiting for an answer while the client may leave, at no task of its own. Rank 5."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import cast

from starlette.types import Receive


async def answered(waiting: Awaitable[bool], receive: Receive) -> bool:
    """Wait for what a purgatory promised; whether the client was still there then.

    This task listens to the client, and the end of the wait interrupts that: a second task would
    cost each waiter as much again.

    Args:
        waiting: What `Purgatory.wait_until` returned; cancelled when the client leaves.
        receive: The request's, its body already received.
    """
    future = cast("asyncio.Future[bool]", waiting)
    task = asyncio.current_task()
    assert task is not None
    listening = True
    interrupted = False

    def interrupt(_: asyncio.Future[bool]) -> None:
        nonlocal interrupted
        if listening:  # else the client's leaving was noticed in this very turn of the loop
            interrupted = task.cancel()

    future.add_done_callback(interrupt)
    try:
        while (await receive())["type"] != "http.disconnect":
            pass
    except asyncio.CancelledError:
        if not interrupted or task.uncancel() > 0:  # somebody else's
            future.cancel()
            raise
        return True
    finally:
        listening = False
    future.cancel()
    return False
