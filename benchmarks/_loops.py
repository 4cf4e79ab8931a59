"""The event loops that are installed and can be measured."""

import asyncio
import sys
from collections.abc import Callable, Coroutine
from importlib import import_module
from importlib.util import find_spec
from typing import Any, cast

from aiowheel.errors import BadInputError
from aiowheel.loop import new_event_loop

WHEEL = "wheel on "  # prefix of a loop's name: that loop with aiowheel's timers
LoopFactory = Callable[[], asyncio.AbstractEventLoop]
#: Loops that keep a cancelled timer until its deadline; until then each one uses memory.
KEEPS_CANCELLED = frozenset({"rloop"})


def loops_here() -> list[str]:
    """Return the names of the installed loops for which aiowheel promises figures."""
    return ["asyncio", "uvloop"] if find_spec("uvloop") else ["asyncio"]


def other_loops() -> list[str]:
    """Return the names of the other loops that are measured if installed."""
    others = ["rloop"]
    if sys.version_info >= (3, 14):
        others.append("zuvloop")
    return [name for name in others if find_spec(name)]


def checked_side(spec: str) -> str:
    """Return *spec*, "module:factory", if the factory makes an event loop.

    Raises:
        BadInputError: It makes none; the message gives the reason.
    """
    try:
        loop = _factory_named(spec)()
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"
        raise BadInputError(f"--side must be module:factory, got {spec!r} ({reason})") from error
    if not hasattr(loop, "run_until_complete") or not hasattr(loop, "call_later"):
        reason = f"the factory must return an event loop, not {type(loop).__name__}"
        raise BadInputError(f"--side must be module:factory, got {spec!r} ({reason})")
    loop.close()
    return spec


def _factory_named(spec: str) -> LoopFactory:
    """Return the factory "module:factory"; modules of the current folder are importable."""
    module, _, attribute = spec.partition(":")
    if not module or not attribute:
        raise ValueError("there must be a name on both sides of one colon")
    if "" not in sys.path:
        sys.path.insert(0, "")
    factory: Any = getattr(import_module(module), attribute)
    return cast(LoopFactory, factory)


def loop_factory(loop: str) -> LoopFactory:
    """Return the factory of a loop: one of this module's names, or "module:factory"."""
    if loop == "asyncio":
        return asyncio.new_event_loop
    if loop.startswith(WHEEL):
        on_uvloop = loop == f"{WHEEL}uvloop"
        return lambda: new_event_loop(uvloop=on_uvloop)
    return _factory_named(loop if ":" in loop else f"{loop}:new_event_loop")


def run_on(loop: str, main: Coroutine[object, object, None]) -> None:
    """Run *main* on a new loop of the given name."""
    with asyncio.Runner(loop_factory=loop_factory(loop)) as runner:
        runner.run(main)
