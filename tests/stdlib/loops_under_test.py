"""Set the loop that the tests of CPython and of uvloop use.

These tests create loops in several ways: with the default policy, with `asyncio.SelectorEventLoop`,
and as subclasses of `asyncio.base_events.BaseEventLoop` with a clock of their own. Each way is
replaced by a wheel loop or by uvloop. uvloop's tests call `uvloop.new_event_loop`.
"""

import asyncio
import asyncio.base_events
import asyncio.unix_events
from collections.abc import Callable
from typing import Any

from aiowheel.loop import WheelEventLoopMixin
from aiowheel.testing import VirtualClockEventLoop

LoopClass = type[asyncio.AbstractEventLoop]


class CountedLoop:
    """A mixin that counts the loops under test: a run without any has tested nothing."""

    loops = 0

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        CountedLoop.loops += 1


def asyncios() -> None:
    """Run the tests on unchanged loops of asyncio."""
    _put(type("Loop", (CountedLoop, asyncio.SelectorEventLoop), {}))


def wheel_on_asyncios() -> None:
    """Run the tests on the wheel above asyncio, also for loops that the tests derive."""
    _put(type("Loop", (CountedLoop, WheelEventLoopMixin, asyncio.SelectorEventLoop), {}))
    # Tests that advance the clock by hand use a subclass with an attribute set after __init__.
    base = type("BaseLoop", (CountedLoop, WheelEventLoopMixin, asyncio.BaseEventLoop), {"_time": 0})
    for module in (asyncio, asyncio.base_events):
        setattr(module, "BaseEventLoop", base)  # noqa: B010 - to mypy it is a constant


def uvloops() -> None:
    """Run the tests on unchanged uvloop."""
    _put(_on_uvloop())


def wheel_on_uvloops() -> None:
    """Run the tests on the wheel above uvloop."""
    _put(_on_uvloop(WheelEventLoopMixin))


def virtual() -> None:
    """Run the tests on a virtual clock that waits for child processes."""

    class Loop(CountedLoop, VirtualClockEventLoop):
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

    class Loop(CountedLoop, *mixins, uvloop.Loop):  # type: ignore[misc]
        _default_executor = None  # CPython's tests read it when they close a loop

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
