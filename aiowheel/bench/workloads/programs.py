"""Other people's programs, unchanged, on the loop under test. Rank 5.

Client and server share a loop where both are Python; what is measured is the whole process.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from importlib import import_module
from time import perf_counter, process_time
from typing import Any

from aiowheel.bench._side import Figures

TIMEOUT = 30.0  # seconds; nothing takes as long
STANDING_SECONDS = 3_600.0


async def aiohttp_echo(
    *, timeouts: bool, requests: int, at_once: int, standing: int
) -> AsyncGenerator[Figures, None]:
    """POST a text, get it back; *timeouts*: of the request, of its parts, and of the handler."""
    from aiohttp import ClientSession, ClientTimeout, web

    async def echo(request: web.Request) -> web.Response:
        if not timeouts:
            return web.Response(text=await request.text())
        async with asyncio.timeout(TIMEOUT):
            return web.Response(text=await request.text())

    app = web.Application()
    app.router.add_post("/", echo)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    host, port = runner.addresses[0][:2]
    limits = ClientTimeout(total=TIMEOUT, sock_read=TIMEOUT) if timeouts else ClientTimeout()
    async with ClientSession(f"http://{host}:{port}", timeout=limits) as session:

        async def request(number: int) -> None:
            async with session.post("/", data=str(number)) as response:
                assert await response.text() == str(number)

        timers = _arm_standing(standing)
        while True:
            yield {**await _measure(request, requests, at_once), "standing": len(timers)}


async def asyncpg_select(
    *, address: str, timeouts: bool, requests: int, at_once: int, standing: int
) -> AsyncGenerator[Figures, None]:
    """`select` a number through a pool; *timeouts*: of commands and of idle connections."""
    asyncpg: Any = import_module("asyncpg")
    limits = {
        "command_timeout": TIMEOUT if timeouts else None,
        "max_inactive_connection_lifetime": 10 * TIMEOUT if timeouts else 0,
    }
    async with asyncpg.create_pool(address, min_size=at_once, max_size=at_once, **limits) as pool:

        async def request(number: int) -> None:
            assert await pool.fetchval("select $1::int", number) == number

        timers = _arm_standing(standing)
        while True:
            yield {**await _measure(request, requests, at_once), "standing": len(timers)}


def _arm_standing(count: int) -> list[asyncio.TimerHandle]:
    """Timers of other parts of the process, none of which fires."""
    loop = asyncio.get_running_loop()
    return [loop.call_later(STANDING_SECONDS + place % 1_000, int) for place in range(count)]


async def _measure(
    request: Callable[[int], Awaitable[None]], requests: int, at_once: int
) -> Figures:
    numbers = iter(range(requests))

    async def one_after_the_other() -> None:
        for number in numbers:
            await request(number)

    cpu, wall = process_time(), perf_counter()
    await asyncio.gather(*(one_after_the_other() for _ in range(at_once)))
    cpu, wall = process_time() - cpu, perf_counter() - wall
    return {"per_second": requests / wall, "cpu_us": cpu / requests * 1e6}
