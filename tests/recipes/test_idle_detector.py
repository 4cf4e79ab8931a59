"""A detector finds the keys without a touch for more than the timeout."""

import asyncio
import copy
import gc
import pickle
import random
import re
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
from tests._keys import HookedKey, RenamedKey


def test_a_silent_key_is_idle_once_and_forgotten() -> None:
    """The key falls idle a nanosecond after the timeout, and no sooner."""
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
    """A key is idle only if more than the timeout has passed, with any tick."""
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
def test_a_touch_after_the_timeout_reports_the_key_and_watches_it_again(tick: float) -> None:
    """The touch comes after the timeout, but before the tick in which the timer fires has ended."""
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
    """The late touch counts, whether `on_idle` touches the key, discards it or raises."""
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


def test_a_late_touch_counts_from_the_end_of_a_slow_on_idle() -> None:
    """The touch comes after `on_idle`, so it never shortens a touch that `on_idle` made."""
    timer = ManualTimer(tick=1.0)

    def be_slow(key: str) -> None:
        timer.advance(1)
        detector.touch(key)

    detector = IdleDetector(2.5, be_slow, timer=timer)
    detector.touch("a")
    timer.advance(2.75)  # "a" is idle since 2.5 s, and the timer fires at 3 s
    detector.touch("a")

    assert timer.time() == 3.75
    assert detector.expires("a") == 3.75 + 2.5


def test_touches_refile_a_key_once_for_each_bucket() -> None:
    """A thousand touches of one key do not move its entry to another bucket."""
    timer = ManualTimer()
    detector = IdleDetector[str](30, lambda _: None, timer=timer)
    for _ in range(1000):
        detector.touch("a")
        timer.advance(0.01)

    assert timer.statistics().cascaded <= 2
    assert timer.statistics().rescheduled == 999
    assert len(timer) == 1


def test_a_discarded_key_is_never_idle() -> None:
    """`discard` returns whether the key was watched."""
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
    """The idle key is watched again, another key is discarded, and the others fall idle."""
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
    """A detector on a manual timer and a replay report the same keys at the same times."""
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


@pytest.mark.parametrize("timeout", [0, -1, 3e9, float("inf"), timedelta(0)])
def test_a_timeout_out_of_range_is_refused(timeout: Delay) -> None:
    """A timeout must be more than 0, and at most 73 years."""
    text = "timeout must be from 1e-9 to 2.3e9 seconds, which are 73 years, got "
    with pytest.raises(ValueError, match=text + re.escape(repr(timeout))):
        IdleDetector[str](timeout, lambda _: None, timer=ManualTimer())


async def coroutine_function(key: str) -> None:
    """Do nothing; `on_idle` must not be a coroutine function."""


class AsyncCallable:
    """An object whose call is a coroutine function."""

    async def __call__(self, key: str) -> None:
        """Do nothing."""


@pytest.mark.parametrize("on_idle", [None, "close"])
def test_an_on_idle_that_is_not_callable_is_refused(on_idle: Any) -> None:
    """The constructor raises, not the timer when the first key falls idle."""
    with pytest.raises(TypeError, match=r"^on_idle must be a plain function, got "):
        IdleDetector[str](30, on_idle, timer=ManualTimer())


@pytest.mark.parametrize(
    "on_idle", [coroutine_function, partial(coroutine_function), AsyncCallable()]
)
def test_a_coroutine_function_is_refused_with_advice(on_idle: Any) -> None:
    """The error advises to start a task."""
    with pytest.raises(TypeError, match=r"^on_idle must be a plain function, .*create_task"):
        IdleDetector[str](30, on_idle, timer=ManualTimer())


def test_a_class_whose_instances_are_awaited_is_a_plain_function() -> None:
    """A call of the class returns no coroutine; starlette's responses are such classes."""

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
    """The coroutine is closed, which avoids a warning, and the timer reports a TypeError."""
    timer = ManualTimer()
    made: list[Coroutine[object, object, None]] = []

    def on_idle(key: str) -> object:
        made.append(coroutine_function(key))
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
    """An application can await in a task for an idle key."""
    timer = ManualTimer()
    started: list[asyncio.Task[None]] = []

    def on_idle(key: str) -> object:
        started.append(asyncio.create_task(coroutine_function(key)))
        return started[0]

    detector = IdleDetector(30, on_idle, timer=timer)
    detector.touch("a")

    assert timer.advance(31) == 1
    await started[0]


REQUEST: ContextVar[str] = ContextVar("REQUEST", default="none")


def test_on_idle_runs_in_the_context_of_the_constructor() -> None:
    """The context is not that of the touch or of the timer, also at late touches."""
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
    """The error has the name of the argument."""
    with pytest.raises(TypeError, match=r"^timer must be a Timer or None, got "):
        IdleDetector[str](30, lambda _: None, timer=timer)


def test_an_empty_detector_is_true() -> None:
    """`detector or default` keeps the detector."""
    detector = IdleDetector[str](30, lambda _: None, timer=ManualTimer())

    assert (len(detector), bool(detector)) == (0, True)


async def in_a_thread(call: Callable[[], object]) -> object:
    """Return the error that *call* raises in another thread."""

    def work() -> object:
        try:
            return call()
        except Exception as error:
            return error

    return await asyncio.to_thread(work)


@pytest.mark.parametrize("shared", [False, True])
async def test_no_call_from_another_thread_changes_anything(shared: bool) -> None:  # noqa: FBT001
    """`touch`, `discard` and `aclose` raise; keys and counts are unchanged."""
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
    """A call from the loop's thread also raises if the loop does not run."""
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

    assert not detector.discard("a")  # the timer was closed with the loop, and dropped the key


def test_iteration_gives_the_keys_of_that_moment() -> None:
    """The detector may change during the iteration."""
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
    """The time is the last touch plus the timeout, on the timer's clock; None for other keys."""
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
    """Its deadlines leave the timer, which still runs; a second close does nothing."""
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
    timer.call_later(1, lambda: idle.append("the timer runs"))
    timer.advance(60)
    assert idle == ["the timer runs"]


async def test_a_detector_is_closed_with_its_block() -> None:
    """The detector is also closed if the block raises, or if the timer was closed in it."""
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


def test_a_late_touch_is_refused_if_on_idle_closes_the_detector() -> None:
    """The touch calls `on_idle`, which closes the detector; no deadline is armed."""
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


class WithoutSuperInit(IdleDetector[str]):
    """A subclass that does not call `super().__init__()`."""

    def __init__(self) -> None:
        """Do not call `super().__init__()`."""


def test_a_subclass_without_super_init_raises_a_clear_error() -> None:
    """Every call raises an error with the class and the missing call."""
    detector = WithoutSuperInit()
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
            RuntimeError, match=r"^WithoutSuperInit.__init__ must call super\(\).__init__\(\)$"
        ):
            call()


def test_a_key_must_be_hashable() -> None:
    """The call raises before a deadline is armed."""
    timer = ManualTimer()
    detector = IdleDetector[object](30, lambda _: None, timer=timer)

    calls: list[Callable[[object], object]] = [
        detector.touch,
        detector.discard,
        detector.expires,
        detector.__contains__,
    ]
    for call in calls:
        with pytest.raises(TypeError, match=r"^key must be hashable, got \[\]$"):
            call([])

    assert (len(timer), len(detector)) == (0, 0)


class UnstableKey:
    """A key that can no longer be hashed once it is broken."""

    broken = False

    def __hash__(self) -> int:
        if self.broken:
            raise ValueError("not to be hashed")
        return 1


LOOK_UPS = 2  # `touch` looks for the alarm of a new key, and then adds one


@pytest.mark.parametrize("look_ups", range(LOOK_UPS))
def test_the_hash_of_a_key_may_touch_the_key(look_ups: int) -> None:
    """Both touches share one deadline."""
    timer = ManualTimer()
    idle: list[object] = []
    detector = IdleDetector(30, idle.append, timer=timer)
    key = HookedKey()
    key.after = look_ups
    key.hook = partial(detector.touch, key)

    detector.touch(key)

    assert key.hook is None
    assert (len(detector), len(timer)) == (1, 1)
    timer.advance(31)
    assert (idle, len(timer)) == ([key], 0)


@pytest.mark.parametrize("look_ups", range(LOOK_UPS))
def test_an_interrupted_hash_of_a_key_leaves_no_deadline(look_ups: int) -> None:
    """A key whose touch raises does not fall idle."""
    timer = ManualTimer()
    detector = IdleDetector[HookedKey](30, print, timer=timer)
    key = HookedKey()
    key.after = look_ups

    def interrupt() -> None:
        raise KeyboardInterrupt

    key.hook = interrupt
    with pytest.raises(KeyboardInterrupt):
        detector.touch(key)

    assert (len(detector), len(timer)) == (0, 0)


async def test_a_touch_that_cannot_be_armed_watches_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A later touch watches the key."""
    loop = asyncio.get_running_loop()
    call_at = loop.call_at

    def fail(*_: object, **__: object) -> None:
        raise MemoryError

    def call_through(*args: Any, **options: Any) -> Any:
        return armed(*args, **options)

    armed: Callable[..., Any] = fail
    monkeypatch.setattr(loop, "call_at", call_through)
    async with Timer() as timer:
        detector = IdleDetector[str](60, pytest.fail, timer=timer)
        with pytest.raises(MemoryError):
            detector.touch("a")
        assert (len(detector), len(timer)) == (0, 0)
        armed = call_at

        detector.touch("a")

        assert (len(detector), len(timer)) == (1, 1)


def test_a_key_that_lost_its_hash_falls_idle_once() -> None:
    """The key falls idle once, and a later touch with its hash restored watches it again."""
    timer = ManualTimer()
    idle: list[object] = []
    detector = IdleDetector(30, idle.append, timer=timer)
    key = UnstableKey()
    detector.touch(key)
    key.broken = True
    timer.advance(31)
    assert (idle, len(timer)) == ([key], 0)

    key.broken = False
    detector.touch(key)

    assert (idle, len(timer)) == ([key], 1)
    timer.advance(31)
    assert (idle, len(timer), len(detector)) == ([key, key], 0, 0)


def test_a_key_that_has_become_another_one_leaves_it_its_alarm() -> None:
    """The other key is still watched, by one alarm."""
    timer = ManualTimer()
    idle: list[str] = []
    detector = IdleDetector[RenamedKey](30, lambda key: idle.append(key.name), timer=timer)
    key = RenamedKey("a")
    detector.touch(key)
    timer.advance(20)
    detector.touch(RenamedKey("b"))
    key.name = "b"
    timer.advance(20)
    assert idle == ["b"]

    detector.touch(RenamedKey("b"))

    assert len(timer) == 1
    timer.advance(20)
    assert idle == ["b"]


async def test_a_key_that_lost_its_hash_does_not_block_closing() -> None:
    """A task that sleeps on the same timer gets `TimerClosedError`."""
    timer = ManualTimer()
    detector = IdleDetector(30, print, timer=timer)
    key = UnstableKey()
    detector.touch(key)
    key.broken = True
    sleeper: asyncio.Future[None] = asyncio.ensure_future(timer.sleep(60))
    await asyncio.sleep(0)

    await timer.aclose()

    with pytest.raises(TimerClosedError):
        await sleeper


async def test_closing_the_timer_empties_the_detector() -> None:
    """The detector drops its keys, and a later touch raises."""
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
    """The detector has no reference to discarded or idle keys; here to a thousand of them."""

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
    """The reference ends with the detector; a compiled generic class crashed before Python 3.12."""
    detector: IdleDetector[str] = IdleDetector(1, lambda _: None, timer=ManualTimer())
    reference = weakref.ref(detector)

    del detector

    assert reference() is None


@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy, pickle.dumps])
def test_a_detector_cannot_be_copied(duplicate: Callable[[object], object]) -> None:
    """A copy would share the deadlines of the original."""
    detector: IdleDetector[str] = IdleDetector(1, print, timer=ManualTimer())

    with pytest.raises(TypeError, match="IdleDetector cannot be copied or pickled"):
        duplicate(detector)


class Incomparable:
    """A hashable key whose comparison raises a TypeError of its own."""

    def __hash__(self) -> int:
        return 1

    def __eq__(self, other: object) -> bool:
        raise TypeError("not to be compared")


def test_a_type_error_of_the_comparison_of_keys_is_raised() -> None:
    """It is not taken for a key without a hash, and nothing changes."""
    timer = ManualTimer()
    detector = IdleDetector[object](30, lambda _: None, timer=timer)
    detector.touch(Incomparable())
    for call in (detector.touch, detector.discard, detector.expires, detector.__contains__):
        with pytest.raises(TypeError, match=r"^not to be compared$"):
            call(Incomparable())

    assert (len(timer), len(detector)) == (1, 1)


def test_a_key_must_be_hashable_although_others_are_watched() -> None:
    """The error names the argument, also for a dict that computes the hash."""
    timer = ManualTimer()
    detector = IdleDetector[object](30, lambda _: None, timer=timer)
    detector.touch("a")
    for call in (detector.touch, detector.discard, detector.expires, detector.__contains__):
        with pytest.raises(TypeError, match=r"^key must be hashable, got \[\]$"):
            call([])
    assert (len(timer), len(detector)) == (1, 1)


@pytest.mark.parametrize("tick", [0.001, 1.0])
def test_a_touch_one_nanosecond_after_the_timeout_is_too_late(tick: float) -> None:
    """The key fell idle before it; a touch at the very timeout keeps it alive."""
    timer = ManualTimer(tick=tick)
    idle: list[str] = []
    detector = IdleDetector[str](30, idle.append, timer=timer)
    detector.touch("a")
    timer.advance(30.000_000_001)
    assert idle == []
    detector.touch("a")

    assert (idle, "a" in detector) == (["a"], True)
