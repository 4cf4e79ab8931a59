"""The future of the driver task: the task resumes inside the alarm, with every task factory."""

import asyncio
import asyncio.tasks
import sys
from collections.abc import Awaitable, Callable, Coroutine, Generator, Iterator
from typing import Any, cast

import anyio
import pytest

from aiowheel import Timer
from aiowheel.timer._driver import Bell

pytestmark = pytest.mark.both_loops

Until = Callable[[Callable[[], object]], Awaitable[None]]

#: asyncio's task in Python, the fallback for the one in C.
PurePythonTask = cast(Any, asyncio.tasks)._PyTask


def plain(
    loop: asyncio.AbstractEventLoop, coro: Coroutine[Any, Any, Any], **options: Any
) -> asyncio.Task[Any]:
    """Create the task that a loop creates by default."""
    return asyncio.Task(coro, loop=loop, **options)


def pure_python(
    loop: asyncio.AbstractEventLoop, coro: Coroutine[Any, Any, Any], **options: Any
) -> asyncio.Task[Any]:
    """Create a task without C code."""
    return cast(asyncio.Task[Any], PurePythonTask(coro, loop=loop, **options))


def wrapping(
    loop: asyncio.AbstractEventLoop, coro: Coroutine[Any, Any, Any], **options: Any
) -> asyncio.Task[Any]:
    """Create a task whose coroutine runs inside another one, as tracers do."""

    async def outer() -> Any:
        return await coro

    return asyncio.Task(outer(), loop=loop, **options)


def starting_eagerly(factory: Callable[..., asyncio.Task[Any]]) -> Callable[..., Any]:
    """Return an eager factory without the option of uvloop 0.23 that Python 3.13.0 rejects."""

    def make(
        loop: asyncio.AbstractEventLoop,
        coro: Coroutine[Any, Any, Any],
        *,
        eager_start: bool | None = None,
        **options: Any,
    ) -> asyncio.Task[Any]:
        return factory(loop, coro, **options)

    return make


class Stepper:
    """An awaitable that forwards every step to a coroutine, as profilers do."""

    def __init__(self, coro: Coroutine[Any, Any, Any]) -> None:
        self._coro = coro

    def __await__(self) -> Generator[Any, Any, Any]:
        return cast(Generator[Any, Any, Any], self)

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        return self._coro.send(None)

    def send(self, value: Any) -> Any:
        """Forward a value."""
        return self._coro.send(value)

    def throw(self, *error: Any) -> Any:
        """Forward an exception."""
        return self._coro.throw(*error)

    def close(self) -> None:
        """Close the coroutine."""
        self._coro.close()


def stepping(
    loop: asyncio.AbstractEventLoop, coro: Coroutine[Any, Any, Any], **options: Any
) -> asyncio.Task[Any]:
    """Create a task that steps the coroutine by hand."""

    async def outer() -> Any:
        return await Stepper(coro)

    return asyncio.Task(outer(), loop=loop, **options)


FACTORIES: dict[str, Any] = {
    "plain": plain,
    "pure Python": pure_python,
    "wrapping": wrapping,
    "stepping": stepping,
}
if sys.version_info >= (3, 12):
    FACTORIES["eager"] = starting_eagerly(asyncio.eager_task_factory)
    FACTORIES["eager pure Python"] = starting_eagerly(
        asyncio.create_eager_task_factory(PurePythonTask)
    )

every_factory = pytest.mark.parametrize("factory", FACTORIES.values(), ids=FACTORIES)
every_mode = pytest.mark.parametrize("debug", [False, True], ids=["", "debug"])


class Waiter:
    """A task that awaits its bell in a loop and counts how often it resumes."""

    def __init__(self, factory: Any) -> None:
        self.loop = asyncio.get_running_loop()
        self.bell = Bell(self.loop)
        self.resumed = 0
        self.task: asyncio.Task[None] = factory(self.loop, self._wait())

    async def _wait(self) -> None:
        while True:
            await cast(Awaitable[None], self.bell)
            self.resumed += 1

    async def end(self) -> None:
        """Cancel the task and wait for its end."""
        self.task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await self.task


async def turn(count: int = 3) -> None:
    """Let the loop run a few iterations."""
    for _ in range(count):
        await asyncio.sleep(0)


@every_factory
@every_mode
async def test_the_task_resumes_in_the_turn_of_the_ring(factory: Any, debug: bool) -> None:  # noqa: FBT001
    """The task runs inside the callback that rings the bell, and not before."""
    loop = asyncio.get_running_loop()
    loop.set_debug(debug)
    waiter = Waiter(factory)
    await turn()
    assert waiter.resumed == 0
    seen: list[tuple[int, asyncio.Task[Any] | None]] = []

    def ring() -> None:
        waiter.bell.ring()
        seen.append((waiter.resumed, asyncio.current_task()))

    for _ in range(3):
        loop.call_soon(ring)
        await turn()

    assert seen == [(1, None), (2, None), (3, None)]
    await waiter.end()


@every_factory
async def test_a_ring_before_the_first_await_counts(factory: Any) -> None:
    """Any number of early rings resumes the task once, which then handles everything due."""
    waiter = Waiter(factory)
    if waiter.bell._resume is None:  # an eager task waits already
        waiter.bell.ring()
        waiter.bell.ring()
        await turn()
        assert waiter.resumed == 1
    waiter.loop.call_soon(waiter.bell.ring)
    before = waiter.resumed
    await turn()

    assert waiter.resumed == before + 1
    await waiter.end()


@every_factory
async def test_two_rings_in_one_turn(factory: Any) -> None:
    """Each ring resumes the task, which awaits the bell again in between."""
    waiter = Waiter(factory)
    await turn()
    waiter.loop.call_soon(waiter.bell.ring)
    waiter.loop.call_soon(waiter.bell.ring)
    await turn()

    assert waiter.resumed == 2
    await waiter.end()


@pytest.mark.parametrize("factory", [plain, pure_python])
async def test_cancelled_before_it_waits(factory: Any) -> None:
    """The task ends cancelled, and a later ring resumes nothing."""
    waiter = Waiter(factory)
    await waiter.end()
    waiter.bell.ring()
    await turn()

    assert waiter.task.cancelled()
    assert waiter.resumed == 0


@every_factory
@pytest.mark.parametrize("order", ["ring cancel", "cancel ring", "cancel cancel ring ring"])
async def test_cancelled_in_the_turn_of_the_ring(factory: Any, order: str) -> None:
    """The task ends cancelled once; a ring before the cancellation still resumes it."""
    waiter = Waiter(factory)
    await turn()
    actions: dict[str, Callable[[], object]] = {
        "ring": waiter.bell.ring,
        "cancel": waiter.task.cancel,
    }
    for name in order.split():
        waiter.loop.call_soon(actions[name])
    with pytest.raises(asyncio.CancelledError):
        await waiter.task

    assert waiter.task.cancelled()
    assert waiter.resumed == (order == "ring cancel")


@every_factory
async def test_the_message_of_a_cancellation_is_no_error(factory: Any) -> None:
    """`task.cancel(msg=...)` passes its message to the awaited object."""
    waiter = Waiter(factory)
    await turn()
    waiter.task.cancel(msg="enough")
    with pytest.raises(asyncio.CancelledError):
        await waiter.task


@every_factory
async def test_an_exception_of_the_task_stays_in_the_task(factory: Any) -> None:
    """An exception after the ring ends the task and does not reach the ringing callback."""
    loop = asyncio.get_running_loop()
    bell = Bell(loop)

    async def fail() -> None:
        await cast(Awaitable[None], bell)
        raise ValueError("mine")

    task = factory(loop, fail())
    await turn()
    loop.call_soon(bell.ring)
    with pytest.raises(ValueError, match="mine"):
        await task


async def test_anyio_can_wait_until_all_tasks_are_blocked() -> None:
    """It asks the awaited object of every task, the driver task included."""
    async with Timer():
        with anyio.fail_after(5):
            await anyio.wait_all_tasks_blocked()


async def test_a_bell_is_done_unless_a_task_waits_for_it() -> None:
    """As a future, also between a cancellation and the step of the task that it causes."""
    waiter = Waiter(plain)
    await turn()
    assert not waiter.bell.done()

    waiter.task.cancel()
    assert waiter.bell.done()

    with pytest.raises(asyncio.CancelledError):
        await waiter.task


async def test_only_a_bell_that_a_task_awaits_can_be_cancelled() -> None:
    """As for a future, `cancel` returns True once."""
    bell = Bell(asyncio.get_running_loop())
    resumed: list[Bell] = []
    assert not bell.cancel()

    bell.add_done_callback(resumed.append)
    assert [bell.cancel(), bell.cancel()] == [True, False]
    await turn()

    assert resumed == [bell]
    with pytest.raises(asyncio.CancelledError):
        bell.result()


async def test_a_class_may_forward_its_await_to_the_bell() -> None:
    """The task resumes at the ring, as if it awaited the bell itself."""
    loop = asyncio.get_running_loop()
    bell = Bell(loop)

    class Forwarding:
        def __await__(self) -> Generator[Any, Any, None]:
            yield from bell.__await__()

    async def wait() -> None:
        await Forwarding()

    task = asyncio.ensure_future(wait())
    await turn()
    assert not task.done()
    loop.call_soon(bell.ring)
    await turn()

    assert task.done()
    await task


# --- the driver task ------------------------------------------------------------------------


def drivers() -> list[asyncio.Task[Any]]:
    """Return the tasks that drive timers of the running loop."""
    tasks = asyncio.all_tasks()
    if (list_python_tasks := getattr(asyncio.tasks, "_py_all_tasks", None)) is not None:
        tasks |= list_python_tasks()  # since Python 3.14, `all_tasks` lists only tasks in C
    return [task for task in tasks if task.get_name() == "aiowheel-driver"]


@every_factory
@every_mode
async def test_a_timer_works_with_every_task_factory(
    factory: Any,
    debug: bool,  # noqa: FBT001
    until: Until,
) -> None:
    """Deadlines fire, a cancelled driver starts again, closing ends the task."""
    loop = asyncio.get_running_loop()
    loop.set_debug(debug)
    loop.set_task_factory(factory)
    fired: list[int] = []
    errors: list[dict[str, Any]] = []
    loop.set_exception_handler(lambda _, context: errors.append(context))
    async with Timer() as timer:
        timer.call_later(0, fired.append, 1)
        await until(lambda: fired == [1])
        timer.call_later(0.001, fired.append, 2)
        await until(lambda: fired == [1, 2])
        (driver,) = drivers()
        timer.call_later(0.001, fired.append, 3)
        driver.cancel()
        await until(lambda: fired == [1, 2, 3])
        timer.call_later(0.001, driver.cancel)
        timer.call_later(0.001, fired.append, 4)
        await until(lambda: len(fired) == 4)
    loop.set_task_factory(None)

    assert errors == []
    assert drivers() == []


async def test_a_driver_cancelled_in_the_turn_of_its_alarm(until: Until) -> None:
    """A callback before the alarm, one after it, or the fired callback cancels the driver."""
    loop = asyncio.get_running_loop()
    fired: list[str] = []

    def driver_task() -> asyncio.Task[Any]:
        return next(task for task in asyncio.all_tasks() if task.get_name() == "aiowheel-driver")

    async with Timer() as timer:
        await turn()
        loop.call_soon(driver_task().cancel)
        timer.call_later(0, fired.append, "cancelled before")
        await until(lambda: len(fired) == 1)
        await turn()

        timer.call_later(0, fired.append, "cancelled after")
        loop.call_soon(driver_task().cancel)
        await until(lambda: len(fired) == 2)
        await turn()

        def cancel_driver() -> None:
            driver_task().cancel()
            fired.append("cancels")

        timer.call_later(0, cancel_driver)
        timer.call_later(0, fired.append, "same slice")
        await until(lambda: len(fired) == 4)
        await turn()
        timer.call_later(0.001, fired.append, "afterwards")
        await until(lambda: len(fired) == 5)

    assert fired == ["cancelled before", "cancelled after", "cancels", "same slice", "afterwards"]


async def test_the_current_task_inside_a_callback(until: Until) -> None:
    """The current task is the driver's; a callback must not await it, but may name it."""
    names: list[str] = []

    def note() -> None:
        task = asyncio.current_task()
        names.append("" if task is None else task.get_name())

    async with Timer() as timer:
        timer.call_later(0, note)
        timer.call_later(0.001, note)
        await until(lambda: len(names) == 2)

    assert names == ["aiowheel-driver"] * 2


async def test_the_driver_task_can_be_looked_at() -> None:
    """`repr` and the stack of a task that awaits its bell work."""
    async with Timer():
        await turn()
        (task,) = (task for task in asyncio.all_tasks() if task.get_name() == "aiowheel-driver")

        assert "aiowheel-driver" in repr(task)
        assert "DriverCoroutine" in repr(task)
        assert task.get_stack() == []  # its coroutine has no frame
