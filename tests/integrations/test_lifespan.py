"""The timer and the purgatory that an application opens at its start."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Mount, Route

from aiowheel import AiowheelError, TimerClosedError
from aiowheel.integrations.asgi import get_purgatory, get_shared, get_timer, wheel_lifespan
from aiowheel.shared import SharedCounters
from aiowheel.testing import MemoryCounters

from .conftest import running

pytestmark = [pytest.mark.one_build, pytest.mark.virtual_time]


async def describe(request: Request) -> JSONResponse:
    """Return the types of the objects in the request's state."""
    purgatory, timer = await get_purgatory(request), await get_timer(request)
    return JSONResponse([purgatory.name, timer.time() > -1, request.state.purgatory is purgatory])


async def test_every_request_has_the_purgatory_and_the_timer() -> None:
    """This holds also in a mounted application."""
    inner = Starlette(routes=[Route("/", describe)])
    app = Starlette(
        routes=[Route("/", describe), Mount("/inner", inner)], lifespan=wheel_lifespan("polls")
    )

    async with running(app) as client:
        answers = [(await client.get(path)).json() for path in ("/", "/inner/")]

    assert answers == [["polls", True, True]] * 2


async def test_both_are_closed_at_the_end() -> None:
    """The purgatory is closed first; its operations expire while the timer is open."""
    async with wheel_lifespan(max_pending=1, tick=0.01)(None) as state:
        waiting = state["purgatory"].wait_for(lambda: False, ["key"], timeout=30)

    assert await waiting is False
    with pytest.raises(TimerClosedError):
        state["timer"].call_later(1, print)


async def test_it_can_be_part_of_another_lifespan() -> None:
    """The state of the requests has the values of both."""

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncGenerator[dict[str, object]]:
        async with wheel_lifespan()(app) as state:
            yield {**state, "pool": "a pool"}

    async def show(request: Request) -> JSONResponse:
        return JSONResponse([request.state.pool, (await get_purgatory(request)).name])

    async with running(Starlette(routes=[Route("/", show)], lifespan=lifespan)) as client:
        assert (await client.get("/")).json() == ["a pool", "requests"]


@pytest.mark.parametrize("get", [get_purgatory, get_timer])
async def test_an_application_without_the_lifespan_raises(get: Any) -> None:
    """The error names the missing lifespan, and the servers that run none."""
    request = Request({"type": "http", "state": {}})

    with pytest.raises(AiowheelError, match=r"wheel_lifespan\(\), and .* daphne runs none"):
        await get(request)


async def test_two_workers_share_counters() -> None:
    """A publish in one completes the request that waits in the other."""

    async def poll(request: Request) -> JSONResponse:
        shared = await get_shared(request)
        assert shared is request.state.shared
        return JSONResponse(await shared.wait_until({"doc": 1}, 30))

    async def write(request: Request) -> JSONResponse:
        return JSONResponse(await request.state.shared.advance("doc", 1))

    here = MemoryCounters()
    routes = [Route("/poll", poll), Route("/write", write)]
    one = Starlette(routes=routes, lifespan=wheel_lifespan(counters=here))
    two = Starlette(routes=routes, lifespan=wheel_lifespan(counters=here.beside()))

    async with running(one) as first, running(two) as second:
        polling = asyncio.create_task(first.get("/poll"))
        await asyncio.sleep(1)
        token = (await second.get("/write")).json()
        assert (await polling).json() is True
        assert token.endswith(":1")


async def test_the_counters_are_closed_with_the_application() -> None:
    """An application may start twice in one process."""
    lifespan = wheel_lifespan(counters=MemoryCounters())
    for number in range(2):
        async with lifespan(None) as state:
            shared = state.get("shared")
            assert isinstance(shared, SharedCounters)
            await shared.advance("doc", number)
        assert shared.closed


async def test_without_counters_the_request_has_none() -> None:
    """The error names the missing argument."""

    async def show(request: Request) -> JSONResponse:
        with pytest.raises(AiowheelError, match=r"\(counters=store\), and .* daphne runs none"):
            await get_shared(request)
        return JSONResponse("shared" in request.state._state)

    async with running(Starlette(routes=[Route("/", show)], lifespan=wheel_lifespan())) as client:
        assert (await client.get("/")).json() is False
