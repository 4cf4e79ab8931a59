"""The limits and the heartbeat of one connection, their times, and the cost of a touch."""

import asyncio
import math
import tracemalloc
import weakref
from collections.abc import Callable
from contextvars import Context, ContextVar, copy_context
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiowheel import ForeignLoopError, ManualTimer, Timer, TimerClosedError
from aiowheel.integrations.connections import ConnectionWatch, Heartbeat, Limit


class Notes:
    """The calls of a watch, with their times."""

    def __init__(self, timer: Timer) -> None:
        self.timer = timer
        self.exceeded: list[tuple[int, Limit]] = []

    def __call__(self, limit: Limit) -> None:
        """Record a call of the watch."""
        self.exceeded.append((round(self.timer.time()), limit))


@pytest.fixture
def notes(manual_timer: ManualTimer) -> Notes:
    """The calls of the test's watch."""
    return Notes(manual_timer)


def test_silence_for_more_than_the_limit_is_idle(manual_timer: ManualTimer, notes: Notes) -> None:
    """Silence for exactly the limit is not; the callback is called once."""
    watch = ConnectionWatch(notes, idle=30, timer=manual_timer)

    manual_timer.advance(30)
    assert notes.exceeded == []
    manual_timer.advance(300)

    assert notes.exceeded == [(30, Limit.IDLE)]
    assert watch.exceeded is Limit.IDLE
    assert len(manual_timer) == 0


@pytest.mark.parametrize("tick", [0.001, 1.0])
def test_a_touch_exactly_at_the_limit_is_in_time(tick: float) -> None:
    """This holds for any tick."""
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
    """It differs from the limit of later silences."""
    ConnectionWatch(notes, idle=30, first_byte=5, timer=manual_timer)
    manual_timer.advance(100)

    spoke = ConnectionWatch(notes, idle=30, first_byte=5, timer=manual_timer)
    manual_timer.advance(5)
    spoke.touch()
    manual_timer.advance(100)

    assert notes.exceeded == [(5, Limit.FIRST_BYTE), (135, Limit.IDLE)]


def test_touches_do_not_extend_the_total_limit(manual_timer: ManualTimer, notes: Notes) -> None:
    """It ends a connection that never falls silent."""
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
def test_limits_match_their_definition_for_any_touches(
    touches: list[int], idle: int, first_byte: int | None, total: int
) -> None:
    """For random touches, the expected limit is exceeded at the expected time."""
    times = sorted(touches)
    timer = ManualTimer()
    notes = Notes(timer)
    # Half a second apart from all other times, because two limits at one instant have no order.
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
    """Return the first limit that is exceeded, and its time."""
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
    """Touching or closing it again has no effect, and no timer remains."""
    watch = ConnectionWatch(notes, idle=30, first_byte=5, total=60, timer=manual_timer)

    watch.close()
    watch.touch()
    watch.close()
    manual_timer.advance(100)

    assert notes.exceeded == []
    assert watch.exceeded is None
    assert len(manual_timer) == 0


def test_the_limit_callback_may_touch_the_watch(manual_timer: ManualTimer) -> None:
    """The watch stays closed."""
    calls: list[Limit] = []

    def on_limit(limit: Limit) -> None:
        calls.append(limit)
        watch.touch()

    watch = ConnectionWatch(on_limit, idle=30, first_byte=5, total=60, timer=manual_timer)
    manual_timer.advance(100)

    assert calls == [Limit.FIRST_BYTE]
    assert len(manual_timer) == 0


@pytest.mark.usefixtures("no_gc")
@pytest.mark.parametrize("how", ["closed", "exceeded"])
def test_the_owner_of_a_closed_watch_is_freed_at_once(manual_timer: ManualTimer, how: str) -> None:
    """A closed watch drops its reference to the owner's methods."""

    class Owner:
        def __init__(self) -> None:
            self.watch = ConnectionWatch(self.on_limit, idle=30, total=60, timer=manual_timer)
            self.beat = Heartbeat(self.send, self.send, interval=10, timeout=10, timer=manual_timer)

        def on_limit(self, limit: Limit) -> None: ...

        def send(self) -> None: ...

    owner = Owner()
    reference = weakref.ref(owner)
    if how == "closed":
        owner.watch.close()
        owner.beat.close()
    else:
        manual_timer.advance(100)
    del owner
    assert reference() is None


def test_a_touch_makes_no_timer(manual_timer: ManualTimer, notes: Notes) -> None:
    """100,000 chunks over 1,000 s use one pending timer for all three limits."""
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
    assert len(manual_timer) == 1


def test_a_silence_has_heartbeats_and_then_its_limit(manual_timer: ManualTimer) -> None:
    """A heartbeat follows every 20 s of silence; a touch starts the count again."""
    log: list[tuple[int, str]] = []

    def note(what: str) -> None:
        log.append((round(manual_timer.time()), what))

    watch = ConnectionWatch(
        note, idle=60, heartbeat=20, on_heartbeat=lambda: note("ping"), timer=manual_timer
    )
    manual_timer.advance(20)
    assert log == []  # exactly the interval of the heartbeat
    manual_timer.advance(25)
    watch.touch()
    manual_timer.advance(300)

    pings = [(time, "ping") for time in (20, 40, 65, 85)]
    assert log == [*pings, (105, Limit.IDLE)]
    assert watch.exceeded is Limit.IDLE
    assert len(manual_timer) == 0


@given(
    touches=st.lists(st.integers(0, 60), max_size=30),
    idle=st.none() | st.integers(3, 20),
    first_byte=st.none() | st.integers(1, 20),
    total=st.integers(1, 100),
    beat=st.integers(1, 2),
    tick=st.sampled_from([0.001, 0.25]),
)
def test_limits_and_heartbeats_share_one_pending_timer(
    touches: list[int],
    idle: int | None,
    first_byte: int | None,
    total: int,
    beat: int,
    tick: float,
) -> None:
    """For random touches, pings and limit come at the expected times."""
    times = sorted(touches)
    timer = ManualTimer(tick=tick)
    log: list[tuple[int, str]] = []

    def note(what: str) -> None:
        log.append((round(timer.time() - 0.26), what))  # up to a tick later than the event
        assert len(timer) <= 1

    whole = total + 0.5
    watch = ConnectionWatch(
        note,
        idle=idle,
        first_byte=first_byte,
        total=whole,
        heartbeat=beat,
        on_heartbeat=lambda: note("ping"),
        timer=timer,
    )
    for time in times:
        timer.advance(max(time - timer.time(), 0))
        assert len(timer) == (watch.exceeded is None)
        watch.touch()
    timer.advance(200)

    assert log == pings_by_definition(times, idle, first_byte, whole, beat)
    assert len(timer) == 0


def pings_by_definition(
    touches: list[int], idle: int | None, first_byte: int | None, total: float, beat: int
) -> list[tuple[int, str]]:
    """Return the pings and the limit that ends the connection, with their times."""
    log: list[tuple[int, str]] = []
    far = 10**9
    quiet_since, name = 0, Limit.IDLE if first_byte is None else Limit.FIRST_BYTE
    patience = first_byte or idle or far
    for touch in [*touches, far]:
        end = min(touch, quiet_since + patience, total)
        pings = range(quiet_since + beat, min(quiet_since + patience, touch, 10**3), beat)
        log.extend((ping, "ping") for ping in pings if ping < end)
        if total < min(touch, quiet_since + patience):
            return [*log, (int(total), Limit.TOTAL)]
        if touch > quiet_since + patience:
            return [*log, (quiet_since + patience, name)]
        quiet_since, patience, name = touch, idle or far, Limit.IDLE
    return log


def test_a_heartbeat_without_an_idle_limit_goes_on(manual_timer: ManualTimer, notes: Notes) -> None:
    """A connection through a NAT router needs such heartbeats."""
    pings: list[int] = []
    watch = ConnectionWatch(
        notes,
        heartbeat=timedelta(seconds=20),
        on_heartbeat=lambda: pings.append(round(manual_timer.time())),
        timer=manual_timer,
    )
    manual_timer.advance(110)
    watch.close()
    manual_timer.advance(100)

    assert pings == [20, 40, 60, 80, 100]
    assert (notes.exceeded, len(manual_timer)) == ([], 0)


@pytest.mark.overdue
def test_a_blocked_loop_sends_one_ping_for_all_missed_ones(
    manual_timer: ManualTimer, notes: Notes
) -> None:
    """The clock jumps by five intervals; the next ping is due one interval later."""
    pings: list[int] = []
    ConnectionWatch(
        notes,
        idle=200,
        heartbeat=20,
        on_heartbeat=lambda: pings.append(round(manual_timer.time())),
        timer=manual_timer,
    )
    manual_timer._manual.manual_ns += 105 * 10**9

    manual_timer.advance(0)
    assert pings == [105]
    manual_timer.advance(100)

    assert pings == [105, 125, 145, 165, 185]
    assert notes.exceeded == [(200, Limit.IDLE)]


@pytest.mark.parametrize("how", ["raises", "returns a coroutine"])
def test_a_heartbeat_that_fails_keeps_the_limits(
    manual_timer: ManualTimer, notes: Notes, how: str
) -> None:
    """The error is reported, and the next ping and the limit still come."""
    pings = 0

    async def send() -> None:
        pytest.fail("never awaited, never begun")

    def ping() -> object:
        nonlocal pings
        pings += 1
        if how == "raises":
            raise ZeroDivisionError
        return send()

    ConnectionWatch(notes, idle=60, heartbeat=20, on_heartbeat=ping, timer=manual_timer)

    with pytest.raises(ExceptionGroup) as caught:
        manual_timer.advance(100)

    expected = ZeroDivisionError if how == "raises" else TypeError
    assert [type(error) for error in caught.value.exceptions] == [expected, expected]
    assert (pings, notes.exceeded) == (2, [(60, Limit.IDLE)])


def test_a_heartbeat_may_close_the_watch(manual_timer: ManualTimer, notes: Notes) -> None:
    """No further call follows."""

    def close() -> None:
        watch.close()

    watch = ConnectionWatch(notes, idle=60, heartbeat=20, on_heartbeat=close, timer=manual_timer)
    manual_timer.advance(100)

    assert (notes.exceeded, watch.exceeded, len(manual_timer)) == ([], None, 0)


@pytest.mark.parametrize("value", [0, -1, math.nan, 60, 61, timedelta(minutes=1)])
def test_a_heartbeat_out_of_range_is_refused(manual_timer: ManualTimer, value: float) -> None:
    """It must be above 0 and below the idle limit."""
    with pytest.raises(ValueError, match=r"^heartbeat must "):
        ConnectionWatch(
            print, idle=60, heartbeat=value, on_heartbeat=lambda: None, timer=manual_timer
        )
    assert len(manual_timer) == 0


async def tell() -> None:
    """A coroutine function, where a plain function is required."""


def test_functions_are_checked_at_the_call(manual_timer: ManualTimer) -> None:
    """Errors name the argument; a heartbeat and its function must be given together."""

    def watch(on_limit: Any = print, **arguments: Any) -> None:
        ConnectionWatch(on_limit, **arguments, timer=manual_timer)

    with pytest.raises(TypeError, match=r"^on_limit must be a plain function, got None"):
        watch(None)
    with pytest.raises(TypeError, match=r"^on_limit must be a plain function, .*create_task"):
        watch(tell)
    with pytest.raises(TypeError, match=r"^on_heartbeat must be a plain function, .*create_task"):
        watch(heartbeat=20, on_heartbeat=tell)
    together = r"^heartbeat and on_heartbeat must be given together, got "
    with pytest.raises(TypeError, match=together):
        watch(heartbeat=20)
    with pytest.raises(TypeError, match=together):
        watch(on_heartbeat=print)
    assert len(manual_timer) == 0


USER: ContextVar[str] = ContextVar("USER", default="none")


def test_its_functions_run_in_the_context_of_the_constructor(manual_timer: ManualTimer) -> None:
    """Context variables for logs and traces follow the connection."""
    seen: list[str] = []

    def begin() -> ConnectionWatch:
        USER.set("connection")
        return ConnectionWatch(
            lambda _: seen.append(USER.get()),
            idle=60,
            heartbeat=40,
            on_heartbeat=lambda: seen.append(USER.get()),
            timer=manual_timer,
        )

    watch = copy_context().run(begin)
    manual_timer.advance(1)
    watch.touch()
    manual_timer.advance(100)

    assert seen == ["connection", "connection"]


async def test_a_watch_refuses_another_thread() -> None:
    """Touching and closing it there raise, and change nothing."""
    async with Timer() as timer:
        watch = ConnectionWatch(pytest.fail, idle=60, timer=timer)

        for call in (watch.touch, watch.close):
            with pytest.raises(ForeignLoopError):
                await asyncio.to_thread(call)
        assert len(timer) == 1
        watch.close()
        assert len(timer) == 0


async def test_a_touch_neither_calls_the_loop_nor_keeps_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The loop's timer of the start stays in use."""
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
    assert grown < 1_000  # less than a byte per touch


@pytest.mark.parametrize("limit", ["idle", "first_byte", "total"])
@pytest.mark.parametrize("value", [0, -1, -math.inf, math.nan, timedelta(0)])
def test_a_limit_out_of_range_is_refused(manual_timer: ManualTimer, limit: str, value: Any) -> None:
    """No timer is armed; the error names the limit."""
    with pytest.raises(ValueError, match=f"{limit} must"):
        limits: dict[str, Any] = {limit: value}
        ConnectionWatch(print, **limits, timer=manual_timer)

    assert len(manual_timer) == 0


@pytest.mark.parametrize("value", ["30", True, [1]])
def test_a_limit_is_a_number(manual_timer: ManualTimer, value: Any) -> None:
    """It is a number of seconds, or a timedelta."""
    with pytest.raises(TypeError, match="idle must be a number of seconds"):
        ConnectionWatch(print, idle=value, timer=manual_timer)


def test_a_watch_outlives_its_loop() -> None:
    """The shared timer is closed with the loop; touching and closing the watch still works."""
    exceeded: list[Limit] = []

    async def begin() -> ConnectionWatch:
        return ConnectionWatch(exceeded.append, idle=30, first_byte=30, total=30)

    watch = asyncio.run(begin())
    watch.touch()
    watch.close()

    assert exceeded == []
    assert watch.exceeded is None


async def test_closing_the_timer_ends_its_watches() -> None:
    """Their limits no longer apply, and a new watch raises."""
    async with ManualTimer() as timer:
        notes = Notes(timer)
        watch = ConnectionWatch(notes, idle=30, first_byte=5, total=60, timer=timer)

    watch.touch()
    watch.close()
    with pytest.raises(TimerClosedError):
        ConnectionWatch(notes, idle=30, timer=timer)
    assert notes.exceeded == []


def test_a_watch_may_be_made_in_an_empty_context(manual_timer: ManualTimer) -> None:
    """As by a server on a loop of `asyncio.run`; a test of pytest-asyncio has variables."""
    calls: list[object] = []

    def begin() -> ConnectionWatch:
        return ConnectionWatch(
            calls.append,
            idle=30,
            heartbeat=20,
            on_heartbeat=lambda: calls.append("ping"),
            timer=manual_timer,
        )

    watch = Context().run(begin)
    manual_timer.advance(40)

    assert (calls, watch.exceeded) == (["ping", Limit.IDLE], Limit.IDLE)
