"""Puts a loop where the tests of CPython and of uvloop look for theirs.

They make loops in several ways: by the default policy, by `asyncio.SelectorEventLoop`, and as
subclasses of `asyncio.base_events.BaseEventLoop` that turn their own clock. All are given ours, or
uvloop's; uvloop's tests ask `uvloop.new_event_loop`.
"""

import asyncio
import asyncio.base_events
import asyncio.unix_events
from collections.abc import Callable
from typing import Any

from aiowheel.loop import WheelEventLoopMixin
from aiowheel.testing import VirtualClockEventLoop

LoopClass = type[asyncio.AbstractEventLoop]


class Made:
    """Counts the loops under test: a run that made none has tested nothing."""

    loops = 0

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        Made.loops += 1


def asyncios() -> None:
    """Have the tests run on the loops of asyncio, as they are."""
    _put(type("Loop", (Made, asyncio.SelectorEventLoop), {}))


def wheel_on_asyncios() -> None:
    """Have them run on the wheel above asyncio, on the loops that they derive included."""
    _put(type("Loop", (Made, WheelEventLoopMixin, asyncio.SelectorEventLoop), {}))
    # Tests that turn the clock by hand do so in a subclass, in an attribute set after __init__.
    base = type("BaseLoop", (Made, WheelEventLoopMixin, asyncio.BaseEventLoop), {"_time": 0})
    for module in (asyncio, asyncio.base_events):
        setattr(module, "BaseEventLoop", base)  # noqa: B010 - to mypy it is a constant


def uvloops() -> None:
    """Have them run on uvloop as it is."""
    _put(_on_uvloop())


def wheel_on_uvloops() -> None:
    """Have them run on the wheel above uvloop."""
    _put(_on_uvloop(WheelEventLoopMixin))


def virtual() -> None:
    """Have them run on a virtual clock; a patient one, for child processes take their time."""

    class Loop(Made, VirtualClockEventLoop):
        def __init__(self, *args: Any) -> None:
            super().__init__(*args, patience=5)

    _put(Loop)


LOOPS: dict[str, Callable[[], None]] = {
    "asyncio": asyncios,
    "uvloop": uvloops,
    "virtual": virtual,
    "wheel on asyncio": wheel_on_asyncios,
    "wheel on uvloop": wheel_on_uvloops,
}


def _on_uvloop(*mixins: type) -> LoopClass:
    import uvloop

    class Loop(Made, *mixins, uvloop.Loop):  # type: ignore[misc]
        _default_executor = None  # CPython's tests look at it when they close a loop

        def __init__(self, selector: object = None) -> None:
            super().__init__()

    uvloop.new_event_loop = Loop
    return Loop


def _put(loop: LoopClass) -> None:
    for module in (asyncio, asyncio.unix_events):
        for name in ("SelectorEventLoop", "EventLoop", "_UnixSelectorEventLoop"):
            if hasattr(module, name):
                setattr(module, name, loop)
    for name in ("_UnixDefaultEventLoopPolicy", "_DefaultEventLoopPolicy"):  # until and from 3.14
        policy = getattr(asyncio.unix_events, name, None)
        if policy is not None:
            policy._loop_factory = loop
