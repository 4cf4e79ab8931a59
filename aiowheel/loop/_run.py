"""Functions that create and run a loop whose timers are on the wheel. Rank 3."""

from __future__ import annotations

import asyncio
import sys
from asyncio.events import _get_running_loop
from collections.abc import Coroutine
from functools import cache
from typing import Any, Literal, TypeVar

from aiowheel._arguments import safe_repr
from aiowheel.errors import MissingExtraError
from aiowheel.loop._mixin import WheelEventLoopMixin

T = TypeVar("T")


class WheelSelectorEventLoop(WheelEventLoopMixin, asyncio.SelectorEventLoop):
    """asyncio's selector loop with timers on the wheel."""


if sys.platform == "win32":

    class WheelProactorEventLoop(WheelEventLoopMixin, asyncio.ProactorEventLoop):
        """asyncio's default loop on Windows with timers on the wheel; it can run subprocesses."""

    _AsyncioLoop = WheelProactorEventLoop
else:
    _AsyncioLoop = WheelSelectorEventLoop


def new_event_loop(*, uvloop: bool | Literal["auto"] = "auto") -> asyncio.AbstractEventLoop:
    """Create a loop whose own timers are on the wheel.

    Args:
        uvloop: The base of the loop. "auto": uvloop if it is installed, else asyncio's default
            loop, which is the proactor loop on Windows and the selector loop on other systems.
            True: uvloop. False: asyncio's default loop.

    Raises:
        ValueError: *uvloop* has another value.
        MissingExtraError: *uvloop* is True, and uvloop is not installed.
    """
    if not isinstance(uvloop, bool) and uvloop != "auto":
        raise ValueError(f'uvloop must be True, False or "auto", got {safe_repr(uvloop)}')
    if uvloop is False:
        return _AsyncioLoop()
    try:
        return _uvloop_class()()
    except ImportError:
        if uvloop is True:
            raise MissingExtraError("uvloop") from None
        return _AsyncioLoop()


@cache
def _uvloop_class() -> type[asyncio.AbstractEventLoop]:
    import uvloop  # optional: it may be missing

    return type("WheelUvloop", (WheelEventLoopMixin, uvloop.Loop), {"__module__": __name__})


def run(
    main: Coroutine[Any, Any, T],
    *,
    uvloop: bool | Literal["auto"] = "auto",
    debug: bool | None = None,
) -> T:
    """Run *main* as `asyncio.run` does, on a loop from `new_event_loop`.

    Raises:
        RuntimeError: A loop is running in this thread, as in a notebook: await *main* there.
        ValueError: *uvloop* has another value.
        MissingExtraError: *uvloop* is True, and uvloop is not installed.
    """
    if _get_running_loop() is not None:  # otherwise closing the new loop would raise another error
        raise RuntimeError("aiowheel.run() cannot be called from a running event loop")
    with asyncio.Runner(debug=debug, loop_factory=lambda: new_event_loop(uvloop=uvloop)) as runner:
        return runner.run(main)
