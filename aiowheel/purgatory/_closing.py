"""The coroutine that `Purgatory.aclose` returns. Rank 2.

This module is a separate file because it must stay interpreted: a compiled coroutine that suspends
throws exceptions into its awaitable by a call that Python 3.12 deprecates.
"""

from __future__ import annotations

from asyncio import Event
from collections.abc import Callable


async def close(
    begin: Callable[[str], Event | None], finish: Callable[[str], None], drain: str
) -> None:
    """Call *begin*, wait for the event that it returns, if any, and call *finish*."""
    emptied = begin(drain)
    if emptied is not None:
        await emptied.wait()
    finish(drain)
