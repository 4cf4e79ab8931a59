"""One sampling for everybody who looks, and none while nobody does."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator

import pytest

from aiowheel.dashboard._viewers import SECONDS, Viewers
from aiowheel.errors import TimerClosedError

pytestmark = [pytest.mark.one_build, pytest.mark.virtual_time]


class Looks:
    """Counts the looks taken, and the rests."""

    def __init__(self) -> None:
        self.taken = 0
        self.rests = 0

    def __call__(self) -> bytes:
        """Take one."""
        self.taken += 1
        return b"%d" % self.taken

    def rest(self) -> None:
        """Rest."""
        self.rests += 1


async def test_no_look_is_taken_without_a_viewer() -> None:
    """Neither before the first came nor after the last has left."""
    looks = Looks()
    viewers = Viewers(looks, looks.rest)
    await asyncio.sleep(10)
    assert looks.taken == 0

    async with contextlib.aclosing(viewers.looks()) as seen:
        assert await anext(seen) == b"1"
    await asyncio.sleep(10)

    assert looks.taken == 1
    assert looks.rests == 1
    assert len(viewers) == 0


async def test_all_viewers_share_the_looks() -> None:
    """Ten of them cost what one does."""
    looks = Looks()
    viewers = Viewers(looks, looks.rest)

    async def watch(stream: AsyncGenerator[bytes, None]) -> list[bytes]:
        async with contextlib.aclosing(stream):
            return [await anext(stream) for _ in range(8)]

    seen = await asyncio.gather(*(watch(viewers.looks()) for _ in range(10)))

    assert looks.taken == 8
    assert seen == [[b"%d" % n for n in range(1, 9)]] * 10


async def test_a_slow_viewer_skips() -> None:
    """It gets the latest look, and the others wait for nobody."""
    viewers = Viewers(looks := Looks(), looks.rest)

    async with contextlib.aclosing(viewers.looks()) as seen:
        assert await anext(seen) == b"1"
        await asyncio.sleep(10.5 * SECONDS)
        assert await anext(seen) == b"11"


async def test_closing_ends_every_stream() -> None:
    """Those that wait and those that come."""
    viewers = Viewers(looks := Looks(), looks.rest)

    async def watch() -> int:
        return len([look async for look in viewers.looks()])

    watching = [asyncio.create_task(watch()) for _ in range(3)]
    await asyncio.sleep(2.5 * SECONDS)
    viewers.close()
    viewers.close()

    assert await asyncio.gather(*watching) == [3, 3, 3]
    assert await watch() == 0


async def test_a_closed_timer_ends_every_stream() -> None:
    """There is nothing left to look at."""

    def look() -> bytes:
        raise TimerClosedError("closed")

    assert [each async for each in Viewers(look, Looks().rest).looks()] == []
