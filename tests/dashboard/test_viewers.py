"""Viewers that share one series of snapshots; without a viewer there are none."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator

import pytest

from aiowheel.dashboard._viewers import SECONDS, Viewers
from aiowheel.errors import TimerClosedError

pytestmark = [pytest.mark.one_build, pytest.mark.virtual_time]


class Snapshots:
    """Counts the snapshots and the discards."""

    def __init__(self) -> None:
        self.taken = 0
        self.discards = 0

    def __call__(self) -> bytes:
        """Take a snapshot."""
        self.taken += 1
        return b"%d" % self.taken

    def discard(self) -> None:
        """Count a discard."""
        self.discards += 1


async def test_no_snapshot_is_taken_without_a_viewer() -> None:
    """Neither before the first viewer nor after the last one."""
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


async def test_all_viewers_share_the_snapshots() -> None:
    """Ten viewers cause no more snapshots than one."""
    snapshots = Snapshots()
    viewers = Viewers(snapshots, snapshots.discard)

    async def watch(stream: AsyncGenerator[bytes, None]) -> list[bytes]:
        async with contextlib.aclosing(stream):
            return [await anext(stream) for _ in range(8)]

    seen = await asyncio.gather(*(watch(viewers.snapshots()) for _ in range(10)))

    assert snapshots.taken == 8
    assert seen == [[b"%d" % n for n in range(1, 9)]] * 10


async def test_a_slow_viewer_misses_snapshots() -> None:
    """It gets the latest one, and does not delay the others."""
    viewers = Viewers(snapshots := Snapshots(), snapshots.discard)

    async with contextlib.aclosing(viewers.snapshots()) as seen:
        assert await anext(seen) == b"1"
        await asyncio.sleep(10.5 * SECONDS)
        assert await anext(seen) == b"11"


async def test_closing_ends_every_stream() -> None:
    """Open streams end, and later streams end at once."""
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
    """A snapshot then raises an error."""

    def snapshot() -> bytes:
        raise TimerClosedError("closed")

    assert [each async for each in Viewers(snapshot, Snapshots().discard).snapshots()] == []
