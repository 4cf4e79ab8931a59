"""Waiting for an answer while the client may leave, at no task of its own. Rank 5."""

from __future__ import annotations

from asyncio import Future
from collections.abc import Awaitable
from typing import cast

from starlette.types import Receive

from aiowheel.integrations._hangup import done_before


async def answered(waiting: Awaitable[bool], receive: Receive) -> bool:
    """Wait for what a purgatory promised; whether the client was still there then.

    Args:
        waiting: What `Purgatory.wait_until` returned; cancelled when the client leaves.
        receive: The request's, its body already received.
    """
    return await done_before(cast("Future[bool]", waiting), left(receive))


async def left(receive: Receive) -> None:
    """Wait until the client is gone; what it sends until then is thrown away."""
    while not (await receive())["type"].endswith(".disconnect"):
        pass
