"""A timer and a purgatory for as long as an application lives. Rank 4; needs the `web` extra."""

from __future__ import annotations

from asyncio import Task, create_task
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from signal import SIGINT, SIGTERM, Signals
from typing import Any, TypedDict

from starlette.requests import HTTPConnection

from aiowheel.abc import Instrument
from aiowheel.errors import AiowheelError
from aiowheel.integrations._signals import hearing
from aiowheel.purgatory import Purgatory
from aiowheel.timer import Timer


class WheelState(TypedDict):
    """What the lifespan adds to `request.state`."""

    timer: Timer
    purgatory: Purgatory


def wheel_lifespan(
    name: str = "requests",
    *,
    tick: object = 0.001,
    max_pending: int | None = None,
    instruments: Sequence[Instrument] = (),
    signals: Sequence[Signals] = (SIGINT, SIGTERM),
) -> Callable[[Any], AbstractAsyncContextManager[WheelState]]:
    """A lifespan that opens a `Timer` and a `Purgatory`: `Starlette(lifespan=wheel_lifespan())`.

    They are `request.state.timer` and `request.state.purgatory` in every request. Inside a lifespan
    of your own: `async with wheel_lifespan()(app) as state: yield {**state, "pool": pool}`.

    When the server is told to stop, every operation that waits expires at once, and later ones are
    refused: servers wait for the requests under way before they end the lifespan.

    Args:
        name: The purgatory's.
        tick: The timer's.
        max_pending: Most requests that may wait at once; default: no limit.
        instruments: Told of every finished operation.
        signals: Those that tell the server to stop. Its own handlers are called as well.
    """

    @asynccontextmanager
    async def lifespan(_app: object) -> AsyncGenerator[WheelState]:
        closing: list[Task[None]] = []  # a task that nobody holds may vanish
        async with (
            Timer(tick=tick) as timer,
            Purgatory(
                name, timer=timer, max_pending=max_pending, instruments=instruments
            ) as purgatory,
        ):
            with hearing(signals, lambda: closing.append(create_task(purgatory.aclose()))):
                yield {"timer": timer, "purgatory": purgatory}

    return lifespan


async def get_purgatory(connection: HTTPConnection) -> Purgatory:
    """The lifespan's purgatory, for a request or websocket; in FastAPI `Depends(get_purgatory)`.

    A coroutine, for FastAPI calls plain functions in a thread. Starlette's handlers may as well
    read `request.state.purgatory`.

    Raises:
        AiowheelError: The application has no `wheel_lifespan`.
    """
    purgatory: object = getattr(connection.state, "purgatory", None)
    if not isinstance(purgatory, Purgatory):
        raise AiowheelError("no purgatory in request.state: give the app lifespan=wheel_lifespan()")
    return purgatory


async def get_timer(connection: HTTPConnection) -> Timer:
    """The lifespan's timer; see `get_purgatory`.

    Raises:
        AiowheelError: The application has no `wheel_lifespan`.
    """
    timer: object = getattr(connection.state, "timer", None)
    if not isinstance(timer, Timer):
        raise AiowheelError("no timer in request.state: give the app lifespan=wheel_lifespan()")
    return timer
