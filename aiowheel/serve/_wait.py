"""Waiting for a result or for the disconnect of the client, without an extra task. Rank 5."""

from __future__ import annotations

from asyncio import Future
from collections.abc import Awaitable
from typing import cast

from starlette.types import Receive

from aiowheel.integrations._hangup import done_before


async def done_before_disconnect(waiting: Awaitable[bool], receive: Receive) -> bool:
    """Wait for *waiting* or a disconnect; return False if the client disconnected first.

    Args:
        waiting: The future that `TopicStore.wait` returned; a disconnect cancels it.
        receive: The `receive` of the request, whose body was already received.
    """
    return await done_before(cast("Future[bool]", waiting), disconnected(receive))


async def disconnected(receive: Receive) -> None:
    """Wait until the client has disconnected; discard everything that it sends until then."""
    while not (await receive())["type"].endswith(".disconnect"):
        pass
