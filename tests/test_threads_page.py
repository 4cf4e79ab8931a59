"""The page on threads lists every public call, and each call behaves as the page says."""

import asyncio
import inspect
import re
import time
from collections.abc import Awaitable, Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import aiowheel
from aiowheel import DelayedOperation, ForeignLoopError, IdleDetector, Purgatory, Timer
from aiowheel.durable import DeadLetter, DurableTimers, MemoryStore
from aiowheel.integrations.connections import ConnectionWatch, Heartbeat, LimitedProtocol
from aiowheel.loop import LoopHandle, new_event_loop
from aiowheel.shared import SharedCounters, SharedIdle
from aiowheel.testing import MemoryCounters

PAGE = Path(__file__).parent.parent / "docs" / "how-to" / "use-from-threads.md"
SECTION = re.compile(r"^### (\w+)\n(.*?)(?=^### |\Z)", re.MULTILINE | re.DOTALL)
ROW = re.compile(r"^\| (`[^|]+`) \| (\w[\w ]*) \|$", re.MULTILINE)
RULES = {"raises", "any thread", "reads", "hook"}

#: Calls for other parts of the package only, and attributes of the wheel's own entries.
INTERNAL = {
    "Timer": {"share", "open_driver", "close_with_loop"},
    "ThreadsafeHandle": {"arrive", "forget", "withdraw"},
    "Periodic": {"arm", "ended", "forget"},
    "TimerHandle": {"forget"},
    "Purgatory": {
        *("check_caller", "counter_waiters", "end", "end_threadsafe", "next_end"),
        "try_reach_else_watch",
    },
    "SharedIdle": {"gap", "hint"},
    "DelayedOperation": {
        "asynchronous_method",
        "completed_by",
        "created_ns",
        "deadline_ns",
        "finished_ns",
        "keys",
    },
    "LoopHandle": {
        "asyncio_handle",
        "enter_transit",
        "forget",
        "in_transit",
        "leave_transit",
        "leave_wheel",
        "note",
        "notes",
        "text",
    },
}
ENTRY = {"deadline", "drop", "fire", "late_at", "next", "payload", "pending", "prev", "unlink"}
CLASSES: dict[str, type] = {
    "Timer": Timer,
    "TimerHandle": aiowheel.TimerHandle,
    "ThreadsafeHandle": aiowheel.ThreadsafeHandle,
    "Periodic": aiowheel.Periodic,
    "Timeout": aiowheel.Timeout,
    "Purgatory": Purgatory,
    "DelayedOperation": DelayedOperation,
    "IdleDetector": IdleDetector,
    "DurableTimers": DurableTimers,
    "SharedCounters": SharedCounters,
    "SharedIdle": SharedIdle,
    "ConnectionWatch": ConnectionWatch,
    "LimitedProtocol": LimitedProtocol,
    "Heartbeat": Heartbeat,
    "LoopHandle": LoopHandle,
}
#: Objects that a test enters first, and whose tasks use the timer.
Stored = DurableTimers | SharedCounters | SharedIdle
LETTER = DeadLetter(1, "name", "handler", 0, "fire", 1, 0, "error", b"")
HOUR = timedelta(hours=1)
SPECIAL = {
    "__aenter__": "async with",
    "__bool__": "bool()",
    "__contains__": "in",
    "__iter__": "iter()",
    "__len__": "len()",
}


def tables() -> dict[str, dict[str, str]]:
    """Return the rule of each call, by class."""
    found: dict[str, dict[str, str]] = {}
    for name, text in SECTION.findall(PAGE.read_text(encoding="utf-8")):
        rules = found.setdefault(name, {})
        for calls, rule in ROW.findall(text):
            for call in re.findall(r"`([^`]+)`", calls):
                assert call not in rules, f"{name}.{call} is listed twice"
                rules[call] = rule
    return found


TABLES = tables()
CALLS = [
    (name, call, rule)
    for name, rules in TABLES.items()
    for call, rule in rules.items()
    if rule != "hook"
]


@pytest.mark.parametrize("name", CLASSES)
def test_every_public_call_is_listed(name: str) -> None:
    """The page lists methods, attributes and operators of the class, and no others."""
    listed = set(TABLES[name]) - {f"{name}()"}
    public = {call for call in dir(CLASSES[name]) if not call.startswith("_")}
    public -= INTERNAL.get(name, set()) | set(dir(asyncio.Protocol))
    if name == "Purgatory":
        public |= {"name", "counts"}  # attributes of the compiled class only
    if "unlink" in public:
        public -= ENTRY
    if name == "LimitedProtocol":
        public |= {"connection_made", "connection_lost", "data_received"}
    public |= {word for special, word in SPECIAL.items() if hasattr(CLASSES[name], special)}

    assert listed == public
    assert set(TABLES[name].values()) <= RULES


def test_every_class_has_a_table() -> None:
    """The page has no table for another class."""
    assert set(TABLES) == set(CLASSES)


# --- the rules ------------------------------------------------------------------------------


class Operation(DelayedOperation[None]):
    """An operation that completes only when it is forced."""

    def __init__(self) -> None:
        super().__init__(60)

    def try_complete(self) -> bool:
        """Return False."""
        return False

    def on_complete(self) -> None:
        """Return None."""


class Limited(LimitedProtocol):
    """A protocol with example limits."""

    idle_timeout = 60

    def __init__(self, timer: Timer) -> None:
        self.timer = timer


def nothing(*_: object) -> None:
    """Accept any arguments and do nothing."""


async def returns_nothing() -> None:
    """Return at once."""


class Stage:
    """One object of each class on the running loop, and the arguments of its calls.

    Attributes:
        timer: The timer that all objects use.
        subject: The object of the class under test.
    """

    def __init__(self, name: str, timer: Timer) -> None:
        self.name = name
        self.timer = timer
        self.future = asyncio.get_running_loop().create_future()
        self.purgatory = Purgatory(timer=timer)
        self.operation = Operation()
        self.purgatory.watch(self.operation, ["key"])
        self.subject: Any = getattr(self, f"_{name}")()

    def _Timer(self) -> object:  # noqa: N802 - the class's name
        return self.timer

    def _TimerHandle(self) -> object:  # noqa: N802
        return self.timer.call_later(60, nothing)

    def _ThreadsafeHandle(self) -> object:  # noqa: N802
        return self.timer.call_later_threadsafe(60, nothing)

    def _Periodic(self) -> object:  # noqa: N802
        return self.timer.every(60, nothing)

    def _Timeout(self) -> object:  # noqa: N802
        return self.timer.timeout(60)

    def _Purgatory(self) -> object:  # noqa: N802
        return self.purgatory

    def _DelayedOperation(self) -> object:  # noqa: N802
        return self.operation

    def _IdleDetector(self) -> object:  # noqa: N802
        detector = IdleDetector[str](60, nothing, timer=self.timer)
        detector.touch("key")
        return detector

    def _DurableTimers(self) -> object:  # noqa: N802
        return DurableTimers(MemoryStore(), timer=self.timer)

    def _SharedCounters(self) -> object:  # noqa: N802
        return SharedCounters(self.purgatory, MemoryCounters())

    def _SharedIdle(self) -> object:  # noqa: N802
        return SharedIdle(MemoryCounters(), timeout=60, on_idle=nothing, timer=self.timer)

    def _ConnectionWatch(self) -> object:  # noqa: N802
        return ConnectionWatch(nothing, idle=60, timer=self.timer)

    def _LimitedProtocol(self) -> object:  # noqa: N802
        protocol = Limited(self.timer)
        protocol.connection_made(asyncio.Transport())
        return protocol

    def _Heartbeat(self) -> object:  # noqa: N802
        return Heartbeat(nothing, nothing, interval=60, timeout=60, timer=self.timer)

    def _LoopHandle(self) -> object:  # noqa: N802
        return asyncio.get_running_loop().call_later(60, nothing)

    def call(self, call: str) -> object:
        """Make one call as a user would; the result may be awaitable."""
        subject = self.subject
        if call in OPERATORS:
            return OPERATORS[call](subject)
        if call == f"{self.name}()":
            return self._construct()
        member = getattr(subject, call)
        if not callable(member) or isinstance(member, Timer):
            return member
        if call in {"schedule", "schedule_in"}:
            connection = (None,) if call == "schedule_in" else ()
            return member(*connection, "name", "handler", due=HOUR)
        return member(*self._arguments(call))

    def _construct(self) -> object:
        if self.name == "Timer":
            return Timer()
        if self.name == "Purgatory":
            return Purgatory(timer=self.timer)
        if self.name == "DelayedOperation":
            return Operation()
        if self.name == "LimitedProtocol":
            return Limited(self.timer)
        return getattr(self, f"_{self.name}")()

    def _arguments(self, call: str) -> tuple[Any, ...]:
        if self.name == "Timer" and call == "wait_for":
            return self.future, 60
        if call == "connection_made":
            return (Transport(),)
        return ARGUMENTS.get((self.name, call), ARGUMENTS.get(("", call), ()))


class Transport(asyncio.Transport):
    """A transport that can be aborted."""

    def abort(self) -> None:
        """Do nothing."""


async def enter_and_leave(subject: Any) -> None:
    """Enter and leave `async with`; both may raise. What is open cannot be entered again."""
    if not isinstance(subject, Timer | Stored):
        await subject.__aenter__()
    await subject.__aexit__(None, None, None)


OPERATORS: dict[str, Callable[[Any], object]] = {
    "len()": len,
    "bool()": bool,
    "iter()": list,
    "in": lambda subject: "key" in subject,
    "async with": enter_and_leave,
}
ARGUMENTS: dict[tuple[str, str], tuple[Any, ...]] = {
    ("", "call_later"): (60, nothing),
    ("", "call_at"): (60, nothing),
    ("", "call_later_threadsafe"): (60, nothing),
    ("", "every"): (60, nothing),
    ("", "interval"): (60,),
    ("", "sleep"): (60,),
    ("", "timeout"): (60,),
    ("", "timeout_at"): (60,),
    ("", "move_on_after"): (60,),
    ("", "move_on_at"): (60,),
    ("", "reschedule"): (60,),
    ("IdleDetector", "touch"): ("key",),
    ("SharedIdle", "touch"): ("key",),
    ("", "handler"): ("handler",),
    ("", "schedule_many"): ([("name", "handler", HOUR)],),
    ("DurableTimers", "every"): ("name", "handler", 60),
    ("DurableTimers", "cancel"): ("name",),
    ("DurableTimers", "reschedule"): ("name", HOUR),
    ("", "get"): ("name",),
    ("", "redrive"): (LETTER,),
    ("", "wait_past"): ({"key": "epoch:1"}, 60),
    ("", "token"): ("key",),
    ("", "discard"): ("key",),
    ("", "expires"): ("key",),
    ("", "watch"): (Operation(), ["key"]),
    ("", "try_complete_else_watch"): (Operation(), ["key"]),
    ("Purgatory", "wait_for"): (bool, ["key"], 60),
    ("", "wait_until"): ({"key": 1}, 60),
    ("", "check_and_complete"): ("key",),
    ("", "check_and_complete_threadsafe"): ("key",),
    ("", "advance"): ("key", 1),
    ("", "advance_threadsafe"): ("key", 1),
    ("", "value"): ("key",),
    ("", "forget"): ("key",),
    ("", "cancel_for_key"): ("key",),
    ("", "key_range"): (0, 1),
    ("", "waiters"): ("key",),
    ("", "first_waiters"): ("key", 1),
    ("", "data_received"): (b"x",),
    ("", "connection_lost"): (None,),
}


async def wait_for(awaitable: Awaitable[object]) -> None:
    """Wait for an awaitable that must end at once."""
    async with asyncio.timeout(5):
        await awaitable


def error_in_thread(stage: Stage, call: str) -> BaseException | None:
    """Return what the call raises in a thread; the thread's own loop runs a coroutine."""
    try:
        result = stage.call(call)
        if inspect.isasyncgen(result):
            result = anext(result)
        if inspect.isawaitable(result):
            asyncio.run(wait_for(result))
    except Exception as error:
        return error
    return None


def counts(stage: Stage) -> tuple[object, ...]:
    """Return the counts that a refused call and a read must not change."""
    if isinstance(stage.subject, Stored):  # its tasks may use the timer meanwhile
        return (repr(stage.subject.statistics()),)
    timer = stage.timer.statistics()
    purgatory = stage.purgatory.statistics()
    return (
        (timer.pending, timer.scheduled, timer.cancelled, timer.rescheduled),
        (purgatory.pending, purgatory.completed, purgatory.cancelled),
        repr(stage.operation),
    )


async def check(name: str, call: str, rule: str) -> None:
    """Make the call in a thread while the loop runs, and compare the result with its rule."""
    async with Timer() as timer:
        stage = Stage(name, timer)
        await asyncio.sleep(0)
        is_stored = isinstance(stage.subject, Stored)
        if is_stored or (name == "Timeout" and call != "async with"):
            await stage.subject.__aenter__()
        before = counts(stage), repr(stage.subject)
        error = await asyncio.to_thread(error_in_thread, stage, call)
        if rule == "raises":
            assert isinstance(error, ForeignLoopError), repr(error)
        else:
            assert error is None, repr(error)
        if rule != "any thread":
            assert (counts(stage), repr(stage.subject)) == before
        elif (name, call) in EFFECTS:
            limit = time.monotonic() + 5
            while not EFFECTS[name, call](stage):
                assert time.monotonic() < limit
                await asyncio.sleep(0)
        await stage.purgatory.aclose("cancel")
        if name == "LoopHandle":
            stage.subject.cancel()
        if name == "Timeout" or is_stored:
            await stage.subject.__aexit__(None, None, None)


#: What the loop's thread observes after a call that takes effect from any thread.
EFFECTS: dict[tuple[str, str], Callable[[Stage], object]] = {
    ("Timer", "call_later_threadsafe"): lambda stage: len(stage.timer) == 2,
    ("ThreadsafeHandle", "cancel"): lambda stage: len(stage.timer) == 1,
    ("DelayedOperation", "force_complete_threadsafe"): lambda stage: stage.operation.is_completed(),
    ("Purgatory", "advance_threadsafe"): lambda stage: stage.purgatory.value("key") == 1,
    ("Purgatory", "check_and_complete_threadsafe"): lambda stage: stage.operation.checks > 1,
    ("LoopHandle", "cancel"): lambda stage: not stage.subject.pending,
}


@pytest.mark.both_loops
@pytest.mark.parametrize(
    ("name", "call", "rule"),
    [entry for entry in CALLS if entry[0] != "LoopHandle"],
    ids=lambda value: str(value).replace(" ", "_"),
)
async def test_a_call_keeps_its_rule(name: str, call: str, rule: str) -> None:
    """The call is made from another thread, on asyncio and on uvloop."""
    await check(name, call, rule)


@pytest.mark.realtime
@pytest.mark.parametrize("uvloop", [False, True])
@pytest.mark.parametrize(
    ("call", "rule"), [(call, rule) for name, call, rule in CALLS if name == "LoopHandle"]
)
def test_a_wheel_loops_handle_keeps_its_rule(call: str, rule: str, *, uvloop: bool) -> None:
    """The same for the handles that a wheel loop creates itself."""
    if uvloop:
        pytest.importorskip("uvloop")
    with asyncio.Runner(loop_factory=lambda: new_event_loop(uvloop=uvloop)) as runner:
        runner.run(check("LoopHandle", call, rule))


@pytest.mark.both_loops
@pytest.mark.parametrize("name", [name for name in CLASSES if name != "LoopHandle"])
async def test_repr_only_reads(name: str) -> None:
    """`repr` works in a thread as on the loop."""
    async with Timer() as timer:
        stage = Stage(name, timer)
        await asyncio.sleep(0)

        assert await asyncio.to_thread(repr, stage.subject) == repr(stage.subject)
        await stage.purgatory.aclose("cancel")
