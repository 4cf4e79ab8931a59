"""The history: one point per second, and the sum over processes."""

import asyncio
import gc
import weakref

import pytest

from aiowheel import ManualTimer, Purgatory
from aiowheel.dashboard._history import SECONDS, History, summed
from aiowheel.dashboard._waiting import Json

from .conftest import Unmet

pytestmark = [pytest.mark.one_build, pytest.mark.virtual_time]


def filled() -> tuple[ManualTimer, Purgatory, History]:
    """Return a history of a timer and its purgatory."""
    timer = ManualTimer()
    purgatory = Purgatory("p", timer=timer)
    return timer, purgatory, History(timer, {"p": purgatory}, {})


async def test_a_point_counts_one_second() -> None:
    """Running counts appear as increments since the last point, pending ones as they are."""
    timer, purgatory, history = filled()
    for timeout in (1, 2, 90):
        purgatory.try_complete_else_watch(Unmet(timeout), ["x"])
    history.take(1)
    timer.advance(1.5)
    history.take(2)
    timer.advance(0.1)
    history.take(3)

    first, second, third = history.last()
    assert [point["second"] for point in (first, second, third)] == [1, 2, 3]
    assert [point["pending"] for point in (first, second, third)] == [3, 2, 2]
    assert [point["fired"] for point in (first, second, third)] == [0, 1, 0]
    assert [point["purgatories"]["p"]["expired"] for point in (first, second, third)] == [0, 1, 0]
    assert sum(count for _, count in second["late"]) == 1
    assert third["late"] == []


async def test_durations_of_completed_operations_are_in_their_second() -> None:
    """The edge of a histogram's bucket is at most a sixteenth above the duration."""
    timer, purgatory, history = filled()
    purgatory.try_complete_else_watch(first := Unmet(9), ["x"])
    timer.advance(2)
    first.force_complete()
    history.take(1)
    history.take(2)

    before, after = history.last()
    ((edge, count),) = before["purgatories"]["p"]["took"]
    assert 2 <= edge <= 2.13
    assert count == 1
    assert after["purgatories"]["p"]["took"] == []


async def test_points_are_taken_at_full_seconds_and_bounded() -> None:
    """They are taken while the timer is open and the history is referenced."""
    timer, _, history = filled()
    history.start()
    history.start()
    await asyncio.sleep(2 * SECONDS)

    seconds = [point["second"] for point in history.last()]
    assert seconds == list(range(seconds[0], seconds[0] + SECONDS))
    assert seconds[-1] in {int(asyncio.get_running_loop().time()) - more for more in (1, 2)}
    await timer.aclose()
    await asyncio.sleep(60)
    assert [point["second"] for point in history.last()] == seconds


async def test_a_history_that_is_dropped_ends() -> None:
    """The loop holds only a weak reference to it."""
    _, _, history = filled()
    history.start()
    gone = weakref.ref(history)
    del history
    gc.collect()

    assert gone() is None
    await asyncio.sleep(3)


def point(second: int, fired: int, **purgatories: Json) -> Json:
    """Return a point of one process."""
    counts = {"pending": 1, "fired": fired, "cancelled": 0, "wakeups": 2, "cascaded": 0}
    return {"second": second, **counts, "late": [[0.5, fired]], "purgatories": purgatories}


def ends(completed: int) -> Json:
    """Return the part of a point on one purgatory."""
    rest = {"expired": 0, "cancelled": 0, "failed": 0}
    return {"pending": 1, "completed": completed, **rest, "took": [[0.1, completed], [2.0, 1]]}


async def test_points_of_processes_are_added() -> None:
    """Counts, histograms and purgatories of the same name are added; the points are not changed."""
    one, other = point(7, 3, a=ends(1)), point(7, 4, a=ends(2), b=ends(5))
    total = summed([one, other])

    assert (total["second"], total["pending"], total["fired"], total["wakeups"]) == (7, 2, 7, 4)
    assert total["late"] == [(0.5, 7)]
    assert total["purgatories"]["a"]["completed"] == 3
    assert total["purgatories"]["a"]["took"] == [(0.1, 3), (2.0, 2)]
    assert total["purgatories"]["b"] == ends(5)
    assert one == point(7, 3, a=ends(1))
