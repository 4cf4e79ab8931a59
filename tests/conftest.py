"""What every test shares: which build runs, and on which event loops.

`pytestmark = pytest.mark.both_loops` runs a module's async tests on asyncio and on uvloop (ids
`[asyncio]` and `[uvloop]`); without the mark a test runs on asyncio alone.
"""

import asyncio
from collections.abc import Callable, Mapping

import pytest
from hypothesis import settings

from aiowheel._build import build_info

# A busy machine is no counterexample.
settings.register_profile("aiowheel", deadline=None)
settings.load_profile("aiowheel")

LoopFactory = Callable[[], asyncio.AbstractEventLoop]


def pytest_report_header() -> str:
    """Say which build is under test."""
    info = build_info()
    return f"aiowheel {info.version}: {'compiled' if info.accelerated else 'pure'} ({info.reason})"


def pytest_asyncio_loop_factories(item: pytest.Item) -> Mapping[str, LoopFactory]:
    """The loops that *item* runs on, by the name that shows in its id."""
    loops: dict[str, LoopFactory] = {"asyncio": asyncio.new_event_loop}
    if item.get_closest_marker("both_loops"):
        loops["uvloop"] = _uvloop_factory()
    return loops


def _uvloop_factory() -> LoopFactory:
    try:
        import uvloop
    except ImportError:
        return _skip_without_uvloop
    return uvloop.new_event_loop


def _skip_without_uvloop() -> asyncio.AbstractEventLoop:
    pytest.skip("uvloop is not installed")
