"""Which keys have been silent for more than the timeout."""

import asyncio
import gc
import random
import weakref
from collections.abc import Callable, Coroutine
from contextvars import ContextVar, copy_context
from datetime import timedelta
from functools import partial
from typing import Any

import pytest

from aiowheel import (
    ForeignLoopError,
    IdleDetector,
    IdleDetectorClosedError,
    ManualTimer,
    Timer,
    TimerClosedError,
    current_timer,
)
from aiowheel._types import Delay
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
def test_a_timeout_out_of_range_is_refused(timeout: Delay) -> None:
    """It must end."""
    with pytest.raises(ValueError, match="timeout must be more than 0 and finite"):
        IdleDetector[str](timeout, lambda _: None, timer=ManualTimer())


async def tell(key: str) -> None:
    """A coroutine function, which `on_idle` must not be."""


class Teller:
    """An object whose call is a coroutine function."""

    async def __call__(self, key: str) -> None:
        """Do nothing."""


@pytest.mark.parametrize("on_idle", [None, "close"])
def test_an_on_idle_that_is_not_callable_is_refused(on_idle: Any) -> None:
    """At the call, and not when the first key falls idle."""
    with pytest.raises(TypeError, match=r"^on_idle must be a plain function, got "):
        IdleDetector[str](30, on_idle, timer=ManualTimer())


@pytest.mark.parametrize("on_idle", [tell, partial(tell), Teller()])
def test_a_coroutine_function_is_refused_with_advice(on_idle: Any) -> None:
    """The text says what to do instead: start a task."""
    with pytest.raises(TypeError, match=r"^on_idle must be a plain function, .*create_task"):
        IdleDetector[str](30, on_idle, timer=ManualTimer())


def test_a_class_whose_instances_are_awaited_is_a_plain_function() -> None:
    """Calling the class awaits nothing; starlette's responses are such classes."""

    class Idle:
        def __init__(self, key: str) -> None:
            idle.append(key)

        async def __call__(self) -> None: ...

    idle: list[str] = []
    timer = ManualTimer()
    IdleDetector[str](30, Idle, timer=timer).touch("a")

    timer.advance(31)

    assert idle == ["a"]


def test_a_coroutine_that_a_plain_function_returns_is_reported() -> None:
    """It is closed, which avoids a warning, and the timer reports a TypeError."""
    timer = ManualTimer()
    made: list[Coroutine[object, object, None]] = []

    def on_idle(key: str) -> object:
        made.append(tell(key))
        return made[0]

    detector = IdleDetector(30, on_idle, timer=timer)
    detector.touch("a")

    with pytest.raises(ExceptionGroup) as caught:
        timer.advance(31)
    (error,) = caught.value.exceptions
    assert isinstance(error, TypeError)
    assert str(error).startswith("on_idle must be a plain function, but it returned the coroutine")
    with pytest.raises(RuntimeError, match="cannot reuse already awaited coroutine"):
        made[0].send(None)


async def test_on_idle_may_return_a_task() -> None:
    """Which is how an application awaits something for an idle key."""
    timer = ManualTimer()
    told: list[asyncio.Task[None]] = []

    def on_idle(key: str) -> object:
        told.append(asyncio.create_task(tell(key)))
        return told[0]

    detector = IdleDetector(30, on_idle, timer=timer)
    detector.touch("a")

    assert timer.advance(31) == 1
    await told[0]


REQUEST: ContextVar[str] = ContextVar("REQUEST", default="none")


def test_on_idle_runs_in_the_context_of_the_constructor() -> None:
    """Neither in the context of the touch nor in that of the timer, and on late touches as well."""
    timer = ManualTimer(tick=1.0)
    seen: list[tuple[str, str]] = []

    def on_idle(key: str) -> None:
        seen.append((key, REQUEST.get()))
        REQUEST.set("changed by on_idle")
        if key == "outer":
            detector.touch("inner")  # late: calls `on_idle` inside this call

    made_in = copy_context()
    made_in.run(REQUEST.set, "maker")
    detector = made_in.run(lambda: IdleDetector(30, on_idle, timer=timer))
    made_in.run(REQUEST.set, "changed later")
    touched_in = copy_context()
    touched_in.run(REQUEST.set, "toucher")
    for key in ("outer", "inner"):
        touched_in.run(detector.touch, key)

    timer.advance(30.5)
    touched_in.run(detector.touch, "outer")
    timer.advance(60)

    assert seen == [
        ("outer", "maker"),
        ("inner", "maker"),
        ("inner", "maker"),
        ("outer", "maker"),
    ]
    assert touched_in[REQUEST] == "toucher"


@pytest.mark.parametrize("timer", [3, "timer", asyncio])
def test_a_timer_of_another_type_is_refused(timer: Any) -> None:
    """By name."""
    with pytest.raises(TypeError, match=r"^timer must be a Timer or None, got "):
        IdleDetector[str](30, lambda _: None, timer=timer)


def test_an_empty_detector_is_true() -> None:
    """`detector or default` keeps the detector."""
    detector = IdleDetector[str](30, lambda _: None, timer=ManualTimer())

    assert (len(detector), bool(detector)) == (0, True)


async def in_a_thread(call: Callable[[], object]) -> object:
    """What *call* raises in another thread."""

    def work() -> object:
        try:
            return call()
        except Exception as error:
            return error

    return await asyncio.to_thread(work)


@pytest.mark.parametrize("shared", [False, True])
async def test_no_call_from_another_thread_changes_anything(shared: bool) -> None:  # noqa: FBT001
    """Touching, discarding and closing are refused; keys and counts are as before."""
    async with Timer() as own:
        timer = current_timer() if shared else own
        detector = IdleDetector[str](60, pytest.fail, timer=timer)
        detector.touch("a")
        due = detector.expires("a")

        def close() -> None:
            asyncio.run(detector.aclose())

        calls: list[Callable[[], object]] = [
            lambda: detector.touch("a"),
            lambda: detector.touch("b"),
            lambda: detector.discard("a"),
            lambda: detector.discard("b"),
            close,
        ]
        for call in calls:
            assert isinstance(await in_a_thread(call), ForeignLoopError)

        assert list(detector) == ["a"]
        assert detector.expires("a") == due
        assert len(timer) == 1
        assert timer.statistics().cancelled == 0
        assert detector.discard("a")


def test_a_call_outside_the_running_loop_changes_nothing() -> None:
    """Even from the thread of the loop."""
    with asyncio.Runner() as runner:

        async def begin() -> tuple[Timer, IdleDetector[str]]:
            timer = current_timer()
            detector = IdleDetector[str](60, pytest.fail, timer=timer)
            detector.touch("a")
            await asyncio.sleep(0.001)
            return timer, detector

        timer, detector = runner.run(begin())

        with pytest.raises(ForeignLoopError):
            detector.discard("a")
        assert (list(detector), len(timer)) == (["a"], 1)

    assert not detector.discard("a")  # the timer went with the loop, and the key with it


def test_iteration_gives_the_keys_of_that_moment() -> None:
    """The detector may change meanwhile."""
    timer = ManualTimer()
    detector = IdleDetector[str](30, lambda _: None, timer=timer)
    for key in "abc":
        detector.touch(key)

    seen: list[str] = []
    for key in detector:
        seen.append(key)
        detector.discard(key)
        detector.touch(key.upper())

    assert seen == ["a", "b", "c"]
    assert list(detector) == ["A", "B", "C"]


def test_expires_is_the_time_at_which_a_key_falls_idle() -> None:
    """On the scale of `timer.time()`: the last touch and the timeout; None for other keys."""
    timer = ManualTimer()
    detector = IdleDetector[str](30, lambda _: None, timer=timer)
    timer.advance(5)
    detector.touch("a")
    assert (detector.expires("a"), detector.expires("b")) == (35.0, None)

    timer.advance(10)
    detector.touch("a")
    assert detector.expires("a") == 45.0

    timer.advance(31)
    assert detector.expires("a") is None


async def test_a_closed_detector_calls_nothing_and_refuses_touches() -> None:
    """Its deadlines leave the timer, which goes on; closing again does nothing."""
    idle: list[str] = []
    timer = ManualTimer()
    detector = IdleDetector(30, idle.append, timer=timer)
    for key in "abc":
        detector.touch(key)

    await detector.aclose()
    await detector.aclose()

    assert (len(detector), list(detector), len(timer)) == (0, [], 0)
    assert timer.statistics().cancelled == 3
    with pytest.raises(IdleDetectorClosedError, match="the idle detector has been closed"):
        detector.touch("a")
    assert not detector.discard("a")
    assert detector.expires("a") is None
    timer.call_later(1, lambda: idle.append("the timer goes on"))
    timer.advance(60)
    assert idle == ["the timer goes on"]


async def test_a_detector_is_closed_with_its_block() -> None:
    """Also where the block fails, and where the timer was closed in it."""
    timer = ManualTimer()
    detector = IdleDetector[str](30, pytest.fail, timer=timer)
    with pytest.raises(ZeroDivisionError):
        async with detector as entered:
            assert entered is detector
            detector.touch("a")
            raise ZeroDivisionError
    assert len(timer) == 0
    with pytest.raises(IdleDetectorClosedError):
        detector.touch("a")

    async with IdleDetector[str](30, pytest.fail, timer=timer) as detector:
        detector.touch("a")
        await timer.aclose()
    with pytest.raises(IdleDetectorClosedError):
        detector.touch("a")


def test_a_late_touch_of_a_detector_that_on_idle_closes_is_refused() -> None:
    """The touch calls `on_idle`, which closes; nothing is armed any more."""
    timer = ManualTimer(tick=1.0)

    def on_idle(_: str) -> None:
        with pytest.raises(StopIteration):
            detector.aclose().send(None)

    detector = IdleDetector(30, on_idle, timer=timer)
    detector.touch("a")
    timer.advance(30.5)

    with pytest.raises(IdleDetectorClosedError):
        detector.touch("a")
    assert len(timer) == 0


class Forgetful(IdleDetector[str]):
    """A subclass that does not call `super().__init__()`."""

    def __init__(self) -> None:
        """Forget it."""


def test_a_subclass_that_is_not_initialised_says_so() -> None:
    """Every call names the class and the call that is missing."""
    detector = Forgetful()
    calls: list[Callable[[], object]] = [
        lambda: detector.touch("a"),
        lambda: detector.discard("a"),
        lambda: detector.expires("a"),
        lambda: len(detector),
        lambda: "a" in detector,
        lambda: list(detector),
        lambda: asyncio.run(detector.aclose()),
    ]

    for call in calls:
        with pytest.raises(
            RuntimeError, match=r"^Forgetful.__init__ must call super\(\).__init__\(\)$"
        ):
            call()


def test_a_key_must_be_hashable() -> None:
    """Refused before anything is armed."""
    timer = ManualTimer()
    detector = IdleDetector[object](30, lambda _: None, timer=timer)

    with pytest.raises(TypeError, match="key must be hashable, got"):
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
