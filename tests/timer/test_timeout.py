"""`timeout` and `timeout_at`: asyncio's and our own on every timer keep the same contract.

CPython's own tests of them run in tests/stdlib.
"""

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, suppress
from datetime import timedelta
from typing import Any, Protocol

import pytest
import pytest_asyncio

import aiowheel
from aiowheel import ForeignLoopError, ManualTimer, Timer, TimerClosedError

pytestmark = pytest.mark.both_loops


class Block(Protocol):
    """The common interface of both kinds of timeout block."""

    def when(self) -> float | None:
        """Return the deadline."""
        ...

    def reschedule(self, when: float | None) -> None:
        """Move the deadline."""
        ...

    def expired(self) -> bool:
        """Return whether the deadline has passed."""
        ...


class Maker(Protocol):
    """The source of timeouts: a module or a timer."""

    def timeout(self, delay: float | None) -> AbstractAsyncContextManager[Block]:
        """Bound a block by a delay."""
        ...

    def timeout_at(self, when: float | None) -> AbstractAsyncContextManager[Block]:
        """Bound a block by a deadline."""
        ...


@pytest_asyncio.fixture(params=["asyncio", "shared", "timer"])
async def maker(request: pytest.FixtureRequest) -> AsyncIterator[Any]:
    """Provide the standard library, the shared timer and a separate timer."""
    if request.param == "timer":
        async with Timer() as timer:
            yield timer
            assert len(timer) == 0, "a block did not remove its deadline"
    else:
        yield asyncio if request.param == "asyncio" else aiowheel


async def forever() -> None:
    """Wait without end."""
    await asyncio.Event().wait()


@pytest.mark.realtime
async def test_time_up_is_a_timeout_error(maker: Maker) -> None:
    """The cancellation is the cause of the TimeoutError, and none stays on the task."""
    block: Any = maker.timeout(0.001)

    with pytest.raises(TimeoutError) as caught:
        async with block:
            await forever()

    assert isinstance(caught.value.__cause__, asyncio.CancelledError)
    assert block.expired()
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0


async def test_a_deadline_in_the_past_expires_at_the_first_await(maker: Maker) -> None:
    """An await that only yields is enough; a block without any await runs to its end."""
    when = asyncio.get_running_loop().time() - 10
    for block in (maker.timeout(0), maker.timeout(-1), maker.timeout_at(when)):
        with pytest.raises(TimeoutError):
            async with block:
                await asyncio.sleep(0)

    async with maker.timeout(0) as through:
        pass
    assert not through.expired()


@pytest.mark.parametrize("delay", [0, -1e-9])
async def test_a_deadline_in_the_past_is_not_after_the_loops_time(
    maker: Maker, delay: float
) -> None:
    """The clock of uvloop is up to a millisecond behind."""
    block: Any = maker.timeout(delay)

    assert block.when() <= asyncio.get_running_loop().time()


async def test_reschedule_into_the_past(maker: Maker) -> None:
    """The block expires at its next await, whatever its deadline was before."""
    now = asyncio.get_running_loop().time()
    for delay in (30, None):
        block: Any = maker.timeout(delay)
        with pytest.raises(TimeoutError):
            async with block:
                block.reschedule(now - 1)
                block.reschedule(now - 2)
                await asyncio.sleep(0)
        assert block.expired()


async def test_the_last_reschedule_into_the_past_counts(maker: Maker) -> None:
    """A callback scheduled before the last call of `reschedule` runs before the expiry."""
    loop = asyncio.get_running_loop()
    told: list[str] = []
    with pytest.raises(TimeoutError):
        async with maker.timeout(0) as block:
            loop.call_soon(lambda: told.append("expired" if block.expired() else "in between"))
            block.reschedule(loop.time() - 1)
            await forever()

    assert told == ["in between"]


async def test_reschedule_back_out_of_the_past(maker: Maker) -> None:
    """The longer deadline counts if it is set before the loop runs."""
    now = asyncio.get_running_loop().time()
    async with maker.timeout(0) as block:
        block.reschedule(now + 30)
        await asyncio.sleep(0)
        block.reschedule(now - 1)
        block.reschedule(None)
        await asyncio.sleep(0)
    assert not block.expired()


@pytest.mark.realtime
async def test_reschedule_to_none_and_back(maker: Maker) -> None:
    """The deadline goes, and then a new one is set."""
    now = asyncio.get_running_loop().time()
    with pytest.raises(TimeoutError):
        async with maker.timeout(0.001) as block:
            block.reschedule(None)
            assert block.when() is None
            await asyncio.sleep(0.003)
            block.reschedule(now)
            assert block.when() == now
            await forever()


@pytest.mark.realtime
async def test_reschedule_earlier_and_later(maker: Maker) -> None:
    """The last call counts."""
    now = asyncio.get_running_loop().time()
    async with maker.timeout(0.001) as later:
        later.reschedule(now + 30)
        await asyncio.sleep(0.003)
    assert not later.expired()

    earlier: Any = maker.timeout(30)
    with pytest.raises(TimeoutError):
        async with earlier:
            earlier.reschedule(now + 30.5)
            earlier.reschedule(now + 0.001)
            await forever()
    assert earlier.expired()


async def test_states_and_their_names(maker: Maker) -> None:
    """`repr` and the errors use the words of asyncio."""
    block: Any = maker.timeout(30)
    assert repr(block) == "<Timeout [created]>"
    with pytest.raises(RuntimeError, match="Timeout has not been entered"):
        block.reschedule(None)

    async with block:
        assert repr(block) == f"<Timeout [active] when={round(block.when(), 3)}>"
        block.reschedule(None)
        assert repr(block) == "<Timeout [active] when=None>"
        with pytest.raises(RuntimeError, match="Timeout has already been entered"):
            await block.__aenter__()

    assert repr(block) == "<Timeout [finished]>"
    with pytest.raises(RuntimeError, match="Cannot change state of finished Timeout"):
        block.reschedule(None)


@pytest.mark.realtime
async def test_an_expiring_block(maker: Maker) -> None:
    """A block that swallows the cancellation ends without an error, and `expired` is True."""
    async with maker.timeout(0.001) as block:
        with pytest.raises(asyncio.CancelledError):
            await forever()
        assert repr(block) == "<Timeout [expiring]>"
        with pytest.raises(RuntimeError, match="Cannot change state of expiring Timeout"):
            block.reschedule(None)

    assert repr(block) == "<Timeout [expired]>"
    assert block.expired()


async def test_a_cancellation_from_outside_wins(maker: Maker) -> None:
    """If the task is also cancelled, the cancellation passes and stays counted."""
    counts: list[int] = []

    async def body() -> None:
        task = asyncio.current_task()
        assert task is not None
        try:
            async with maker.timeout(0):
                task.cancel()
                await forever()
        finally:
            counts.append(task.cancelling())

    with pytest.raises(asyncio.CancelledError):
        await asyncio.ensure_future(body())
    assert counts == [1]


async def test_a_body_that_takes_back_an_earlier_cancellation(maker: Maker) -> None:
    """The cancellation of the timeout is the only one at the end of the block."""
    task = asyncio.current_task()
    assert task is not None
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.sleep(0)

    with pytest.raises(TimeoutError):
        async with maker.timeout(0):
            task.uncancel()
            await forever()

    assert task.cancelling() == 0


@pytest.mark.realtime
@pytest.mark.parametrize("outer_is_ours", [True, False])
async def test_nests_with_asyncios_own(maker: Maker, outer_is_ours: bool) -> None:  # noqa: FBT001
    """Each timeout converts its own cancellation to a TimeoutError, once, in either order."""
    outer, inner = (maker, asyncio) if outer_is_ours else (asyncio, maker)

    untouched: Any = inner.timeout(30)
    with pytest.raises(TimeoutError):
        async with outer.timeout(0.002), untouched:
            await forever()
    assert not untouched.expired()

    async with outer.timeout(30) as still_running:
        with pytest.raises(TimeoutError):
            async with inner.timeout(0.001):
                await forever()
        await asyncio.sleep(0)
    assert not still_running.expired()


@pytest.mark.realtime
async def test_around_a_task_group(maker: Maker) -> None:
    """The group's tasks are cancelled and awaited; the result is one TimeoutError."""
    cleaned_up: list[int] = []

    async def child() -> None:
        try:
            await forever()
        finally:
            await asyncio.sleep(0)
            cleaned_up.append(1)

    with pytest.raises(TimeoutError):
        async with maker.timeout(0.001), asyncio.TaskGroup() as group:
            group.create_task(child())
            group.create_task(child())

    assert cleaned_up == [1, 1]


@pytest.mark.realtime
async def test_inside_a_task_group(maker: Maker) -> None:
    """The timeout is the error of the child task and cancels its siblings."""

    async def child() -> None:
        async with maker.timeout(0.001):
            await forever()

    with pytest.raises(ExceptionGroup) as caught:
        async with asyncio.TaskGroup() as group:
            group.create_task(child())
            group.create_task(forever())

    assert [type(error) for error in caught.value.exceptions] == [TimeoutError]


@pytest.mark.realtime
@pytest.mark.skipif(sys.version_info < (3, 12), reason="eager tasks are new in Python 3.12")
async def test_in_an_eager_task(maker: Maker) -> None:
    """A task that runs before it is scheduled can enter, leave and expire."""
    if sys.version_info >= (3, 12):  # for the type checker
        loop = asyncio.get_running_loop()
        results: list[str] = []

        async def body() -> None:
            async with maker.timeout(30):
                results.append("entered")
            try:
                async with maker.timeout(0.001):
                    await forever()
            except TimeoutError:
                results.append("expired")

        task = asyncio.Task(body(), loop=loop, eager_start=True)
        assert results == ["entered"]
        await task
        assert results == ["entered", "expired"]


class OwnCancellation(asyncio.CancelledError):
    """A cancellation with a class of its own, which the application raises."""


@pytest.mark.realtime
async def test_a_subclass_of_the_cancellation_is_a_timeout_since_python_3_13(maker: Maker) -> None:
    """Earlier versions let it pass, and so does asyncio's own timeout there."""
    with pytest.raises(TimeoutError if sys.version_info >= (3, 13) else OwnCancellation):
        async with maker.timeout(0.001):
            try:
                await forever()
            except asyncio.CancelledError:
                raise OwnCancellation from None


@pytest.mark.realtime
@pytest.mark.skipif(sys.version_info < (3, 13), reason="new in Python 3.13")
async def test_an_error_that_hides_the_cancellation_shows_the_timeout(maker: Maker) -> None:
    """The TimeoutError stands between the error and the cancellation, in groups as well."""
    with pytest.raises(ExceptionGroup) as caught:
        async with maker.timeout(0.001):
            try:
                await forever()
            finally:
                error = LookupError()
                error.__context__ = sys.exception()
                raise ExceptionGroup("hidden", [error])

    inner = caught.value.exceptions[0]
    assert isinstance(inner.__context__, TimeoutError)
    assert isinstance(inner.__context__.__cause__, asyncio.CancelledError)


@pytest.mark.skipif(aiowheel.accelerated, reason="compiled code has the constant in it")
@pytest.mark.parametrize("moves_on", [False, True])
@pytest.mark.parametrize("looks_inside", [True, False])
async def test_the_timeout_is_inserted_before_the_first_cancellation_of_a_chain(
    moves_on: bool,  # noqa: FBT001 - the parameter of the test
    looks_inside: bool,  # noqa: FBT001 - the parameter of the test
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In each error of a group; only since Python 3.13, and not by `move_on_after`."""
    monkeypatch.setattr("aiowheel.timer._timeout._LOOKS_INSIDE", looks_inside)
    inner = [LookupError(), KeyError()]
    between = ValueError()
    async with Timer() as timer:
        with pytest.raises(ExceptionGroup) as caught:
            async with timer.move_on_after(0) if moves_on else timer.timeout(0):
                try:
                    await forever()
                except asyncio.CancelledError as error:
                    inner[0].__context__ = between
                    inner[1].__context__ = between.__context__ = error
                    error.__context__ = asyncio.CancelledError()
                    raise ExceptionGroup("hidden", inner) from None

    inserted = looks_inside and not moves_on
    assert inner[0].__context__ is between
    for outer in (caught.value, inner[1], between):
        context = outer.__context__
        assert isinstance(context, TimeoutError if inserted else asyncio.CancelledError)
        cancelled = context.__context__
        assert isinstance(cancelled, asyncio.CancelledError)
        if inserted:
            assert context.__cause__ is cancelled
            assert isinstance(cancelled.__context__, asyncio.CancelledError)


@pytest.mark.skipif(aiowheel.accelerated, reason="compiled code has the constant in it")
@pytest.mark.parametrize("looks_inside", [True, False])
async def test_an_error_after_a_handled_cancellation_is_unchanged(
    looks_inside: bool,  # noqa: FBT001 - the parameter of the test
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The chain of its contexts has no cancellation, so it gets no TimeoutError either."""
    monkeypatch.setattr("aiowheel.timer._timeout._LOOKS_INSIDE", looks_inside)
    error = LookupError()
    async with Timer() as timer:
        block = timer.timeout(0)
        with pytest.raises(LookupError) as caught:
            async with block:
                with suppress(asyncio.CancelledError):
                    await forever()
                raise error

    assert caught.value is error
    assert error.__context__ is None
    assert block.expired()


# --- what is only ours ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("bad", "error"), [("1", TypeError), (True, TypeError), (float("nan"), ValueError)]
)
async def test_a_bad_bound_is_refused_at_the_call(bad: Any, error: type[Exception]) -> None:
    """The call raises before the block is entered; `reschedule` raises and moves nothing."""
    with pytest.raises(error, match="delay must"):
        aiowheel.timeout(bad)
    with pytest.raises(error, match="when must"):
        aiowheel.timeout_at(bad)
    async with aiowheel.timeout(30) as block:
        when = block.when()
        with pytest.raises(error, match="when must"):
            block.reschedule(bad)
        assert block.when() == when


async def test_a_timedelta_and_infinity_are_accepted() -> None:
    """`inf` means no deadline and is reported as asyncio reports it."""
    async with Timer() as timer:
        async with timer.timeout(timedelta(seconds=30)) as block:
            assert timer.time() + 29 < (block.when() or 0) <= timer.time() + 30
            assert len(timer) == 1
        async with timer.timeout(float("inf")) as unbound:
            assert unbound.when() == float("inf")
            unbound.reschedule(10**30)
            assert unbound.when() == float("inf")
            assert len(timer) == 0


async def test_a_block_outlives_its_timer_without_a_bound() -> None:
    """The block cannot be given a new deadline."""
    timer = await Timer().__aenter__()
    async with timer.timeout(30) as block:
        when = block.when()
        await timer.aclose()
        for moved in (timer.time() + 60, timer.time() + 10, timer.time() - 1, None):
            with pytest.raises(TimerClosedError, match="closed"):
                block.reschedule(moved)
        await asyncio.sleep(0)

    assert block.when() == when
    assert timer.statistics().pending == 0


async def test_a_later_deadline_is_a_write() -> None:
    """Moving a deadline later never files the entry again."""
    async with Timer() as timer, timer.timeout(30) as block:
        cascaded = timer.statistics().cascaded
        for _ in range(100):
            block.reschedule((block.when() or 0) + 1)

        assert timer.statistics().rescheduled == 100
        assert timer.statistics().cascaded == cascaded
        assert len(timer) == 1


async def test_another_thread_cannot_move_a_deadline(maker: Maker) -> None:
    """The other thread gets an error, and the block keeps its deadline."""
    loop = asyncio.get_running_loop()
    async with maker.timeout(30) as block:
        for when in (loop.time() + 60, loop.time() - 1):
            with pytest.raises(RuntimeError):
                await asyncio.to_thread(block.reschedule, when)
        await asyncio.sleep(0)
        assert not block.expired()


async def test_a_manual_clock_bounds_a_task() -> None:
    """The block expires exactly at its deadline."""
    timer = ManualTimer()

    async def body() -> None:
        async with timer.timeout(30):
            await forever()

    task = asyncio.ensure_future(body())
    await asyncio.sleep(0)
    timer.advance(29.999)
    await asyncio.sleep(0)
    assert not task.done()
    timer.advance(0.001)

    with pytest.raises(TimeoutError):
        await task


@pytest.mark.overdue
async def test_a_manual_clock_bounds_a_block_whose_deadline_has_passed() -> None:
    """The block expires in the next `advance`, because a manual timer has no loop."""
    timer = ManualTimer()
    timer.advance(5)

    async def body() -> None:
        async with timer.timeout_at(5) as block:
            block.reschedule(4)
            await forever()

    task = asyncio.ensure_future(body())
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert not task.done()
    timer.advance(0)

    with pytest.raises(TimeoutError):
        await task


async def test_a_closed_timer_makes_no_timeouts() -> None:
    """A timer of another loop refuses as well."""
    timer = Timer()
    with pytest.raises(TimerClosedError):
        timer.timeout(1)
    async with timer:
        with pytest.raises(ForeignLoopError):
            await asyncio.to_thread(timer.timeout, 1)
    with pytest.raises(TimerClosedError):
        timer.timeout_at(None)


async def test_outside_of_a_task_it_is_refused() -> None:
    """There would be no task to cancel."""
    block = aiowheel.timeout(1)
    errors: list[Exception] = []

    def enter() -> None:
        try:
            block.__aenter__().__await__().__next__()
        except RuntimeError as error:
            errors.append(error)

    asyncio.get_running_loop().call_soon(enter)
    await asyncio.sleep(0)

    assert str(errors[0]) == "Timeout should be used inside a task"


async def test_an_exit_without_an_entry_changes_nothing() -> None:
    """The block can still be entered; a second exit is no error either."""
    block = aiowheel.timeout(60)
    await block.__aexit__(None, None, None)
    assert repr(block) == "<Timeout [created]>"

    async with block:
        pass
    await block.__aexit__(None, None, None)

    assert repr(block) == "<Timeout [finished]>"
