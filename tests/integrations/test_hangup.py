"""Waiting for a result or for the disconnect of the client."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

pytest.importorskip("starlette")
import anyio

from aiowheel import Purgatory, Timer
from aiowheel.integrations._hangup import done_before_disconnect, send_until_disconnect

pytestmark = [pytest.mark.one_build, pytest.mark.virtual_time]

DISCONNECT = {"type": "http.disconnect"}


def leaving_after(seconds: float) -> Callable[[], Awaitable[dict[str, Any]]]:
    """Return a `receive` that reports a disconnect after *seconds*."""

    async def receive() -> dict[str, Any]:
        await asyncio.sleep(seconds)
        return DISCONNECT

    return receive


async def test_a_result_ends_the_wait_for_a_disconnect() -> None:
    """Afterwards the task can be cancelled and awaited like any other."""
    async with Timer() as timer, Purgatory("p", timer=timer) as purgatory:
        asyncio.get_running_loop().call_later(1, purgatory.advance, "a", 1)

        assert await done_before_disconnect(
            purgatory.wait_until({"a": 1}, 60), leaving_after(3_600)
        )

        task = asyncio.current_task()
        assert task is not None
        assert task.cancelling() == 0
        await asyncio.sleep(1)


async def test_a_timeout_ends_the_wait_for_a_disconnect() -> None:
    """The client is connected, and gets an empty answer."""
    async with Timer() as timer, Purgatory("p", timer=timer) as purgatory:
        waiting = purgatory.wait_until({"a": 1}, 2)

        assert await done_before_disconnect(waiting, leaving_after(3_600))
        assert await waiting is False


async def test_a_disconnect_cancels_the_operation() -> None:
    """Nothing remains in the purgatory or on the wheel."""
    async with Timer() as timer, Purgatory("p", timer=timer) as purgatory:
        assert not await done_before_disconnect(
            purgatory.wait_until({"a": 1}, 60), leaving_after(1)
        )
        await asyncio.sleep(0)

        assert (len(purgatory), purgatory.watched, len(timer)) == (0, 0, 0)


async def test_a_cancelled_request_cancels_its_operation() -> None:
    """The cancellation is raised to the caller."""
    async with Timer() as timer, Purgatory("p", timer=timer) as purgatory:
        waiting = purgatory.wait_until({"a": 1}, 60)
        task = asyncio.ensure_future(done_before_disconnect(waiting, leaving_after(3_600)))
        await asyncio.sleep(1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.sleep(0)

        assert (len(purgatory), len(timer)) == (0, 0)


@pytest.mark.parametrize("first", ["news", "leaving"])
async def test_a_result_and_a_disconnect_in_one_loop_iteration(first: str) -> None:
    """In either order, no stray cancellation reaches the task's next await."""
    async with Timer() as timer, Purgatory("p", timer=timer) as purgatory:
        left = asyncio.Event()

        async def receive() -> dict[str, Any]:
            await left.wait()
            return DISCONNECT

        async def serve() -> None:
            await done_before_disconnect(purgatory.wait_until({"a": 1}, 60), receive)
            await asyncio.sleep(5)  # a late cancellation would interrupt this

        task = asyncio.ensure_future(serve())
        await asyncio.sleep(1)
        if first == "news":
            purgatory.advance("a", 1)
            left.set()
        else:
            left.set()
            purgatory.advance("a", 1)
        await task

        assert len(purgatory) == 0
        assert task.cancelling() == 0


@pytest.mark.parametrize("turns", range(8))
async def test_a_result_and_the_end_of_a_scope_of_anyio(turns: int) -> None:
    """The scope ends as usual, however many turns of the loop the two are apart."""

    async def receive() -> dict[str, Any]:  # as under BaseHTTPMiddleware
        async with anyio.create_task_group() as group:
            group.start_soon(anyio.sleep_forever)
            await anyio.sleep_forever()
        return DISCONNECT

    loop = asyncio.get_running_loop()
    waiting: asyncio.Future[bool] = loop.create_future()

    def end(scope: anyio.CancelScope, turns: int) -> None:
        if turns:
            loop.call_soon(end, scope, turns - 1)
        else:
            scope.cancel()

    with anyio.CancelScope() as scope:
        loop.call_soon(waiting.set_result, True)
        loop.call_soon(end, scope, turns)
        await done_before_disconnect(waiting, receive)
        await asyncio.sleep(1)

    task = asyncio.current_task()
    assert scope.cancelled_caught
    assert task is not None
    assert task.cancelling() == 0


async def test_a_disconnect_cancels_the_sending() -> None:
    """The sending has ended when the call returns."""
    ended: list[float] = []

    async def send() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            ended.append(asyncio.get_running_loop().time())

    start = asyncio.get_running_loop().time()
    await send_until_disconnect(send(), leaving_after(1), OSError)

    assert ended == [start + 1]


@pytest.mark.parametrize("error", [None, OSError, ValueError])
async def test_the_end_of_the_sending_ends_the_wait(error: type[Exception] | None) -> None:
    """Its error is raised, unless it is the one of a lost connection."""

    async def send() -> None:
        await asyncio.sleep(1)
        if error is not None:
            raise error

    start = asyncio.get_running_loop().time()
    try:
        await send_until_disconnect(send(), leaving_after(60), OSError)
    except ValueError:
        assert error is ValueError
    else:
        assert error is not ValueError

    assert asyncio.get_running_loop().time() == start + 1


async def test_an_error_of_receive_cancels_the_sending() -> None:
    """The error is raised to the server."""
    ended = asyncio.Event()

    async def send() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            ended.set()

    async def receive() -> dict[str, Any]:
        await asyncio.sleep(1)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await send_until_disconnect(send(), receive, OSError)

    assert ended.is_set()


async def test_a_cancellation_during_the_cleanup_is_not_lost() -> None:
    """The client has left; the server stops while the sending cleans up."""

    async def send() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            await asyncio.sleep(10)

    serving = asyncio.ensure_future(send_until_disconnect(send(), leaving_after(1), OSError))
    await asyncio.sleep(5)
    serving.cancel()

    with pytest.raises(asyncio.CancelledError):
        await serving
