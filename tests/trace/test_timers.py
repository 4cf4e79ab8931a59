"""The deadlines of a timer in the trace."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from aiowheel import ManualTimer, Timer, TimerClosedError
from aiowheel.trace import RecordedTimer, TraceRecorder, read_trace

MS = 1_000_000


def rows_of(folder: Path) -> list[tuple[Any, ...]]:
    """Return kind, outcome, timeout, time to the end and lateness, in ms of the loop's time."""

    def ms(ns: int | None) -> float | None:
        return None if ns is None else ns / MS

    return [
        (
            row["kind"],
            row["outcome"],
            None if row["deadline"] is None else ms(row["deadline"] - row["created"]),
            ms(row["finished"] - row["created"]),
            ms(row["lateness"]),
        )
        for row in read_trace(folder).to_pylist()
    ]


def close(*_: object) -> None:
    """Do nothing; a callback."""


def test_a_callback_leaves_a_row_when_it_ran(tmp_path: Path) -> None:
    """The row has the callback's name, deadline and lateness, and no fields of an operation."""
    timer = ManualTimer(tick=0.01)
    seen: list[int] = []
    with TraceRecorder(tmp_path, clock=timer.time) as recorder:
        handle = RecordedTimer(timer, recorder, "clients").call_later(0.025, seen.append, 7)
        timer.advance(0.1)

    assert seen == [7]
    assert handle.fired()
    (row,) = read_trace(tmp_path).to_pylist()
    assert (row["purgatory"], row["keys"], row["completed_by"]) == ("clients", [], None)
    assert (row["kind"], row["outcome"], row["checks"]) == ("list.append", "expired", 0)
    assert 0 <= row["lateness"] < 10 * MS


def test_a_cancelled_callback_leaves_one_row(tmp_path: Path) -> None:
    """A second cancel returns False and adds no row; the deadline is the last one."""
    timer = ManualTimer()
    with TraceRecorder(tmp_path, clock=timer.time) as recorder:
        recorded = RecordedTimer(timer, recorder)
        handle = recorded.call_later(0.5, close)
        timer.advance(0.25)
        assert handle.touch(0.75)
        timer.advance(0.25)
        assert handle.cancel()
        assert not handle.cancel()
        other = recorded.call_at(timer.time() + 0.5, close, 1, 2)
        assert other.reschedule(timer.time() + 1.0)
        assert other.when() == timer.time() + 1.0
        assert other.cancel()
        recorded.call_later(1.0, close)  # still pending at the end: no row

    assert handle.cancelled()
    assert rows_of(tmp_path) == [
        ("close", "cancelled", 1_000.0, 500.0, None),
        ("close", "cancelled", 1_000.0, 0.0, None),
    ]


def test_a_callback_that_is_not_callable_is_refused(tmp_path: Path) -> None:
    """The call raises, as the timer's own call does."""
    timer = ManualTimer()
    with (
        TraceRecorder(tmp_path) as recorder,
        pytest.raises(TypeError, match="must be a plain function, got None"),
    ):
        RecordedTimer(timer, recorder).call_later(1.0, None)  # type: ignore[arg-type]


@pytest.fixture
def recorder(tmp_path: Path) -> Iterator[TraceRecorder]:
    """Start before the loop: the virtual clock waits in real time for later threads."""
    with TraceRecorder(tmp_path) as recorder:
        yield recorder


@pytest.mark.virtual_time
async def test_sleeps_and_timeouts_leave_rows(recorder: TraceRecorder) -> None:
    """Each row has the outcome."""
    async with Timer(tick=0.001) as timer:
        recorded = RecordedTimer(timer, recorder)
        assert await recorded.sleep(0.25, "slept") == "slept"
        async with recorded.timeout(0.5):
            await recorded.sleep(0.125)
        with pytest.raises(TimeoutError):
            async with recorded.timeout(0.5) as block:
                block.reschedule(timer.time() + 0.25)
                await asyncio.Event().wait()
        async with recorded.timeout_at(None):
            pass
        asleep = asyncio.ensure_future(recorded.sleep(8.0, "slept"))
        await asyncio.sleep(1.0)
        asleep.cancel()
        await asyncio.wait([asleep])
    recorder.close()

    rows = [(kind, outcome, timeout) for kind, outcome, timeout, _, _ in rows_of(recorder.folder)]
    assert rows == [
        ("sleep", "expired", 250.0),
        ("sleep", "expired", 125.0),
        ("timeout", "completed", 500.0),
        ("timeout", "expired", 250.0),
        ("timeout", "completed", None),
        ("sleep", "cancelled", 8_000.0),
    ]


@pytest.mark.virtual_time
async def test_deadlines_of_a_closed_timer_leave_no_rows(recorder: TraceRecorder) -> None:
    """Neither the ones that the close drops nor the ones that the closed timer refuses."""
    async with Timer(tick=0.001) as timer:
        recorded = RecordedTimer(timer, recorder)
        block = recorded.timeout(8.0)
        asleep = asyncio.ensure_future(recorded.sleep(8.0))
        refused_block = recorded.timeout(8.0)
        await block.__aenter__()
        await asyncio.sleep(1.0)
    await block.__aexit__(None, None, None)
    with pytest.raises(TimerClosedError):
        await asleep
    with pytest.raises(TimerClosedError):
        await recorded.sleep(1.0)
    with pytest.raises(TimerClosedError):
        await refused_block.__aenter__()
    recorder.close()

    assert recorder.statistics().recorded == 0


@pytest.mark.virtual_time
async def test_a_timeout_counts_from_its_call(recorder: TraceRecorder) -> None:
    """As for `Timer.timeout`: a wrong argument raises at the call, and the delay begins there."""
    async with Timer(tick=0.001) as timer:
        recorded = RecordedTimer(timer, recorder)
        with pytest.raises(TypeError, match="delay must be"):
            recorded.timeout("5")  # type: ignore[arg-type]
        block = recorded.timeout(0.5)
        await asyncio.sleep(0.25)
        async with block as inner:
            assert inner.when() == timer.time() + 0.25
    recorder.close()

    assert rows_of(recorder.folder) == [("timeout", "completed", 500.0, 250.0, None)]
