"""The event loop of the demo: uvloop if it is installed, otherwise asyncio."""

from __future__ import annotations

import asyncio
import importlib.util


def loop_name() -> str:
    """Return the name of the loop of `new_loop`: "uvloop" or "asyncio"."""
    return "uvloop" if importlib.util.find_spec("uvloop") else "asyncio"


def new_loop() -> asyncio.AbstractEventLoop:
    """Return a new event loop."""
    if loop_name() == "asyncio":
        return asyncio.new_event_loop()
    import uvloop

    return uvloop.new_event_loop()
