"""Fixtures that the purgatory's tests share."""

import asyncio
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from aiowheel import ManualTimer, Purgatory, Timer

# `examples.broker` is imported from the checkout, which comes last on the path because the build
# under test may be elsewhere.
sys.path.append(str(Path(__file__).parent.parent.parent))


@pytest.fixture
def timer() -> ManualTimer:
    """A timer without a loop."""
    return ManualTimer()


@pytest.fixture
def purgatory(timer: ManualTimer) -> Purgatory:
    """A purgatory without a loop."""
    return Purgatory("test", timer=timer)


@pytest.fixture
async def running() -> AsyncIterator[Purgatory]:
    """A purgatory on a running timer; it is closed at the end and must be empty then."""
    async with Timer() as timer:
        async with Purgatory("running", timer=timer) as purgatory:
            yield purgatory
        assert (len(purgatory), purgatory.watched, len(timer)) == (0, 0, 0)


@pytest.fixture
async def error_reports() -> AsyncIterator[list[dict[str, object]]]:
    """The reports to the loop's exception handler during the test."""
    heard: list[dict[str, object]] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: heard.append(context))
    yield heard
    loop.set_exception_handler(None)
