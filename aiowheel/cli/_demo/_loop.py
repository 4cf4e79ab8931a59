"""The event loop of the demo: uvloop where it is installed. Rank 5."""

from __future__ import annotations

import asyncio
import importlib.util


def loop_name() -> str:
    """Name the loop `new_loop` makes: "uvloop" or "asyncio"."""
    return "uvloop" if importlib.util.find_spec("uvloop") else "asyncio"


def new_loop() -> asyncio.AbstractEventLoop:
    """Make the event loop of one thread."""
    if loop_name() == "asyncio":
        return asyncio.new_event_loop()
    import uvloop

    return uvloop.new_event_loop()
