"""`move_on_after` and `move_on_at`: a block that ends at its deadline without an error."""

import asyncio
import sys
from collections.abc import AsyncIterator, Awaitable, Generator
from datetime import timedelta
from typing import Any, Protocol, Self

import pytest
import pytest_asyncio

import aiowheel
from aiowheel import ForeignLoopError, ManualTimer, MoveOn, Timer, TimerClosedError

pytestmark = pytest.mark.both_loops


class Maker(Protocol):
    """The source of the blocks: a timer or the module."""

    def move_on_after(self, delay: float | timedelta | None) -> MoveOn:
        """End a block after a delay."""
        ...

    def move_on_at(self, when: float | timedelta | None) -> MoveOn:
        """End a block at a time."""
        ...


@pytest_asyncio.fixture(params=["shared", "timer"])
async def maker(request: pytest.FixtureRequest) -> AsyncIterator[Maker]:
    """Provide the module and a separate timer."""
    if request.param == "shared":
        yield aiowheel
        assert len(aiowheel.current_timer()) == 0, "a block did not remove its deadline"
    else:
        async with Timer() as timer:
            yield timer
            assert len(timer) == 0, "a block did not remove its deadline"


async def forever() -> None:
    """Wait without end."""
    await asyncio.Event().wait()


@pytest.mark.realtime
async def test_the_block_ends_at_its_deadline(maker: Maker) -> None:
    """The code after the block runs, no cancellation is left, and `expired` returns True."""
    task = asyncio.current_task()
    assert task is not None
    async with maker.move_on_after(0.002) as block:
        assert not block.expired()
        await forever()

    assert block.expired()
    assert task.cancelling() == 0
    await asyncio.sleep(0)


async def test_a_block_in_time_has_not_expired(maker: Maker) -> None:
    """The block ends normally."""
    async with maker.move_on_after(60) as block:
        await asyncio.sleep(0)

    assert not block.expired()
    assert repr(block) == "<Timeout [finished]>"


@pytest.mark.parametrize("delay", [0, -1, timedelta(0)])
async def test_a_deadline_in_the_past_ends_the_block_at_its_first_await(
    maker: Maker, delay: float | timedelta
) -> None:
    """Code without an await runs to the end of the block."""
    reached: list[str] = []
    async with maker.move_on_after(delay) as block:
        reached.append("before")
        await forever()
        reached.append("after")
    assert reached == ["before"]
    assert block.expired()

    async with maker.move_on_after(delay) as block:
        reached.append("no await")
    assert reached == ["before", "no await"]
    assert not block.expired()


async def test_at_a_time_in_the_past(maker: Maker) -> None:
    """`move_on_at` uses the time of the loop."""
    async with maker.move_on_at(asyncio.get_running_loop().time() - 1) as block:
        await forever()

    assert block.expired()


@pytest.mark.parametrize("bound", [None, float("inf")])
async def test_no_bound(maker: Maker, bound: float | None) -> None:
    """None and infinity set no deadline; `when` returns them."""
    for block in (maker.move_on_after(bound), maker.move_on_at(bound)):
        async with block:
            assert block.when() == bound
            await asyncio.sleep(0)
        assert not block.expired()


async def test_reschedule(maker: Maker) -> None:
    """The deadline moves later, to None and into the past, as that of a timeout."""
    now = asyncio.get_running_loop().time()
    async with maker.move_on_after(0) as block:
        block.reschedule(now + 60)
        await asyncio.sleep(0)
        assert block.when() == now + 60
        block.reschedule(None)
        assert block.when() is None
        block.reschedule(now - 1)
        await forever()

    assert block.expired()


@pytest.mark.parametrize("error", [ValueError("mine"), SystemExit(3)])
async def test_an_error_in_the_block_passes(maker: Maker, error: BaseException) -> None:
    """The error is unchanged before the deadline and after it."""
    with pytest.raises(type(error)) as early:
        async with maker.move_on_after(60):
            raise error
    block = maker.move_on_after(0)
    with pytest.raises(type(error)) as late:
        async with block:
            try:
                await forever()
            finally:
                raise error

    assert early.value is late.value is error
    assert block.expired()
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0


async def test_a_cancellation_from_outside_wins(maker: Maker) -> None:
    """The task ends cancelled, also if the deadline comes in the same turn."""

    async def work(delay: float, blocks: list[MoveOn]) -> None:
        async with maker.move_on_after(delay) as block:
            blocks.append(block)
            await forever()

    blocks: list[MoveOn] = []
    for delay in (60, 0):
        task = asyncio.ensure_future(work(delay, blocks))
        while len(blocks) < 1 + (delay == 0):  # noqa: ASYNC110 - one turn at a time
            await asyncio.sleep(0)
        if delay == 0:
            blocks[-1].reschedule(0)
            asyncio.get_running_loop().call_soon(task.cancel)
        else:
            task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert task.cancelled()

    assert not blocks[0].expired()


async def test_a_cancellation_in_the_turn_of_the_deadline_wins(maker: Maker) -> None:
    """The block has expired, and the task is cancelled nevertheless."""
    blocks: list[MoveOn] = []

    async def work() -> None:
        async with maker.move_on_after(60) as block:
            blocks.append(block)
            await forever()

    task = asyncio.ensure_future(work())
    await asyncio.sleep(0)
    blocks[0].reschedule(asyncio.get_running_loop().time() - 1)
    asyncio.get_running_loop().call_soon(task.cancel)
    with pytest.raises(asyncio.CancelledError):
        await task

    assert blocks[0].expired()


async def test_a_context_manager_may_forward_the_await_of_the_exit(maker: Maker) -> None:
    """A block around it ends at its deadline without an error, as if it were used itself."""

    class Forwarding:
        def __init__(self) -> None:
            self.block = maker.move_on_after(0)
            self.leaving: Awaitable[bool] | None = None

        async def __aenter__(self) -> MoveOn:
            return await self.block.__aenter__()

        def __aexit__(self, *error: Any) -> Self:
            self.leaving = self.block.__aexit__(*error)
            return self

        def __await__(self) -> Generator[Any, Any, bool]:
            assert self.leaving is not None
            return (yield from self.leaving.__await__())

    async with Forwarding() as expiring:
        await forever()
    async with Forwarding() as ending:
        pass

    assert [expiring.expired(), ending.expired()] == [True, False]


async def test_nests_in_itself_and_in_timeouts(maker: Maker) -> None:
    """Each deadline ends its own block only."""
    async with maker.move_on_after(60) as outer:
        async with maker.move_on_after(0) as inner:
            await forever()
        assert inner.expired()
        async with asyncio.timeout(60), aiowheel.timeout(60), maker.move_on_after(0) as third:
            await forever()
        assert third.expired()
    assert not outer.expired()

    inner = maker.move_on_after(60)
    async with maker.move_on_after(0) as outer:  # noqa: SIM117 - the test needs two blocks
        async with inner, aiowheel.timeout(60):
            await forever()
    assert outer.expired()
    assert not inner.expired()

    inner = maker.move_on_after(60)
    with pytest.raises(TimeoutError):
        async with aiowheel.timeout(0), inner:
            await forever()
    assert not inner.expired()


async def test_around_and_inside_a_task_group(maker: Maker) -> None:
    """The group's tasks are cancelled with the block; a block in a child ends the child only."""
    ended: list[str] = []

    async def child() -> None:
        try:
            await forever()
        finally:
            ended.append("cancelled")

    async def bounded_child() -> None:
        async with maker.move_on_after(0):
            await forever()
        ended.append("moved on")

    async with maker.move_on_after(60) as block, asyncio.TaskGroup() as group:
        group.create_task(bounded_child())
    assert ended == ["moved on"]
    assert not block.expired()

    ended.clear()
    async with maker.move_on_after(60) as block, asyncio.TaskGroup() as group:
        for _ in range(3):
            group.create_task(child())
        await asyncio.sleep(0)
        block.reschedule(0)
    assert ended == ["cancelled"] * 3
    assert block.expired()


async def test_an_error_of_a_task_group_passes(maker: Maker) -> None:
    """The error passes although the deadline came as well."""

    async def child() -> None:
        try:
            await forever()
        finally:
            raise ValueError("while being cancelled")

    block = maker.move_on_after(60)
    with pytest.raises(ExceptionGroup) as caught:
        async with block, asyncio.TaskGroup() as group:
            group.create_task(child())
            await asyncio.sleep(0)
            block.reschedule(0)
    assert [type(error) for error in caught.value.exceptions] == [ValueError]
    assert block.expired()


async def test_a_block_that_swallows_the_cancellation_ends_normally(maker: Maker) -> None:
    """`expired` returns True, and the task is not left cancelled."""
    task = asyncio.current_task()
    assert task is not None
    async with maker.move_on_after(0) as block:
        try:
            await forever()
        except asyncio.CancelledError:
            assert "expiring" in repr(block)

    assert block.expired()
    assert task.cancelling() == 0


async def test_misuse_is_refused(maker: Maker) -> None:
    """Wrong bounds raise at the call; so do a second entry and a `reschedule` outside."""
    for make in (maker.move_on_after, maker.move_on_at):
        with pytest.raises(TypeError, match="must be a number of seconds"):
            make("1")  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="NaN"):
            make(float("nan"))
    block = maker.move_on_after(60)
    with pytest.raises(RuntimeError, match="not been entered"):
        block.reschedule(1)
    async with block:
        pass
    with pytest.raises(RuntimeError, match="finished"):
        block.reschedule(1)
    with pytest.raises(RuntimeError, match="already been entered"):
        await block.__aenter__()


async def test_on_a_manual_timer() -> None:
    """The block ends when `advance` reaches its deadline, not before."""
    timer = ManualTimer()
    ended: list[bool] = []

    async def work() -> None:
        async with timer.move_on_after(10) as block:
            await forever()
        ended.append(block.expired())

    task = asyncio.ensure_future(work())
    await asyncio.sleep(0)
    timer.advance(9.9)
    await asyncio.sleep(0)
    assert ended == []
    timer.advance(0.1)
    await task

    assert ended == [True]


async def test_a_closed_timer_and_another_thread_refuse() -> None:
    """The call raises, and so does the entry of a block that was created before."""
    async with Timer() as timer:
        block = timer.move_on_after(60)

        async def enter() -> None:
            async with timer_block:
                pass

        timer_block = timer.move_on_after(60)
        with pytest.raises(ForeignLoopError):
            await asyncio.to_thread(asyncio.run, enter())
        with pytest.raises(ForeignLoopError):
            await asyncio.to_thread(timer.move_on_after, 1)
        assert len(timer) == 0
        async with timer_block:  # a refused call leaves the block usable
            pass

    with pytest.raises(TimerClosedError):
        timer.move_on_after(60)
    with pytest.raises(TimerClosedError):
        async with block:
            pass


@pytest.mark.skipif(sys.version_info < (3, 12), reason="eager tasks are new in Python 3.12")
async def test_in_an_eager_task(maker: Maker) -> None:
    """The block is entered before the loop ever schedules the task."""
    if sys.version_info >= (3, 12):  # for the type checker

        async def work() -> bool:
            async with maker.move_on_after(0) as block:
                await forever()
            return block.expired()

        loop = asyncio.get_running_loop()
        assert await asyncio.eager_task_factory(loop, work())
