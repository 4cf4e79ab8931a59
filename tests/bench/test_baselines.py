"""The baseline designs work: no request expires early, and each request ends once."""

import asyncio
from collections.abc import Callable
from time import monotonic

import pytest

from benchmarks.workloads.contenders import open_contender

pytestmark = pytest.mark.one_build

DESIGNS = ["aiowheel", "lazy", "old", "hashed", "flat", "call_later"]


async def turn_for(turn: Callable[[float], object], seconds: float) -> None:
    """Run a contender's turns for *seconds*, and several more at the end."""
    end = monotonic() + seconds
    late = 0
    while late < 10:
        late += monotonic() >= end
        turn(monotonic())
        await asyncio.sleep(0.001)


@pytest.mark.realtime
@pytest.mark.parametrize("design", DESIGNS)
async def test_an_uncompleted_request_expires_once(design: str) -> None:
    """The request expires once, and not before its timeout."""
    async with open_contender(design, 0.05) as contender:
        contender.turn(monotonic())
        for key in range(10):
            request = contender.make()
            request.ready = False
            contender.park(request, (key,))
        assert contender.expired() == 0

        await turn_for(contender.turn, 0.2)

        assert contender.expired() == 10


@pytest.mark.realtime
@pytest.mark.parametrize("design", DESIGNS)
async def test_a_completed_request_does_not_expire(design: str) -> None:
    """A request completed by a check of its key or by force does not expire."""
    async with open_contender(design, 0.05) as contender:
        contender.turn(monotonic())
        checked, forced = contender.make(), contender.make()
        checked.ready = forced.ready = False
        contender.park(checked, (1, 2, 3))
        contender.park(forced, (1, 4))

        contender.check(1)
        checked.ready = True
        contender.check(2)
        contender.force(forced)
        await turn_for(contender.turn, 0.2)

        assert contender.expired() == 0
