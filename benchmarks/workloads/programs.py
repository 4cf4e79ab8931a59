"""Third-party programs, unchanged, on the loop under test.

If the client has the timeouts and both sides are Python, client and server share a loop and the
whole process is measured. If the server has them, the clients run in another process and only the
server is measured.
"""

import asyncio
import json
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AsyncExitStack
from importlib import import_module
from time import perf_counter, process_time
from typing import Any

from benchmarks._clients import Clients, run_clients
from benchmarks._descriptors import connections_allowed
from benchmarks._quantile import quantile
from benchmarks._side import Figures
from benchmarks.workloads.http_clients import HttpTask
from benchmarks.workloads.server_counts import BACKLOG
from benchmarks.workloads.websocket_clients import WebsocketTask

TIMEOUT = 30.0  # seconds, never reached
STANDING_SECONDS = 3_600.0
_MICROSECONDS, _MILLISECONDS = 1e6, 1e3


async def aiohttp_echo(
    *, timeouts: bool, requests: int, at_once: int, standing: int
) -> AsyncGenerator[Figures, None]:
    """POST a text and get it back; *timeouts* are on the request, its parts, and the handler."""
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
    """`select` a number through a pool; *timeouts* are on each query and on idle connections."""
    asyncpg: Any = import_module("asyncpg")
    timeout = TIMEOUT if timeouts else None
    lifetime = 10 * TIMEOUT if timeouts else 0
    async with asyncpg.create_pool(
        address, min_size=at_once, max_size=at_once, max_inactive_connection_lifetime=lifetime
    ) as pool:

        async def request(number: int) -> None:
            assert await pool.fetchval("select $1::int", number, timeout=timeout) == number

        timers = _arm_standing(standing)
        while True:
            yield {**await _measure(request, requests, at_once), "standing": len(timers)}


async def redis_get(
    *, address: str, timeouts: bool, requests: int, at_once: int, standing: int
) -> AsyncGenerator[Figures, None]:
    """GET a value through a pool; *timeouts* are `socket_timeout`, on every read and write."""
    redis: Any = import_module("redis.asyncio")
    limits = {"socket_timeout": TIMEOUT if timeouts else None}
    async with redis.Redis(
        unix_socket_path=address, max_connections=at_once, **limits
    ) as connection:
        await connection.set("key", "value")

        async def request(_: int) -> None:
            assert await connection.get("key") == b"value"

        timers = _arm_standing(standing)
        while True:
            yield {**await _measure(request, requests, at_once), "standing": len(timers)}


async def fastapi_get(
    *, requests: int, at_once: int, standing: int
) -> AsyncGenerator[Figures, None]:
    """GET some JSON from FastAPI on uvicorn, over persistent connections.

    uvicorn arms a timer after every answer and cancels it when the next request arrives.
    """
    fastapi: Any = import_module("fastapi")
    uvicorn: Any = import_module("uvicorn")
    app = fastapi.FastAPI()

    async def answer() -> dict[str, str]:
        return {"hello": "world"}

    app.get("/")(answer)
    config = uvicorn.Config(app, port=0, log_level="warning", access_log=False, lifespan="off")
    server = uvicorn.Server(config)
    serving = asyncio.create_task(server.serve())
    while not server.started:  # noqa: ASYNC110 - uvicorn offers no event
        await asyncio.sleep(0.01)
    port = server.servers[0].sockets[0].getsockname()[1]
    task = HttpTask(port, at_once, requests)
    timers = _arm_standing(standing)
    try:
        while True:
            async with run_clients("http_clients", task) as clients:
                figures, cpu = await _round_of(clients)
            cost = cpu / requests * _MICROSECONDS
            yield {**figures, "cpu_us": cost, "standing": len(timers)}
    finally:
        server.should_exit = True
        await serving


async def websockets_pings(
    *, connections: int, interval: float, rate: float, seconds: float, standing: int
) -> AsyncGenerator[Figures, None]:
    """Keep connections alive with pings while echoing messages.

    Connections are opened anew for every round: between two rounds the loop stands still, and pings
    would be answered late.

    Args:
        connections: The maximum number of connections; the limit of the process may reduce it.
        interval: Seconds between two pings of one connection.
        rate: Total number of messages per second.
        seconds: Duration of a round.
        standing: Number of other pending timers.
    """
    serve: Any = import_module("websockets.asyncio.server").serve
    possible = min(connections, connections_allowed())
    timers = _arm_standing(standing)

    async def echo(connection: Any) -> None:
        async for message in connection:
            await connection.send(message)

    while True:
        async with AsyncExitStack() as stack:
            server = await stack.enter_async_context(
                serve(
                    echo,
                    "127.0.0.1",
                    0,
                    ping_interval=interval,
                    ping_timeout=TIMEOUT,
                    backlog=BACKLOG,
                )
            )
            port = next(iter(server.sockets)).getsockname()[1]
            task = WebsocketTask(port, possible, rate, seconds)
            clients = await stack.enter_async_context(run_clients("websocket_clients", task))
            figures, cpu = await _round_of(clients)
        cost = cpu / figures.pop("served") * _MICROSECONDS
        yield {**figures, "cpu_us": cost, "connections": possible, "standing": len(timers)}


async def _round_of(clients: Clients) -> tuple[Figures, float]:
    """Start the clients' work; return their figures, and this process's CPU seconds meanwhile."""
    await clients.read_line()  # the clients are connected
    cpu = process_time()
    clients.start_stage()
    figures: Figures = json.loads(await clients.read_line())
    return figures, process_time() - cpu


def _arm_standing(count: int) -> list[asyncio.TimerHandle]:
    """Arm timers of other parts of the process, none of which fires."""
    loop = asyncio.get_running_loop()
    return [loop.call_later(STANDING_SECONDS + place % 1_000, int) for place in range(count)]


async def _measure(
    request: Callable[[int], Awaitable[None]], requests: int, at_once: int
) -> Figures:
    numbers = iter(range(requests))
    latencies: list[float] = []

    async def one_after_the_other() -> None:
        for number in numbers:
            began = perf_counter()
            await request(number)
            latencies.append(perf_counter() - began)

    cpu, wall = process_time(), perf_counter()
    await asyncio.gather(*(one_after_the_other() for _ in range(at_once)))
    cpu, wall = process_time() - cpu, perf_counter() - wall
    return {
        "per_second": requests / wall,
        "p99_ms": quantile(sorted(latencies), 0.99) * _MILLISECONDS,
        "cpu_us": cpu / requests * _MICROSECONDS,
    }
