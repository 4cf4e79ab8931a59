"""asyncpg's pool, unchanged, on a loop whose timers are on the wheel, with a real PostgreSQL."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from aiowheel.loop import WheelEventLoopMixin

asyncpg = pytest.importorskip("asyncpg")

pytestmark = [pytest.mark.one_build, pytest.mark.realtime]

ArmedBy = Callable[[Callable[[], Coroutine[Any, Any, None]]], set[str]]
COMMAND_TIMEOUT = "asyncpg.protocol.protocol.BaseProtocol._on_timeout"


def pending() -> int:
    """Return the number of pending timers on the running loop's wheel."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, WheelEventLoopMixin)
    return loop._wheel_driver.counts.pending


def test_a_command_that_takes_too_long_is_cancelled(armed_by: ArmedBy, postgres: str) -> None:
    """Client and server cancel it, not early, and its connection stays usable."""

    async def program() -> None:
        loop = asyncio.get_running_loop()
        async with asyncpg.create_pool(postgres, min_size=1, max_size=1) as pool:
            began = loop.time()
            with pytest.raises(TimeoutError):
                await pool.execute("select pg_sleep(60)", timeout=0.2)
            assert loop.time() - began >= 0.2
            still_running = "select count(*) from pg_stat_activity where wait_event = 'PgSleep'"
            assert await pool.fetchval(still_running, timeout=60) == 0

    armed = armed_by(program)

    assert COMMAND_TIMEOUT in armed


def test_every_command_of_a_busy_pool_has_its_timeout_on_the_wheel(
    armed_by: ArmedBy, postgres: str
) -> None:
    """The number of pending timers equals that of running commands, and is 0 after all replies."""

    async def program() -> None:
        options = {"command_timeout": 120, "max_inactive_connection_lifetime": 0}
        async with asyncpg.create_pool(postgres, min_size=5, max_size=5, **options) as pool:
            assert pending() == 0
            holder = await asyncpg.connect(postgres)
            await holder.execute("select pg_advisory_lock(1)")
            wait = "select pg_advisory_xact_lock_shared(1)"
            slow = [asyncio.create_task(pool.execute(wait)) for _ in range(5)]
            while pending() < 5:  # noqa: ASYNC110 - the library sets no event
                await asyncio.sleep(0.01)
            assert pending() == 5
            await holder.execute("select pg_advisory_unlock(1)")
            await asyncio.gather(*slow)
            await holder.close()
            answers = await asyncio.gather(
                *(pool.fetchval("select $1::int", i) for i in range(300))
            )
            assert answers == list(range(300))

    armed = armed_by(program)

    assert COMMAND_TIMEOUT in armed


def test_an_inactive_connection_is_closed(armed_by: ArmedBy, postgres: str) -> None:
    """The pool's own timer closes it after `max_inactive_connection_lifetime` and not before."""

    async def program() -> None:
        loop = asyncio.get_running_loop()
        async with asyncpg.create_pool(
            postgres, min_size=0, max_size=3, max_inactive_connection_lifetime=0.2
        ) as pool:
            connections = [await pool.acquire() for _ in range(3)]
            assert pool.get_size() == 3
            began = loop.time()
            for connection in connections:
                await pool.release(connection)
            while pool.get_size():  # noqa: ASYNC110 - the pool sets no event
                await asyncio.sleep(0.005)
            assert loop.time() - began >= 0.2
            assert await pool.fetchval("select 1") == 1

    armed = armed_by(program)

    assert "asyncpg.pool.PoolConnectionHolder._deactivate_inactive_connection" in armed
