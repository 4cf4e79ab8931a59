"""Which keys have been silent for more than the timeout."""

import asyncio
import gc
import random
import weakref
from datetime import timedelta
from typing import Any

import pytest

from aiowheel import IdleDetector, ManualTimer, TimerClosedError
from aiowheel.recipes._idle_trace import idle_events


def test_a_silent_key_is_idle_once_and_forgotten() -> None:
    """A nanosecond after the timeout: more than it, and no sooner."""
    timer = ManualTimer(tick=0.000_001)
    idle: list[str] = []
    detector = IdleDetector(30, idle.append, timer=timer)
    detector.touch("a")
    assert ("a" in detector, len(detector)) == (True, 1)

    timer.advance(30)
    assert idle == []
    timer.advance(0.000_001)

    assert idle == ["a"]
    assert ("a" in detector, len(detector)) == (False, 0)
    timer.advance(3600)
    assert idle == ["a"]


@pytest.mark.parametrize("tick", [0.001, 1.0])
def test_a_touch_at_the_very_timeout_keeps_the_key_alive(tick: float) -> None:
    """Idle means silent for more than the timeout, whatever the tick."""
    timer = ManualTimer(tick=tick)
    idle: list[str] = []
    detector = IdleDetector(30, idle.append, timer=timer)
    detector.touch("a")
    for _ in range(10):
        timer.advance(30)
        detector.touch("a")

    assert idle == []
    timer.advance(30 + tick)
    assert idle == ["a"]


@pytest.mark.parametrize("tick", [0.001, 1.0])
def test_a_touch_that_overtakes_a_late_timer_is_a_new_beginning(tick: float) -> None:
    """The key was silent for more than the timeout, though the tick it is due at is not over."""
    timer = ManualTimer(tick=tick)
    idle: list[str] = []
    detector = IdleDetector(30, idle.append, timer=timer)
    detector.touch("a")
    timer.advance(30 + tick / 2)
    assert idle == []

    detector.touch("a")

    assert (idle, "a" in detector) == (["a"], True)
    timer.advance(30)
    assert idle == ["a"]
    timer.advance(tick)
    assert idle == ["a", "a"]
    assert (timer.statistics().fired, timer.statistics().cancelled, len(timer)) == (2, 0, 0)


def test_on_idle_may_do_anything_to_a_key_that_is_touched_too_late() -> None:
    """Touch it, discard it or raise: the touch counts all the same."""
    timer = ManualTimer(tick=1.0)
    idle: list[str] = []

    def on_idle(key: str) -> None:
        idle.append(key)
        if key == "touches":
            detector.touch(key)
        elif key == "discards":
            assert not detector.discard(key)
        else:
            raise ValueError(key)

    detector = IdleDetector(30, on_idle, timer=timer)
    keys = ["touches", "discards", "raises"]
    for key in keys:
        detector.touch(key)
    timer.advance(30.5)
    for key in keys:
        detector.touch(key)

    assert (idle, len(detector), len(timer)) == (keys, 3, 3)
    with pytest.raises(ExceptionGroup, match="timer callbacks failed"):
        timer.advance(30)
    assert idle == keys


def test_a_touch_costs_no_refiling_but_one_a_bucket() -> None:
    """A thousand messages from one client move nothing from bucket to bucket."""
    timer = ManualTimer()
    detector = IdleDetector[str](30, lambda _: None, timer=timer)
    for _ in range(1000):
        detector.touch("a")
        timer.advance(0.01)

    assert timer.statistics().cascaded <= 2
    assert timer.statistics().rescheduled == 999
    assert len(timer) == 1


def test_a_discarded_key_is_never_idle() -> None:
    """True if it was watched."""
    timer = ManualTimer()
    idle: list[str] = []
    detector = IdleDetector(30, idle.append, timer=timer)
    detector.touch("a")

    assert detector.discard("a")
    assert not detector.discard("a")
    assert not detector.discard("b")
    assert timer.advance(60) == 0

    assert idle == []
    assert timer.statistics().cancelled == 1


def test_on_idle_may_touch_discard_and_raise() -> None:
    """The key that fell idle begins anew, its neighbour goes, and the others are told."""
    timer = ManualTimer()
    idle: list[str] = []

    def on_idle(key: str) -> None:
        idle.append(key)
        if idle == ["again"]:
            detector.touch("again")
            detector.discard("neighbour")
            raise ValueError(key)

    detector = IdleDetector(30, on_idle, timer=timer)
    for key in ("again", "neighbour", "other"):
        detector.touch(key)

    with pytest.raises(ExceptionGroup, match="timer callbacks failed"):
        timer.advance(31)
    assert idle == ["again", "other"]
    assert len(detector) == 1
    timer.advance(31)

    assert idle == ["again", "other", "again"]


def test_it_agrees_with_the_replay_of_a_recorded_trace() -> None:
    """Live on a clock turned by hand and replayed: the same keys at the same times."""
    rng = random.Random(4)
    rows = sorted((rng.randrange(2000), f"client-{rng.randrange(20)}") for _ in range(500))
    timer = ManualTimer(tick=0.001)
    live: list[tuple[int, str]] = []
    detector = IdleDetector[str](30, lambda key: live.append((int(timer.time()), key)), timer=timer)

    for time, key in rows:
        timer.advance(time - timer.time())
        detector.touch(key)
    timer.advance(60)

    assert sorted(live) == list(idle_events(rows, 30))


@pytest.mark.parametrize("timeout", [0, -1, float("inf"), timedelta(0)])
def test_a_timeout_out_of_range_is_refused(timeout: object) -> None:
    """It must end."""
    with pytest.raises(ValueError, match="timeout must be more than 0 and finite"):
        IdleDetector[str](timeout, lambda _: None, timer=ManualTimer())


async def tell(key: str) -> None:
    """What nobody would await."""


@pytest.mark.parametrize("on_idle", [None, "close", tell])
def test_what_cannot_be_called_when_a_key_is_idle_is_refused(on_idle: Any) -> None:
    """At once, and not a timeout later; a coroutine function would do nothing at all."""
    with pytest.raises(TypeError, match="on_idle must be a plain callable, got "):
        IdleDetector[str](30, on_idle, timer=ManualTimer())


def test_a_key_must_be_hashable() -> None:
    """Refused before anything is armed."""
    timer = ManualTimer()
    detector = IdleDetector[object](30, lambda _: None, timer=timer)

    with pytest.raises(TypeError, match="unhashable"):
        detector.touch([])

    assert (len(timer), len(detector)) == (0, 0)


class Fickle:
    """A key that has no hash any more once it is spoilt."""

    spoilt = False

    def __hash__(self) -> int:
        if self.spoilt:
            raise ValueError("not to be hashed")
        return 1


def test_a_key_that_lost_its_hash_upsets_no_count() -> None:
    """It falls idle once, and a touch when it has its hash again begins anew."""
    timer = ManualTimer()
    idle: list[object] = []
    detector = IdleDetector(30, idle.append, timer=timer)
    key = Fickle()
    detector.touch(key)
    key.spoilt = True
    timer.advance(31)
    assert (idle, len(timer)) == ([key], 0)

    key.spoilt = False
    detector.touch(key)

    assert (idle, len(timer)) == ([key], 1)
    timer.advance(31)
    assert (idle, len(timer), len(detector)) == ([key, key], 0, 0)


async def test_a_key_that_lost_its_hash_holds_up_no_closing() -> None:
    """Who sleeps on the same timer hears of its end."""
    timer = ManualTimer()
    detector = IdleDetector(30, print, timer=timer)
    key = Fickle()
    detector.touch(key)
    key.spoilt = True
    sleeper: asyncio.Future[None] = asyncio.ensure_future(timer.sleep(60))
    await asyncio.sleep(0)

    await timer.aclose()

    with pytest.raises(TimerClosedError):
        await sleeper


async def test_closing_the_timer_empties_the_detector() -> None:
    """No key is kept that will never be idle; a later touch is refused."""
    idle: list[str] = []
    async with ManualTimer() as timer:
        detector = IdleDetector(30, idle.append, timer=timer)
        for key in "abc":
            detector.touch(key)

    assert len(detector) == 0
    assert "a" not in detector
    with pytest.raises(TimerClosedError, match="closed"):
        detector.touch("a")
    assert idle == []


@pytest.mark.parametrize("how", ["discard", "idle"])
def test_a_key_is_dropped_with_its_watch(how: str) -> None:
    """A million distinct keys leave nothing behind; here the count is a thousand."""

    class Client:
        pass

    timer = ManualTimer()
    detector = IdleDetector[Client](30, lambda _: None, timer=timer)
    watched: list[weakref.ref[Client]] = []
    for _ in range(1000):
        client = Client()
        watched.append(weakref.ref(client))
        detector.touch(client)
        if how == "discard":
            detector.discard(client)
        del client
    timer.advance(31)
    gc.collect()

    assert len(detector) == len(timer) == 0
    assert not any(reference() for reference in watched)


def test_a_detector_can_be_weakly_referenced() -> None:
    """The reference dies with it; a compiled generic class would crash here before Python 3.12."""
    detector: IdleDetector[str] = IdleDetector(1, lambda _: None, timer=ManualTimer())
    reference = weakref.ref(detector)

    del detector

    assert reference() is None
