"""Fixtures that the tests of wheel loops share."""

import asyncio
from collections.abc import Iterator

import pytest

from aiowheel.loop import new_event_loop


@pytest.fixture(params=[False, True], ids=["selector", "uvloop"])
def loop(request: pytest.FixtureRequest) -> Iterator[asyncio.AbstractEventLoop]:
    """A wheel loop on each base, closed afterwards."""
    if request.param:
        pytest.importorskip("uvloop")
    loop = new_event_loop(uvloop=request.param)
    yield loop
    if not loop.is_closed():
        loop.run_until_complete(asyncio.sleep(0))
    loop.close()
