"""Functions that make and run a loop whose timers are the wheel. Rank 3."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Coroutine
from functools import cache
from typing import Any, Literal, TypeVar

from aiowheel.errors import MissingExtraError
from aiowheel.loop._mixin import WheelEventLoopMixin

T = TypeVar("T")


class WheelSelectorEventLoop(WheelEventLoopMixin, asyncio.SelectorEventLoop):
    """asyncio's selector loop with the wheel's timers."""


if sys.platform == "win32":

    class WheelProactorEventLoop(WheelEventLoopMixin, asyncio.ProactorEventLoop):
        """asyncio's default loop on Windows, with the wheel's timers: it runs subprocesses."""

    _AsyncioLoop = WheelProactorEventLoop
else:
    _AsyncioLoop = WheelSelectorEventLoop


def new_event_loop(*, uvloop: bool | Literal["auto"] = "auto") -> asyncio.AbstractEventLoop:
    """Make a loop whose own timers are the wheel.

    Args:
        uvloop: "auto": on uvloop where it is installed, else on asyncio's default loop, which is
            the proactor loop on Windows and the selector loop elsewhere. True: on uvloop. False:
            on asyncio's.

    Raises:
        ValueError: *uvloop* is none of these.
        MissingExtraError: *uvloop* is True, and uvloop is not installed.
    """
    if not isinstance(uvloop, bool) and uvloop != "auto":
        raise ValueError(f'uvloop must be True, False or "auto", got {uvloop!r}')
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
    """Run *main* as `asyncio.run` does, on a loop from `new_event_loop`."""
    with asyncio.Runner(debug=debug, loop_factory=lambda: new_event_loop(uvloop=uvloop)) as runner:
        return runner.run(main)
