"""One sampling for everybody who snapshots, and none while nobody does."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator

import pytest

from aiowheel.dashboard._viewers import SECONDS, Viewers
from aiowheel.errors import TimerClosedError

pytestmark = [pytest.mark.one_build, pytest.mark.virtual_time]


class Snapshots:
    """Counts the snapshots taken, and the discards."""

    def __init__(self) -> None:
        self.taken = 0
        self.discards = 0

    def __call__(self) -> bytes:
        """Take one."""
        self.taken += 1
        return b"%d" % self.taken

    def discard(self) -> None:
        """Rest."""
        self.discards += 1


async def test_no_look_is_taken_without_a_viewer() -> None:
    """Neither before the first came nor after the last has left."""
    snapshots = Snapshots()
    viewers = Viewers(snapshots, snapshots.discard)
    await asyncio.sleep(10)
    assert snapshots.taken == 0

    async with contextlib.aclosing(viewers.snapshots()) as seen:
        assert await anext(seen) == b"1"
    await asyncio.sleep(10)

    assert snapshots.taken == 1
    assert snapshots.discards == 1
    assert len(viewers) == 0


async def test_all_viewers_share_the_looks() -> None:
    """Ten of them cost what one does."""
    snapshots = Snapshots()
    viewers = Viewers(snapshots, snapshots.discard)

    async def watch(stream: AsyncGenerator[bytes, None]) -> list[bytes]:
        async with contextlib.aclosing(stream):
            return [await anext(stream) for _ in range(8)]

    seen = await asyncio.gather(*(watch(viewers.snapshots()) for _ in range(10)))

    assert snapshots.taken == 8
    assert seen == [[b"%d" % n for n in range(1, 9)]] * 10


async def test_a_slow_viewer_skips() -> None:
    """It gets the latest snapshot, and the others wait for nobody."""
    viewers = Viewers(snapshots := Snapshots(), snapshots.discard)

    async with contextlib.aclosing(viewers.snapshots()) as seen:
        assert await anext(seen) == b"1"
        await asyncio.sleep(10.5 * SECONDS)
        assert await anext(seen) == b"11"


async def test_closing_ends_every_stream() -> None:
    """Those that wait and those that come."""
    viewers = Viewers(snapshots := Snapshots(), snapshots.discard)

    async def watch() -> int:
        return len([snapshot async for snapshot in viewers.snapshots()])

    watching = [asyncio.create_task(watch()) for _ in range(3)]
    await asyncio.sleep(2.5 * SECONDS)
    viewers.close()
    viewers.close()

    assert await asyncio.gather(*watching) == [3, 3, 3]
    assert await watch() == 0


async def test_a_closed_timer_ends_every_stream() -> None:
    """There is nothing left to snapshot at."""

    def snapshot() -> bytes:
        raise TimerClosedError("closed")

    assert [each async for each in Viewers(snapshot, Snapshots().discard).snapshots()] == []
