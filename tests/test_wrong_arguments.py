"""Wrong arguments of every public call: both builds raise the same text, at the call.

Run as a program, it writes the error of every case to stdout, as JSON.
"""

from __future__ import annotations

import asyncio
import dataclasses
import enum
import functools
import inspect
import json
import math
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager, asynccontextmanager
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple, cast

import pytest
from aiohttp.test_utils import make_mocked_request
from starlette.requests import Request

import aiowheel
from aiowheel import DelayedOperation, IdleDetector, ManualTimer, Purgatory, Timer, TimingWheel
from aiowheel.integrations import aiohttp as for_aiohttp
from aiowheel.integrations import asgi, connections
from aiowheel.testing import MemoryCounters, VirtualClockEventLoop
from aiowheel.trace import RecordedTimer, TraceRecorder

ROOT = Path(__file__).parent.parent


class Odd:
    """An object of a type that no call accepts."""

    def __repr__(self) -> str:
        return "<odd>"


class Gate(DelayedOperation[None]):
    """An operation that never completes by itself."""

    __module__ = "cases"  # the same name in the program and in a test

    def try_complete(self) -> bool:
        """Return False."""
        return False


def do_nothing(*_: object) -> None:
    """Accept any arguments and do nothing."""


async def asynchronous(*_: object) -> bool:
    """Return True; the coroutine object itself is true as well if it is not awaited."""
    return True


async def asynchronous_generator(*_: object) -> AsyncGenerator[int, None]:
    """Yield 1; a call alone runs nothing."""
    yield 1


class Wrong(NamedTuple):
    """A wrong value, and the part of the text that shows it; the default is its `repr`."""

    value: object
    shown: str | None = None


# --- wrong values, by what the argument is -------------------------------------------------------

NOT_A_DELAY = (
    *(True, "1", b"1", math.nan, Decimal("sNaN"), 1j, Odd(), asynchronous, do_nothing, [1]),
)
NO_DELAY = (None, *NOT_A_DELAY)
NO_COUNT = (True, "1", b"1", 1.5, math.nan, math.inf, 1j, Odd(), asynchronous, 2**70, -(2**70), -1)
NO_TICKS = (None, True, "1", b"1", 1.5, math.nan, 1j, Odd(), asynchronous, 2**70, -(2**70))
NOT_CALLABLE = (None, True, 3, "f", b"f", Odd())
NO_CALLBACK = (*NOT_CALLABLE, asynchronous, functools.partial(asynchronous))
NO_CONTEXT: tuple[Any, ...] = (True, 3, "c", {}, Odd(), asynchronous)
NO_TIMER = (True, 3, "timer", Odd(), Timer, asynchronous)
NO_TEXT = (None, True, 3, b"x", Odd(), asynchronous)
NO_KEY: tuple[Any, ...] = ([], {"a": 1}, {1}, ("a", []))
NO_KEYS: tuple[Any, ...] = (
    *(None, True, 3, "k", b"k", Odd(), [], asynchronous),
    *(Wrong([each], repr(each)) for each in NO_KEY),
)
NO_CHOICE: tuple[Any, ...] = (None, True, 3, "no", b"skip", Odd(), [], asynchronous)
NO_SWITCH = (None, 1, 0, "yes", Odd())
NO_OPERATION = (None, True, 3, "o", Odd(), Gate, asynchronous)
NO_INSTRUMENTS = (None, 3, [Odd()], Odd(), asynchronous)
NO_SIGNALS: tuple[Any, ...] = (None, True, 15, "SIGTERM", ["SIGTERM"], [10_000], [[]], Odd())


@dataclasses.dataclass(frozen=True)
class Target:
    """A public call with legal arguments, and wrong values for each of them."""

    name: str
    find: Callable[[Env], Callable[..., object]]
    right: Mapping[str, Callable[[Env], Any]]
    wrong: Mapping[str, Sequence[Any]]


class Env:
    """Objects to call, on a running loop."""

    def __init__(self, timer: Timer, folder: Path) -> None:
        self.timer, self.folder = timer, folder
        self.manual = ManualTimer()
        self.shared = aiowheel.current_timer()
        self.wheel = TimingWheel()
        self.entry = self.wheel.schedule(5)
        self.foreign = TimingWheel()
        self.foreign_entry = self.foreign.schedule(5)
        self.purgatory = Purgatory(timer=timer)
        self.detector = IdleDetector[Any](30, do_nothing, timer=timer)
        self.handle = timer.call_later(60, do_nothing)
        self.periodic = timer.every(60, do_nothing)
        self.block = timer.timeout(60)
        self.move_on = timer.move_on_after(60)

    @functools.cached_property
    def loop(self) -> Any:
        """A wheel loop that does not run."""
        return aiowheel.new_event_loop(uvloop=False)

    @functools.cached_property
    def virtual(self) -> VirtualClockEventLoop:
        """A virtual loop that does not run."""
        return VirtualClockEventLoop()

    @functools.cached_property
    def recorder(self) -> TraceRecorder:
        """An open recorder."""
        return TraceRecorder(self.folder)

    @functools.cached_property
    def recorded(self) -> RecordedTimer:
        """A timer with a recorder."""
        return RecordedTimer(self.timer, self.recorder)

    @functools.cached_property
    def recorded_handle(self) -> Any:
        """A handle of that timer."""
        return self.recorded.call_later(60, do_nothing)

    @functools.cached_property
    def transport(self) -> Any:
        """A transport with a protocol."""
        return _Transport()

    def state(self) -> tuple[object, ...]:
        """Return the counts that a refused call must not change."""
        return (
            *(len(each) for each in (self.timer, self.manual, self.shared, self.wheel)),
            *(len(self.foreign), len(self.purgatory), self.purgatory.watched, len(self.detector)),
            *(self.purgatory.closed, self.purgatory.statistics().keys, self.manual.time()),
            *(self.handle.when(), self.entry.deadline, self.periodic.cancelled()),
        )

    def close(self) -> None:
        """Close the created objects."""
        for name in ("loop", "virtual", "recorder"):
            if name in self.__dict__:
                getattr(self, name).close()


class _Transport(asyncio.Transport):
    def __init__(self) -> None:
        super().__init__()
        self.protocol: asyncio.BaseProtocol = asyncio.Protocol()

    def get_protocol(self) -> asyncio.BaseProtocol:
        return self.protocol

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self.protocol = protocol

    def is_closing(self) -> bool:
        return False

    def abort(self) -> None:
        """Do nothing: no connection is open."""


class _Writer:
    transport = _Transport()

    async def wait_closed(self) -> None:
        """Return: no connection is open."""


def value(it: object) -> Callable[[Env], Any]:
    """Return a function that returns *it*."""
    return lambda _: it


CALL = {"delay": value(1), "callback": value(do_nothing)}
NOT_A_CALL = {"delay": NO_DELAY, "callback": NO_CALLBACK, "context": NO_CONTEXT}
AT = {"when": value(1), "callback": value(do_nothing)}
NOT_AT = {"when": NO_DELAY, "callback": NO_CALLBACK, "context": NO_CONTEXT}
PERIOD = (*NO_DELAY, 0, -1, math.inf, -math.inf)
FIRST = (*NOT_A_DELAY, -1, math.inf)
LIMIT = (*NOT_A_DELAY, 0, -1, -math.inf)
RATE = {"tick": (*NO_DELAY, 0, -1, math.inf), "wheel_size": (None, *NO_COUNT, 0, 1)}
KEYS = value(["k"])


def timer_targets(prefix: str, find: Callable[[Env], Any]) -> Iterator[Target]:
    """Yield the calls that a timer and the package itself have in common."""

    def named(name: str) -> Callable[[Env], Callable[..., object]]:
        return lambda env: cast("Callable[..., object]", getattr(find(env), name))

    yield Target(f"{prefix}call_later", named("call_later"), CALL, NOT_A_CALL)
    yield Target(f"{prefix}call_at", named("call_at"), AT, NOT_AT)
    yield Target(
        f"{prefix}every",
        named("every"),
        {"period": value(1), "fn": value(do_nothing)},
        {
            "period": PERIOD,
            "fn": (None, True, 3, "f", Odd(), asynchronous_generator),
            "missed": NO_CHOICE,
            "jitter": (*NO_DELAY, -1, 2, math.inf),
            "first": FIRST,
        },
    )
    yield Target(
        f"{prefix}interval",
        named("interval"),
        {"period": value(1)},
        {"period": PERIOD, "missed": NO_CHOICE, "first": FIRST},
    )
    yield Target(f"{prefix}sleep", named("sleep"), {"delay": value(1)}, {"delay": NO_DELAY})
    for name in ("timeout", "move_on_after"):
        yield Target(f"{prefix}{name}", named(name), {}, {"delay": NOT_A_DELAY})
    for name in ("timeout_at", "move_on_at"):
        yield Target(f"{prefix}{name}", named(name), {}, {"when": NOT_A_DELAY})
    yield Target(
        f"{prefix}wait_for",
        named("wait_for"),
        {"fut": lambda _: asyncio.get_running_loop().create_future(), "timeout": value(1)},
        {"fut": (None, True, 3, "f", Odd(), asynchronous), "timeout": NOT_A_DELAY},
    )


def targets() -> Iterator[Target]:
    """Yield every public call that has arguments."""
    yield from timer_targets("Timer.", lambda env: env.timer)
    yield from timer_targets("", lambda _: aiowheel)
    yield Target("Timer", value(Timer), {}, {**RATE, "clock": NO_CHOICE})
    yield Target("ManualTimer", value(ManualTimer), {}, RATE)
    yield Target(
        "ManualTimer.advance",
        lambda e: e.manual.advance,
        {},
        {"seconds": (*NO_DELAY, -1, math.inf)},
    )
    yield Target(
        "Timer.call_later_threadsafe", lambda e: e.timer.call_later_threadsafe, CALL, NOT_A_CALL
    )
    yield Target("TimerHandle.touch", lambda e: e.handle.touch, {}, {"delay": NOT_A_DELAY})
    yield Target("TimerHandle.reschedule", lambda e: e.handle.reschedule, {}, {"when": NO_DELAY})
    yield Target("Timeout.reschedule", lambda e: e.block.reschedule, {}, {"when": NOT_A_DELAY})
    yield Target("MoveOn.reschedule", lambda e: e.move_on.reschedule, {}, {"when": NOT_A_DELAY})
    yield Target("Periodic.cancel", lambda e: e.periodic.cancel, {}, {"running": NO_SWITCH})
    yield Target(
        "Histogram.quantile",
        lambda e: e.timer.statistics().lateness.quantile,
        {},
        {"q": (None, True, "1", b"1", math.nan, math.inf, 1j, Odd(), -0.1, 1.1, 2**70)},
    )
    # The wheel.
    yield Target(
        "TimingWheel",
        value(TimingWheel),
        {},
        {
            "tick": (None, *NO_COUNT, 0),
            "wheel_size": (None, *NO_COUNT, 0, 1),
            "start": NO_TICKS,
            "counts": (True, 3, "c", Odd()),
        },
    )
    yield Target("TimingWheel.schedule", lambda e: e.wheel.schedule, {}, {"deadline": NO_TICKS})
    yield Target(
        "TimingWheel.reschedule",
        lambda e: e.wheel.reschedule,
        {"entry": lambda e: e.entry, "deadline": value(7)},
        {"entry": (None, True, 3, "e", Odd(), FOREIGN), "deadline": NO_TICKS},
    )
    yield Target("TimingWheel.advance", lambda e: e.wheel.advance, {}, {"now": (*NO_TICKS, -1)})
    yield Target(
        "TimingWheel.occupancy",
        lambda e: e.wheel.occupancy,
        {},
        {"most": (None, *NO_COUNT, 0, 256)},
    )
    yield Target(
        "TimingWheel.count_bucket",
        lambda e: e.wheel.count_bucket,
        {"level": value(0), "slot": value(0), "most": value(1)},
        {
            "level": (None, *NO_COUNT, 99),
            "slot": (None, *NO_COUNT, 10**6),
            "most": (None, *NO_COUNT, 0),
        },
    )
    # The purgatory.
    yield Target(
        "Purgatory",
        value(Purgatory),
        {},
        {
            "name": NO_TEXT,
            "timer": NO_TIMER,
            "max_pending": (*NO_COUNT, 0),
            "purge_interval": NO_COUNT,
            "instruments": NO_INSTRUMENTS,
        },
    )
    for name in ("watch", "try_complete_else_watch"):
        yield Target(
            f"Purgatory.{name}",
            functools.partial(_of_purgatory, name),
            {"operation": lambda _: Gate(1), "keys": KEYS},
            {"operation": NO_OPERATION, "keys": NO_KEYS},
        )
    yield Target(
        "Purgatory.wait_for",
        lambda e: e.purgatory.wait_for,
        {"predicate": value(lambda: False), "keys": KEYS, "timeout": value(1)},
        {"predicate": NO_CALLBACK, "keys": NO_KEYS, "timeout": NOT_A_DELAY},
    )
    yield Target(
        "Purgatory.wait_until",
        lambda e: e.purgatory.wait_until,
        {"thresholds": value({"k": 1}), "timeout": value(1)},
        {
            "thresholds": (None, True, 3, "k", [("k", 1)], {}, Odd()),
            "threshold": [
                Wrong({"k": each}, repr(each))
                for each in (None, True, "1", b"1", math.nan, 1j, Odd())
            ],
            "timeout": NOT_A_DELAY,
            "mode": NO_CHOICE,
        },
    )
    yield Target(
        "Purgatory.check_and_complete",
        lambda e: e.purgatory.check_and_complete,
        {"key": value("k")},
        {"key": NO_KEY, "limit": (*NO_COUNT, 0), "budget": (*NOT_A_DELAY, 0, -1)},
    )
    yield Target(
        "Purgatory.advance",
        lambda e: e.purgatory.advance,
        {"key": value("k"), "value": value(1)},
        {"key": NO_KEY, "value": (None, True, "1", b"1", math.nan, 1j, Odd(), asynchronous)},
    )
    yield Target(
        "Purgatory.advance_threadsafe",
        lambda e: e.purgatory.advance_threadsafe,
        {"key": value("k"), "value": value(1)},
        {"key": NO_KEY, "value": (None, True, "1", b"1", math.nan, 1j, Odd(), asynchronous)},
    )
    for name in (
        "value",
        "forget",
        "cancel_for_key",
        "check_and_complete_threadsafe",
        "pending",
        "waiters",
    ):
        yield Target(
            f"Purgatory.{name}", functools.partial(_of_purgatory, name), {}, {"key": NO_KEY}
        )
    yield Target(
        "Purgatory.first_waiters",
        lambda e: e.purgatory.first_waiters,
        {"key": value("k"), "most": value(1)},
        {"key": NO_KEY, "most": (None, *NO_COUNT)},
    )
    yield Target(
        "Purgatory.key_range",
        lambda e: e.purgatory.key_range,
        {"start": value(0), "stop": value(1)},
        {"start": (None, *NO_COUNT), "stop": (None, *NO_COUNT)},
    )
    yield Target(
        "Purgatory.top_keys", lambda e: e.purgatory.top_keys, {}, {"count": (None, *NO_COUNT)}
    )
    yield Target("Purgatory.aclose", lambda e: e.purgatory.aclose, {}, {"drain": NO_CHOICE})
    yield Target("DelayedOperation", value(Gate), {}, {"timeout": NOT_A_DELAY})
    # The rest of the package itself.
    yield Target(
        "IdleDetector",
        value(IdleDetector),
        {"timeout": value(1), "on_idle": value(do_nothing)},
        {"timeout": PERIOD, "on_idle": NO_CALLBACK, "timer": NO_TIMER},
    )
    for name in ("touch", "discard", "expires"):
        yield Target(
            f"IdleDetector.{name}", functools.partial(_of_detector, name), {}, {"key": NO_KEY}
        )
    yield Target(
        "WheelEventLoopMixin.call_later",
        lambda e: e.loop.call_later,
        CALL,
        {"delay": (*NO_DELAY[2:6], Odd(), asynchronous), "callback": NOT_CALLABLE},
    )
    yield Target(
        "WheelEventLoopMixin.call_at",
        lambda e: e.loop.call_at,
        AT,
        {"when": (*NO_DELAY[2:6], Odd(), asynchronous), "callback": NOT_CALLABLE},
    )
    for name in ("new_event_loop",):
        yield Target(
            name,
            value(aiowheel.new_event_loop),
            {},
            {"uvloop": (None, 1, 0, "yes", Odd(), asynchronous)},
        )
    # Testing.
    yield Target(
        "testing.VirtualClockEventLoop",
        value(VirtualClockEventLoop),
        {},
        {
            "selector": (True, 3, "s", Odd()),
            "autojump": NO_SWITCH,
            "patience": (None, True, "1", b"1", math.nan, -1, 1j, Odd()),
            "seed": (True, "1", 1.5, Odd()),
            "start": (*NO_DELAY, math.inf),
        },
    )
    yield Target(
        "testing.VirtualClockEventLoop.advance",
        lambda e: e.virtual.advance,
        {},
        {"seconds": (*NO_DELAY, -1, math.inf)},
    )
    yield Target(
        "testing.VirtualClockEventLoop.call_at", lambda e: e.virtual.call_at, AT, {"when": NO_DELAY}
    )
    # Integrations.
    limits = {"first_byte": LIMIT, "total": LIMIT, "timer": NO_TIMER}
    yield Target(
        "connections.ConnectionWatch",
        value(connections.ConnectionWatch),
        {"on_limit": value(do_nothing), "idle": value(1)},
        {
            "on_limit": NO_CALLBACK,
            "idle": LIMIT,
            "heartbeat": LIMIT,
            "on_heartbeat": NO_CALLBACK[1:],
            **limits,
        },
    )
    beat = {
        "interval": (*NO_DELAY, 0, -1),
        "timeout": LIMIT,
        "jitter": (*NO_DELAY, -1, 2, math.inf),
        "timer": NO_TIMER,
    }
    beating = {"send": value(do_nothing), "interval": value(1), "timeout": value(1)}
    yield Target(
        "connections.Heartbeat",
        value(connections.Heartbeat),
        {**beating, "dead": value(do_nothing)},
        {"send": (None, True, 3, "s", Odd()), "dead": NO_CALLBACK, **beat},
    )
    yield Target(
        "connections.heartbeat",
        value(connections.heartbeat),
        beating,
        {"send": (None, True, 3, "s", Odd()), **beat},
    )
    yield Target(
        "connections.idle_guard",
        value(connections.idle_guard),
        {"writer": value(_Writer()), "timeout": value(1)},
        {"timeout": LIMIT, **limits},
    )
    yield Target(
        "connections.touching",
        value(connections.touching),
        {"transport": lambda e: e.transport, "touch": value(do_nothing)},
        {"touch": NO_CALLBACK},
    )
    yield Target(
        "asgi.SlowRequestMiddleware",
        value(asgi.SlowRequestMiddleware),
        {"app": value(asynchronous)},
        {
            "app": (None, True, 3, "a", Odd()),
            "idle": LIMIT,
            "body": LIMIT,
            "retry_after": (None, *NO_COUNT),
            **limits,
        },
    )
    made = {
        "name": NO_TEXT,
        "tick": RATE["tick"],
        "max_pending": (*NO_COUNT, 0),
        "instruments": NO_INSTRUMENTS,
        "counters": (True, 3, "c", MemoryCounters, Odd()),
    }
    yield Target(
        "asgi.wheel_lifespan", value(asgi.wheel_lifespan), {}, {**made, "signals": NO_SIGNALS}
    )
    yield Target("aiohttp.add_wheel", value(for_aiohttp.add_wheel), {"app": value(None)}, made)
    polls = {
        "request": (None, True, 3, "r", Odd()),
        "purgatory": (None, True, 3, "p", Odd()),
        "timeout": NOT_A_DELAY,
        "jitter": (*NO_DELAY, -1, 2, math.inf),
        "render": NO_CALLBACK,
        "retry_after": (None, *NO_COUNT),
    }
    polled: dict[str, Callable[[Env], Any]] = {
        "purgatory": lambda e: e.purgatory,
        "timeout": value(1),
    }
    for module, named, request in (
        ("asgi", asgi, Request({"type": "http", "headers": [], "query_string": b""})),
        ("aiohttp", for_aiohttp, make_mocked_request("GET", "/")),
    ):
        sent = {**polled, "request": value(request)}
        yield Target(
            f"{module}.long_poll",
            value(named.long_poll),
            {**sent, "keys": KEYS, "ready": value(do_nothing)},
            {**polls, "ready": NO_CALLBACK, "on_timeout": NO_CALLBACK[1:]},
        )
        yield Target(
            f"{module}.long_poll_version",
            value(named.long_poll_version),
            {**sent, "key": value("k"), "version": value(lambda: 1), "answer": value(do_nothing)},
            {**polls, "version": NO_CALLBACK, "answer": NO_CALLBACK},
        )
    # The trace.
    counts = ("batch_rows", "queued_batches", "file_rows", "file_bytes")
    yield Target(
        "trace.TraceRecorder",
        value(TraceRecorder),
        {"folder": lambda e: e.folder},
        {
            "folder": (None, True, 3, Odd()),
            "run_id": NO_TEXT[1:],
            **dict.fromkeys(counts, (None, *NO_COUNT, 0)),
            "flush_seconds": (None, True, "1", math.nan, 0, -1, Odd()),
            "file_seconds": (None, True, "1", math.nan, 0, -1, Odd()),
            "clock": NO_CALLBACK,
            "wall_clock": NO_CALLBACK,
        },
    )
    yield Target(
        "trace.RecordedTimer",
        value(RecordedTimer),
        {"timer": lambda e: e.timer, "recorder": lambda e: e.recorder},
        {"timer": (None, *NO_TIMER), "recorder": (None, True, 3, Odd()), "name": NO_TEXT},
    )
    yield Target(
        "trace.RecordedTimer.call_later", lambda e: e.recorded.call_later, CALL, NOT_A_CALL
    )
    yield Target("trace.RecordedTimer.call_at", lambda e: e.recorded.call_at, AT, NOT_AT)
    yield Target("trace.RecordedTimer.sleep", lambda e: e.recorded.sleep, {}, {"delay": NO_DELAY})
    yield Target(
        "trace.RecordedTimer.timeout", lambda e: e.recorded.timeout, {}, {"delay": NOT_A_DELAY}
    )
    yield Target(
        "trace.RecordedTimer.timeout_at", lambda e: e.recorded.timeout_at, {}, {"when": NOT_A_DELAY}
    )
    yield Target(
        "trace.RecordedHandle.touch", lambda e: e.recorded_handle.touch, {}, {"delay": NOT_A_DELAY}
    )
    yield Target(
        "trace.RecordedHandle.reschedule",
        lambda e: e.recorded_handle.reschedule,
        {},
        {"when": NO_DELAY},
    )


def _of_purgatory(name: str, env: Env) -> Callable[..., object]:
    return cast("Callable[..., object]", getattr(env.purgatory, name))


def _of_detector(name: str, env: Env) -> Callable[..., object]:
    return cast("Callable[..., object]", getattr(env.detector, name))


FOREIGN = Wrong("the entry of another wheel", "<TimerEntry deadline=5 pending payload=None>")


class Case(NamedTuple):
    """One call with one wrong argument."""

    target: Target
    argument: str
    wrong: Wrong

    @property
    def label(self) -> str:
        """Return the readable name of the case."""
        given = self.wrong.value if isinstance(self.wrong.value, type) else repr(self.wrong.value)
        return _without_addresses(f"{self.target.name}({self.argument}={given})")


def _cases() -> Iterator[Case]:
    for target in TARGETS:
        for argument, values in target.wrong.items():
            for each in values:
                yield Case(target, argument, each if isinstance(each, Wrong) else Wrong(each))


def _without_addresses(text: str) -> str:
    return re.sub(r"0x[0-9a-f]+", "0x", text)


TARGETS = list(targets())
CASES = {case.label: case for case in _cases()}


@asynccontextmanager
async def environment() -> AsyncGenerator[Env]:
    """Create the objects to call."""
    with tempfile.TemporaryDirectory() as folder:
        async with Timer() as timer:
            env = Env(timer, Path(folder))
            async with env.block, env.move_on:
                try:
                    yield env
                finally:
                    env.close()


async def refused(case: Case, env: Env) -> tuple[str, str, bool]:
    """Make the call; return the type and text of the error, and whether the state is unchanged."""
    arguments = {name: make(env) for name, make in case.target.right.items()}
    name = "thresholds" if case.argument == "threshold" else case.argument
    arguments[name] = env.foreign_entry if case.wrong is FOREIGN else case.wrong.value
    call = case.target.find(env)
    before = env.state()
    try:
        result = call(**arguments)
        if inspect.iscoroutine(result):
            try:
                result.send(None)
            finally:
                result.close()
        elif isinstance(result, AbstractAsyncContextManager):
            async with result:  # pyright: ignore[reportUnknownVariableType]
                pass
        elif isinstance(result, AbstractContextManager):
            with result:  # pyright: ignore[reportUnknownVariableType]
                pass
    except Exception as error:
        kind, text = type(error).__name__, str(error)
    else:
        kind, text = "", "nothing"
    return kind, text, before == env.state()


async def all_refused(target: Target) -> dict[str, tuple[str, str, bool]]:
    """Make every wrong call of one target."""
    cases = [case for case in CASES.values() if case.target is target]
    async with environment() as env:
        return {case.label: await refused(case, env) for case in cases}


@functools.cache
def answers() -> dict[str, tuple[str, str, bool]]:
    """Return the errors of every case of this build."""
    found: dict[str, tuple[str, str, bool]] = {}
    with asyncio.Runner() as runner:
        for target in TARGETS:
            found |= runner.run(all_refused(target))
    return found


@pytest.mark.parametrize("name", dict.fromkeys(target.name for target in TARGETS))
def test_a_wrong_argument_is_named_at_the_call(name: str) -> None:
    """The text names the argument and the value, and the call has no effect."""
    for label, case in CASES.items():
        if case.target.name != name:
            continue
        kind, text, unchanged = answers()[label]

        assert kind in {"TypeError", "ValueError", "OverflowError"}, f"{label}: {text}"
        shown = repr(case.wrong.value) if case.wrong.shown is None else case.wrong.shown
        assert re.match(rf"(\S+ and )?{case.argument}\b", text), label
        assert shown in text, label
        assert unchanged, label


class Unprintable:
    """An object whose `repr` raises."""

    def __repr__(self) -> str:
        raise ZeroDivisionError


class UnprintableCallback(Unprintable):
    """A callback whose `repr` raises."""

    def __call__(self) -> None:
        """Do nothing."""


UNPRINTABLE: dict[str, Callable[[Timer, Any], object]] = {
    "send must be a function": lambda timer, odd: connections.Heartbeat(
        odd, do_nothing, interval=1, timeout=1, timer=timer
    ),
    "app must be an ASGI application": lambda timer, odd: asgi.SlowRequestMiddleware(
        odd, timer=timer
    ),
    "heartbeat and on_heartbeat must be given together": (
        lambda timer, _: connections.ConnectionWatch(
            do_nothing, on_heartbeat=UnprintableCallback(), timer=timer
        )
    ),
    'uvloop must be True, False or "auto"': lambda _, odd: aiowheel.new_event_loop(uvloop=odd),
}


@pytest.mark.parametrize("text", UNPRINTABLE)
async def test_a_value_that_cannot_be_printed_is_named(text: str) -> None:
    """An error in the user's `repr` must not replace the error of the call."""
    async with Timer() as timer:
        with pytest.raises((TypeError, ValueError), match=f"{text}, got .*Unprintable"):
            UNPRINTABLE[text](timer, Unprintable())


def test_there_are_enough_cases() -> None:
    """An empty list of cases would make the tests above pass."""
    assert len(CASES) >= 300


@pytest.mark.one_build  # it runs both builds itself
def test_both_builds_raise_the_same() -> None:
    """The errors of the compiled modules have the types and texts of the sources."""
    environ = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "ignore"}
    environ.pop("AIOWHEEL_NO_EXTENSIONS", None)
    environ.pop("AIOWHEEL_REQUIRE_EXTENSIONS", None)
    if aiowheel.accelerated:
        environ["AIOWHEEL_NO_EXTENSIONS"] = "1"
    run = subprocess.run(
        [sys.executable, __file__], env=environ, capture_output=True, text=True, check=True
    )
    other = json.loads(run.stdout)
    if other["accelerated"] == aiowheel.accelerated:
        pytest.skip("there is only one build here: the modules are not compiled")

    def normal(found: Mapping[str, Sequence[object]]) -> dict[str, list[object]]:
        return {
            label: [_without_addresses(str(each)) for each in it] for label, it in found.items()
        }

    assert normal(answers()) == normal(other["answers"])


# --- is every call in the list? ------------------------------------------------------------------

#: Calls of the package itself with checked values; not part of the public contract.
INTERNAL = {
    "Histogram.record",
    "Periodic.ended",
    "Purgatory.check_caller",
    "Purgatory.counter_waiters",
    "Purgatory.end",
    "Purgatory.end_threadsafe",
    "Purgatory.try_reach_else_watch",
    "Timer.close_with_loop",
    "Timer.share",
    "TimerEntry.late_at",
    "TimingWheel.arm",
    "TimingWheel.due_at",
    "TimingWheel.move",
    "TimingWheel.observe_now",
    "TimingWheel.open_pass",
    "TimingWheel.take",
}
#: Classes whose objects other calls create, never users.
MADE = {"MoveOn", "Periodic", "ThreadsafeHandle", "TimerEntry", "TimerHandle", "Timeout"}
#: Calls that behave as asyncio's do, with the errors of asyncio.
ASYNCIOS = {
    "WheelEventLoopMixin",
    "WheelEventLoopMixin.call_exception_handler",
    "WheelEventLoopMixin.set_debug",
    "run",
}


def public_calls() -> Iterator[tuple[str, Callable[..., object]]]:
    """Yield the functions, constructors and methods of the package itself."""
    for name in aiowheel.__all__:
        it: object = getattr(aiowheel, name)
        if not isinstance(it, type):
            if callable(it):
                yield name, it
            continue
        it = cast("type[object]", it)
        if (
            issubclass(it, (BaseException, enum.Enum))
            or dataclasses.is_dataclass(it)
            or issubclass(it, tuple)
        ):
            continue
        if name not in MADE and "__init__" in dir(it) and it.__init__ is not object.__init__:
            yield name, it
        for attribute in vars(it):
            member: object = getattr(it, attribute)
            if not attribute.startswith("_") and callable(member):
                yield f"{name}.{attribute}", member


@pytest.mark.skipif(aiowheel.accelerated, reason="compiled functions do not show their arguments")
def test_every_public_call_with_arguments_has_cases() -> None:
    """A new call without cases fails this test."""
    known = {target.name for target in TARGETS} | INTERNAL | ASYNCIOS
    missing: list[str] = []
    for name, call in public_calls():
        parameters = list(inspect.signature(call).parameters)
        own = [each for each in parameters if each not in {"self", "args", "kwargs"}]
        method = name.rpartition(".")[2]
        if own and name not in known and f"Timer.{method}" not in known:
            missing.append(name)
    assert missing == []


if __name__ == "__main__":
    json.dump({"accelerated": aiowheel.accelerated, "answers": answers()}, sys.stdout)
