"""The limits of one connection: which is exceeded, when, and what a touch costs."""

import asyncio
import gc
import math
import tracemalloc
import weakref
from collections.abc import Callable
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiowheel import ManualTimer, Timer, TimerClosedError
from aiowheel.integrations.connections import ConnectionWatch, Heartbeat, Limit


class Notes:
    """What a watch told, with the time."""

    def __init__(self, timer: Timer) -> None:
        self.timer = timer
        self.exceeded: list[tuple[int, Limit]] = []

    def __call__(self, limit: Limit) -> None:
        """Told by the watch."""
        self.exceeded.append((round(self.timer.time()), limit))


@pytest.fixture
def notes(manual_timer: ManualTimer) -> Notes:
    """Of the test's one watch."""
    return Notes(manual_timer)


def test_silence_for_more_than_the_limit_is_idle(manual_timer: ManualTimer, notes: Notes) -> None:
    """Not for just the limit; and once."""
    watch = ConnectionWatch(notes, idle=30, timer=manual_timer)

    manual_timer.advance(30)
    assert notes.exceeded == []
    manual_timer.advance(300)

    assert notes.exceeded == [(30, Limit.IDLE)]
    assert watch.exceeded is Limit.IDLE
    assert len(manual_timer) == 0


@pytest.mark.parametrize("tick", [0.001, 1.0])
def test_a_touch_at_the_very_limit_keeps_it_alive(tick: float) -> None:
    """Whatever the tick."""
    timer = ManualTimer(tick=tick)
    notes = Notes(timer)
    watch = ConnectionWatch(notes, idle=30, timer=timer)
    for _ in range(10):
        timer.advance(30)
        watch.touch()

    assert notes.exceeded == []
    timer.advance(30 + tick)
    assert [limit for _, limit in notes.exceeded] == [Limit.IDLE]


def test_the_first_byte_has_a_limit_of_its_own(manual_timer: ManualTimer, notes: Notes) -> None:
    """It is another one than that of the silence after it."""
    ConnectionWatch(notes, idle=30, first_byte=5, timer=manual_timer)
    manual_timer.advance(100)

    spoke = ConnectionWatch(notes, idle=30, first_byte=5, timer=manual_timer)
    manual_timer.advance(5)
    spoke.touch()
    manual_timer.advance(100)

    assert notes.exceeded == [(5, Limit.FIRST_BYTE), (135, Limit.IDLE)]


def test_the_total_does_not_care_for_touches(manual_timer: ManualTimer, notes: Notes) -> None:
    """It ends a connection that talks for ever."""
    watch = ConnectionWatch(notes, idle=30, total=timedelta(seconds=100), timer=manual_timer)
    for _ in range(20):
        manual_timer.advance(10)
        watch.touch()

    assert notes.exceeded == [(100, Limit.TOTAL)]
    assert len(manual_timer) == 0


@given(
    touches=st.lists(st.integers(0, 60), max_size=30),
    idle=st.integers(1, 20),
    first_byte=st.none() | st.integers(1, 20),
    total=st.integers(1, 100),
)
def test_it_keeps_its_limits_to_the_letter(
    touches: list[int], idle: int, first_byte: int | None, total: int
) -> None:
    """Whatever is received when: the limit that the definition gives, at its time."""
    times = sorted(touches)
    timer = ManualTimer()
    notes = Notes(timer)
    # Half a second apart from everything else: two limits at one instant have no order.
    whole = total + 0.5
    watch = ConnectionWatch(notes, idle=idle, first_byte=first_byte, total=whole, timer=timer)
    for time in times:
        timer.advance(max(time - timer.time(), 0))
        watch.touch()
    timer.advance(200)

    assert notes.exceeded == [by_definition(times, idle, first_byte, whole)]


def by_definition(
    touches: list[int], idle: int, first_byte: int | None, total: float
) -> tuple[int, Limit]:
    """The first limit that is exceeded, and when."""
    quiet_since, patience, name = 0, first_byte or idle, Limit.FIRST_BYTE
    if first_byte is None:
        name = Limit.IDLE
    for touch in [*touches, 10**9]:
        if touch > quiet_since + patience:
            break
        quiet_since, patience, name = touch, idle, Limit.IDLE
    if total < quiet_since + patience:
        return round(total + 0.001), Limit.TOTAL
    return quiet_since + patience, name


def test_a_closed_watch_is_silent(manual_timer: ManualTimer, notes: Notes) -> None:
    """Touched or closed again it does nothing, and nothing is left in the timer."""
    watch = ConnectionWatch(notes, idle=30, first_byte=5, total=60, timer=manual_timer)

    watch.close()
    watch.touch()
    watch.close()
    manual_timer.advance(100)

    assert notes.exceeded == []
    assert watch.exceeded is None
    assert len(manual_timer) == 0


def test_what_it_calls_may_touch_it(manual_timer: ManualTimer) -> None:
    """It stays closed."""
    calls: list[Limit] = []

    def on_limit(limit: Limit) -> None:
        calls.append(limit)
        watch.touch()

    watch = ConnectionWatch(on_limit, idle=30, first_byte=5, total=60, timer=manual_timer)
    manual_timer.advance(100)

    assert calls == [Limit.FIRST_BYTE]
    assert len(manual_timer) == 0


@pytest.mark.parametrize("how", ["closed", "exceeded"])
def test_what_holds_a_watch_is_freed_with_it(manual_timer: ManualTimer, how: str) -> None:
    """At once: a watch that is over knows its owner no more."""

    class Owner:
        def __init__(self) -> None:
            self.watch = ConnectionWatch(self.on_limit, idle=30, total=60, timer=manual_timer)
            self.beat = Heartbeat(self.send, self.send, interval=10, timeout=10, timer=manual_timer)

        def on_limit(self, limit: Limit) -> None: ...

        def send(self) -> None: ...

    owner = Owner()
    reference = weakref.ref(owner)
    gc.disable()
    try:
        if how == "closed":
            owner.watch.close()
            owner.beat.close()
        else:
            manual_timer.advance(100)
        del owner
        assert reference() is None
    finally:
        gc.enable()


def test_a_touch_makes_no_timer(manual_timer: ManualTimer, notes: Notes) -> None:
    """100,000 chunks over 1,000 s: the one timer is refiled once for each limit that passes."""
    watch = ConnectionWatch(notes, idle=30, first_byte=5, total=1e6, timer=manual_timer)
    watch.touch()
    before = manual_timer.statistics()
    for _ in range(1_000):
        for _ in range(100):
            watch.touch()
        manual_timer.advance(1)
    after = manual_timer.statistics()

    assert after.scheduled == before.scheduled
    assert after.cancelled == before.cancelled
    assert after.rescheduled - before.rescheduled == 100_000
    assert len(manual_timer) == 2


async def test_a_touch_neither_calls_the_loop_nor_keeps_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The loop's timer was set when the watch began, and stays."""
    calls: list[str] = []
    loop = asyncio.get_running_loop()

    def note(name: str) -> Callable[..., None]:
        return lambda *_, **__: calls.append(name)

    async with Timer() as timer:
        watch = ConnectionWatch(lambda _: None, idle=30, timer=timer)
        for name in ("call_at", "call_later", "call_soon", "call_soon_threadsafe"):
            monkeypatch.setattr(loop, name, note(name))
        watch.touch()
        tracemalloc.start()
        try:
            before = tracemalloc.get_traced_memory()[0]
            for _ in range(1_000):
                watch.touch()
            grown = tracemalloc.get_traced_memory()[0] - before
        finally:
            tracemalloc.stop()
        monkeypatch.undo()
        watch.close()

    assert calls == []
    assert grown < 1_000  # a byte a touch: less than any object


@pytest.mark.parametrize("limit", ["idle", "first_byte", "total"])
@pytest.mark.parametrize("value", [0, -1, -math.inf, math.nan, timedelta(0)])
def test_a_limit_out_of_range_is_refused(
    manual_timer: ManualTimer, limit: str, value: object
) -> None:
    """Before anything is armed; the text names the limit."""
    with pytest.raises(ValueError, match=f"{limit} must"):
        ConnectionWatch(print, **{limit: value}, timer=manual_timer)

    assert len(manual_timer) == 0


@pytest.mark.parametrize("value", ["30", True, [1]])
def test_a_limit_is_a_number(manual_timer: ManualTimer, value: object) -> None:
    """Of seconds, or a timedelta."""
    with pytest.raises(TypeError, match="idle must be a number of seconds"):
        ConnectionWatch(print, idle=value, timer=manual_timer)


def test_a_watch_outlives_its_loop() -> None:
    """The shared timer went with the loop; whoever still holds the watch may touch and close it."""
    exceeded: list[Limit] = []

    async def begin() -> ConnectionWatch:
        return ConnectionWatch(exceeded.append, idle=30, first_byte=30, total=30)

    watch = asyncio.run(begin())
    watch.touch()
    watch.close()

    assert exceeded == []
    assert watch.exceeded is None


async def test_a_closed_timer_takes_no_watch_and_drops_the_ones_it_has() -> None:
    """Whoever closes the timer gives the limits up."""
    async with ManualTimer() as timer:
        notes = Notes(timer)
        watch = ConnectionWatch(notes, idle=30, first_byte=5, total=60, timer=timer)

    watch.touch()
    watch.close()
    with pytest.raises(TimerClosedError):
        ConnectionWatch(notes, idle=30, timer=timer)
    assert notes.exceeded == []
