"""How a purgatory is closed: at once, or when the last operation has left. Rank 2.

Interpreted: a compiled coroutine that suspends throws into what it awaits by a call that Python
3.12 deprecates.
"""

from __future__ import annotations

from asyncio import Event
from collections.abc import Callable


async def close(
    begin: Callable[[str], Event | None], finish: Callable[[str], None], drain: str
) -> None:
    """Call *begin*, wait for the event it returns, if any, and call *finish*."""
    emptied = begin(drain)
    if emptied is not None:
        await emptied.wait()
    finish(drain)
