"""The event loops that can be measured here. Rank 5."""

import asyncio
from collections.abc import Callable, Coroutine
from importlib.util import find_spec

from aiowheel.loop import new_event_loop

WHEEL = "wheel on "  # before the name of a loop: that loop with our timers


def loops_here() -> list[str]:
    """Names of the loops that are installed."""
    return ["asyncio", "uvloop"] if find_spec("uvloop") else ["asyncio"]


def run_on(loop: str, main: Coroutine[object, object, None]) -> None:
    """Run *main* on a new loop of that name."""
    factory: Callable[[], asyncio.AbstractEventLoop] = asyncio.new_event_loop
    if loop.startswith(WHEEL):
        on_uvloop = loop == f"{WHEEL}uvloop"

        def factory() -> asyncio.AbstractEventLoop:
            return new_event_loop(uvloop=on_uvloop)

    elif loop == "uvloop":
        import uvloop

        factory = uvloop.new_event_loop
    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(main)
