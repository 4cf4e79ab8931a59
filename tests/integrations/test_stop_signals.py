"""A signal to a server while requests wait."""

import asyncio
import functools
import itertools
import os
import signal
import socket
import threading
from collections.abc import Generator, Sequence
from contextlib import AbstractContextManager
from functools import partial

import pytest
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from aiowheel.integrations._stop_signals import signal_listener
from aiowheel.integrations.asgi import get_purgatory, long_poll, wheel_lifespan

pytestmark = pytest.mark.one_build


@pytest.fixture
def heard() -> Generator[list[int]]:
    """The signals that reach the process's own handler for SIGTERM."""
    numbers: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda number, _: numbers.append(number))
    yield numbers
    signal.signal(signal.SIGTERM, before)


@pytest.mark.realtime
@pytest.mark.both_loops
async def test_sigterm_answers_all_waiting_polls(heard: list[int]) -> None:
    """The server ends at once, although the polls have five minutes left; none is aborted."""
    waiting = 20

    async def poll(request: Request) -> Response:
        purgatory = await get_purgatory(request)
        if len(purgatory) == waiting - 1:
            asyncio.get_running_loop().call_soon(os.kill, os.getpid(), signal.SIGTERM)
        return await long_poll(request, purgatory, keys=["news"], ready=lambda: None, timeout=300)

    app = Starlette(routes=[Route("/", poll)], lifespan=wheel_lifespan())
    server = uvicorn.Server(uvicorn.Config(app, log_config=None, access_log=False))
    listener = socket.create_server(("127.0.0.1", 0))
    serving = asyncio.create_task(server.serve(sockets=[listener]))
    answers = await asyncio.gather(*[status_of(listener.getsockname()[1]) for _ in range(waiting)])
    await serving

    assert answers == [b"HTTP/1.1 204 No Content\r\n"] * waiting
    assert heard == [signal.SIGTERM]  # uvicorn raises the signal again after its shutdown


async def status_of(port: int) -> bytes:
    """Return the status line of a poll."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
    line = await reader.readline()
    writer.close()
    await writer.wait_closed()
    return line


@pytest.mark.virtual_time
@pytest.mark.parametrize("signals", [(), [signal.SIGINT], [signal.SIGTERM]])
async def test_the_lifespan_handles_the_given_signals_alone(
    signals: Sequence[signal.Signals], heard: list[int]
) -> None:
    """Without SIGTERM the operations stay pending, and the server's handler is called as well."""
    async with wheel_lifespan(signals=signals)(None) as state:
        waiting = state["purgatory"].wait_for(lambda: False, ["news"], timeout=30)
        signal.raise_signal(signal.SIGTERM)
        await asyncio.sleep(1)

        assert waiting.done() == (signal.SIGTERM in signals)
    assert heard == [signal.SIGTERM]


async def test_the_handler_that_was_there_is_called_and_put_back(heard: list[int]) -> None:
    """After the block the signal has its earlier handler."""
    calls = asyncio.Queue[str]()
    own = signal.getsignal(signal.SIGTERM)
    with signal_listener([signal.SIGTERM], lambda: calls.put_nowait("heard")):
        signal.raise_signal(signal.SIGTERM)
        assert await calls.get() == "heard"
    signal.raise_signal(signal.SIGTERM)

    assert signal.getsignal(signal.SIGTERM) is own
    assert (heard, calls.empty()) == ([signal.SIGTERM] * 2, True)


@pytest.mark.posix
async def test_a_signal_without_a_handler_is_left_alone() -> None:
    """It still ends the process."""
    assert signal.getsignal(signal.SIGUSR1) is signal.SIG_DFL

    with signal_listener([signal.SIGUSR1], pytest.fail):
        assert signal.getsignal(signal.SIGUSR1) is signal.SIG_DFL


async def test_a_handler_that_was_set_meanwhile_stays(heard: list[int]) -> None:
    """Only the block's own handler is replaced at the end."""
    with signal_listener([signal.SIGTERM], pytest.fail):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)

    assert signal.getsignal(signal.SIGTERM) is signal.SIG_IGN


async def test_blocks_may_end_in_any_order(heard: list[int]) -> None:
    """Two overlapping blocks, as of two dashboards, must not build a growing chain of handlers."""
    calls = asyncio.Queue[str]()
    own = signal.getsignal(signal.SIGTERM)
    blocks = [
        signal_listener([signal.SIGTERM], functools.partial(calls.put_nowait, name))
        for name in "ab" * 1000
    ]
    for earlier, later in itertools.pairwise(blocks):
        if earlier is blocks[0]:
            earlier.__enter__()
        later.__enter__()
        if later is not blocks[-1]:
            earlier.__exit__(None, None, None)

    signal.raise_signal(signal.SIGTERM)
    assert [await calls.get(), await calls.get()] == ["a", "b"]
    for block in blocks[-2:]:
        block.__exit__(None, None, None)

    assert (heard, calls.empty()) == ([signal.SIGTERM], True)
    assert signal.getsignal(signal.SIGTERM) is own


def test_a_loop_that_ended_first_is_not_called(heard: list[int]) -> None:
    """A block that was never left keeps its handler; the earlier handler is still called."""

    async def begin() -> AbstractContextManager[None]:
        block = signal_listener([signal.SIGTERM], pytest.fail)
        block.__enter__()
        return block

    block = asyncio.run(begin())
    signal.raise_signal(signal.SIGTERM)
    block.__exit__(None, None, None)

    assert heard == [signal.SIGTERM]


def test_another_thread_gets_no_signals(heard: list[int]) -> None:
    """The block does nothing there."""
    own = signal.getsignal(signal.SIGTERM)
    handlers: list[object] = []

    async def look() -> None:
        with signal_listener([signal.SIGTERM], pytest.fail):
            handlers.append(signal.getsignal(signal.SIGTERM))

    thread = threading.Thread(target=asyncio.run, args=(look(),))
    thread.start()
    thread.join()

    assert handlers == [own]


@pytest.mark.parametrize("first", ["outer", "inner"])
async def test_a_block_hears_the_signal_after_another_has_ended(
    heard: list[int],
    first: str,
) -> None:
    """The handler stays until the last block ends, in whatever order they end."""
    calls: list[str] = []
    own = signal.getsignal(signal.SIGTERM)
    blocks = {
        name: signal_listener([signal.SIGTERM], partial(calls.append, name))
        for name in ("outer", "inner")
    }
    for block in blocks.values():
        block.__enter__()
    blocks.pop(first).__exit__(None, None, None)
    signal.raise_signal(signal.SIGTERM)
    await asyncio.sleep(0)

    assert (calls, heard) == ([*blocks], [signal.SIGTERM])
    for block in blocks.values():
        block.__exit__(None, None, None)
    assert signal.getsignal(signal.SIGTERM) is own
