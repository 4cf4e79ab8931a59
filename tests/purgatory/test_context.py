"""Conditions, on_complete and on_expiration run in the context of the watching code."""

import asyncio
from collections.abc import Awaitable, Callable
from contextvars import Context, ContextVar, copy_context
from typing import cast

import pytest

from aiowheel import DelayedOperation, ManualTimer, Purgatory, Timer
from aiowheel.timer._driver import LoopDriver

Until = Callable[[Callable[[], object]], Awaitable[None]]

REQUEST: ContextVar[str] = ContextVar("REQUEST", default="none")


class RecordingOperation(DelayedOperation[None]):
    """An operation that records the request that each of its methods sees."""

    def __init__(self, timeout: float | None = 30.0) -> None:
        super().__init__(timeout)
        self.open = False
        self.forced = False
        self.seen: list[str] = []
        self.then: Callable[[], object] = int

    def try_complete(self) -> bool:
        """Record the request; force the operation if the test says so."""
        self.seen.append(f"try {REQUEST.get()}")
        if self.forced:
            self.force_complete()
        return self.open

    def on_complete(self) -> None:
        """Record the request and run the hook."""
        self.seen.append(f"complete {REQUEST.get()}")
        self.then()

    def on_expiration(self) -> None:
        """Record the request."""
        self.seen.append(f"expire {REQUEST.get()}")


def watch_as(purgatory: Purgatory, request: str | None, *keys: object) -> RecordingOperation:
    """Watch an operation in the context of a request; None means an empty context."""
    operation = RecordingOperation()

    def watch() -> None:
        if request is not None:
            REQUEST.set(request)
        purgatory.try_complete_else_watch(operation, keys)

    Context().run(watch)
    operation.seen.clear()
    return operation


def as_other(call: Callable[[], object]) -> None:
    """Call in the context of another request, which must stay unchanged."""

    def run() -> None:
        REQUEST.set("other")
        call()
        assert REQUEST.get() == "other"

    copy_context().run(run)


WATCHERS = pytest.mark.parametrize(("request_", "seen"), [("mine", "mine"), (None, "none")])


@WATCHERS
def test_a_check_runs_in_the_context_of_the_watcher(
    purgatory: Purgatory, request_: str | None, seen: str
) -> None:
    """The checker's context is not used, even if the watcher's context was empty."""
    operation = watch_as(purgatory, request_, "k")
    as_other(lambda: purgatory.check_and_complete("k"))
    operation.open = True
    as_other(lambda: purgatory.check_and_complete("k"))

    assert operation.seen == [f"try {seen}", f"try {seen}", f"complete {seen}"]


@WATCHERS
def test_force_and_timeout_run_in_the_context_of_the_watcher(
    purgatory: Purgatory, timer: ManualTimer, request_: str | None, seen: str
) -> None:
    """on_expiration runs in it as well."""
    forced, late = (watch_as(purgatory, request_, "k") for _ in range(2))
    as_other(forced.force_complete)
    as_other(lambda: timer.advance(60))

    assert forced.seen == [f"complete {seen}"]
    assert late.seen == [f"complete {seen}", f"expire {seen}"]


def test_a_condition_that_forces_itself_stays_in_its_context(purgatory: Purgatory) -> None:
    """As in Kafka, try_complete calls force_complete."""
    operation = watch_as(purgatory, "mine", "k")
    operation.forced = True

    as_other(lambda: purgatory.check_and_complete("k"))

    assert operation.seen == ["try mine", "complete mine"]


def test_an_operation_that_ends_another_does_not_pass_its_context_on(purgatory: Purgatory) -> None:
    """Each on_complete sees the request of its own watcher, in any order of nested calls."""
    first, second, third = (watch_as(purgatory, name, name) for name in ("a", "b", "c"))
    first.open = True
    first.then = second.force_complete
    second.then = lambda: (third.force_complete(), first.force_complete())

    as_other(lambda: purgatory.check_and_complete("a"))

    assert first.seen == ["try a", "complete a"]
    assert (second.seen, third.seen) == (["complete b"], ["complete c"])


@pytest.mark.parametrize("request_", ["mine", None])
def test_context_changes_of_an_operation_do_not_leak(
    purgatory: Purgatory, request_: str | None
) -> None:
    """The changes reach neither the checker nor later operations."""
    operations = [watch_as(purgatory, request_, "k") for _ in range(3)]
    for operation in operations:
        operation.open = True
        operation.then = lambda: REQUEST.set("changed")

    as_other(lambda: purgatory.check_and_complete("k"))

    assert len({tuple(operation.seen) for operation in operations}) == 1


@pytest.mark.both_loops
async def test_a_predicate_and_a_thread(running: Purgatory) -> None:
    """Checks that come from a thread run in the context of the waiting task."""
    REQUEST.set("task")
    seen: list[str] = []

    def met() -> bool:
        seen.append(REQUEST.get())
        return len(seen) > 2

    waiting = running.wait_for(met, ["k"], 30)
    await asyncio.to_thread(running.check_and_complete_threadsafe, "k")

    assert await waiting
    assert seen == ["task"] * 3


async def test_an_empty_context_is_not_copied() -> None:
    """No copy is kept for an empty context; another context is freed at the end."""
    async with Timer() as timer, Purgatory(timer=timer) as purgatory:
        empty, full = watch_as(purgatory, None, "k"), watch_as(purgatory, "mine", "k")

        assert empty._context is None
        assert full._context is not None
        full.force_complete()
        assert full._context is None


class WritingOperation(DelayedOperation[None]):
    """An operation each of whose methods sets a variable, from when the test says so."""

    writes = False
    open = False

    def try_complete(self) -> bool:
        """Set the variable; return whether the test has opened the operation."""
        if self.writes:
            REQUEST.set("written by try_complete")
        return self.open

    def on_complete(self) -> None:
        """Set the variable."""
        REQUEST.set("written by on_complete")

    def on_expiration(self) -> None:
        """Set the variable."""
        REQUEST.set("written by on_expiration")


def writers(purgatory: Purgatory, count: int = 1) -> list[WritingOperation]:
    """Watch operations under the key "k" in an empty context."""
    found = [WritingOperation(0.05) for _ in range(count)]
    for each in found:
        Context().run(purgatory.try_complete_else_watch, each, ["k"])
        each.writes = True
    return found


def open_and_check(purgatory: Purgatory, operation: WritingOperation) -> None:
    """Complete the operation by a check."""
    operation.open = True
    purgatory.check_and_complete("k")


ENDS: dict[str, Callable[[Purgatory, WritingOperation], object]] = {
    "a condition that is not met": lambda purgatory, _: purgatory.check_and_complete("k"),
    "completion": open_and_check,
    "force": lambda _, first: first.force_complete(),
    "expiry": lambda purgatory, _: cast(ManualTimer, purgatory._timer).advance(60),
}


@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("how", ENDS)
def test_a_variable_of_an_operation_does_not_reach_an_empty_context(
    purgatory: Purgatory, how: str, count: int
) -> None:
    """The context of the caller stays empty, whether one operation or several use the key."""
    first = writers(purgatory, count)[0]
    caller = Context()

    caller.run(ENDS[how], purgatory, first)

    assert list(caller.items()) == []


@pytest.mark.parametrize("how", ENDS)
def test_a_variable_of_an_operation_does_not_reach_the_next_one(
    purgatory: Purgatory, how: str
) -> None:
    """The reused empty context is replaced once it holds a variable."""
    first = writers(purgatory)[0]
    Context().run(ENDS[how], purgatory, first)
    first.cancel()
    operation = watch_as(purgatory, None, "k")
    operation.open = True

    Context().run(purgatory.check_and_complete, "k")

    assert operation.seen == ["try none", "complete none"]


@pytest.mark.realtime
@pytest.mark.both_loops
async def test_a_variable_of_an_operation_reaches_neither_driver_nor_inbox(until: Until) -> None:
    """Their contexts last as long as the purgatory; a variable in them would stay for ever."""
    async with Timer() as timer, Purgatory(timer=timer) as purgatory:
        late, met, forced = writers(purgatory, 3)
        met.open = True
        purgatory.check_and_complete_threadsafe("k")
        forced.force_complete_threadsafe()
        await until(late.is_completed)

        outcomes = [each.outcome.name for each in (late, met, forced)]
        assert outcomes == ["EXPIRED", "COMPLETED", "COMPLETED"]
        driver, inbox = cast(LoopDriver, purgatory._driver), purgatory._inbox
        assert inbox is not None
        assert [*driver._context.items(), *inbox._context.items()] == []


def test_the_tries_of_watch_run_in_the_context_of_its_caller(purgatory: Purgatory) -> None:
    """They are plain calls: a variable that they set stays set after the call."""
    caller = Context()

    operation = WritingOperation(30)
    operation.writes = True
    caller.run(purgatory.try_complete_else_watch, operation, ["k"])

    assert caller[REQUEST] == "written by try_complete"
