"""A timer and a purgatory for the lifespan of an ASGI application. Rank 4; extra `web`."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from signal import SIGINT, SIGTERM, Signals
from typing import Any, NotRequired, TypedDict, TypeVar

from starlette.requests import HTTPConnection

from aiowheel._types import Delay
from aiowheel.abc import Instrument
from aiowheel.errors import AiowheelError
from aiowheel.integrations._poll import check_wheel
from aiowheel.integrations._stop_signals import checked_signals, task_at_signal
from aiowheel.purgatory import Purgatory
from aiowheel.shared import CounterStore, SharedCounters
from aiowheel.timer import Timer

T = TypeVar("T")

_SERVE_IT = (
    "and serve it by a server that runs the lifespan: daphne runs none, nor does "
    "httpx.ASGITransport, nor Starlette's TestClient outside of `with`"
)


class WheelState(TypedDict):
    """The attributes that the lifespan adds to `request.state`."""

    timer: Timer
    purgatory: Purgatory
    shared: NotRequired[SharedCounters]


def wheel_lifespan(
    name: str = "requests",
    *,
    tick: Delay = 0.001,
    max_pending: int | None = None,
    instruments: Sequence[Instrument] = (),
    counters: CounterStore | None = None,
    signals: Sequence[Signals] = (SIGINT, SIGTERM),
) -> Callable[[Any], AbstractAsyncContextManager[WheelState]]:
    """Return a lifespan with a `Timer` and a `Purgatory`: `Starlette(lifespan=wheel_lifespan())`.

    Every request has them as `request.state.timer` and `request.state.purgatory`. Inside a lifespan
    of your own: `async with wheel_lifespan()(app) as state: yield {**state, "pool": pool}`.

    Servers finish the running requests before they end the lifespan. So when the process gets one
    of *signals*, every pending operation expires at once, and later operations are refused.

    Args:
        name: The name of the purgatory.
        tick: The tick of the timer.
        max_pending: Maximum number of requests that wait at the same time; default: no limit.
        instruments: Observers of every finished operation.
        counters: The store of `SharedCounters` over the purgatory; every request then has them as
            `request.state.shared`. Each process needs its own store object, on the same address.
        signals: The signals that stop the server. The server's handlers are called as well.

    Raises:
        TypeError, ValueError: As `Timer` and `Purgatory`.
        TypeError: *counters* is not a `CounterStore`, or *signals* is not a sequence of signals.
        StoreUnavailableError: The store of *counters* does not answer. The lifespan raises it when
            it starts.
    """
    check_wheel(name, tick, max_pending, instruments, counters)
    handled = checked_signals(signals)

    @asynccontextmanager
    async def lifespan(_app: object) -> AsyncGenerator[WheelState]:
        async with (
            Timer(tick=tick) as timer,
            Purgatory(
                name, timer=timer, max_pending=max_pending, instruments=instruments
            ) as purgatory,
        ):
            state: WheelState = {"timer": timer, "purgatory": purgatory}
            async with AsyncExitStack() as stack:
                if counters is not None:
                    shared = SharedCounters(purgatory, counters)
                    state["shared"] = await stack.enter_async_context(shared)
                with task_at_signal(handled, purgatory.aclose):
                    yield state

    return lifespan


async def get_purgatory(connection: HTTPConnection) -> Purgatory:
    """Return the lifespan's purgatory; in FastAPI `Depends(get_purgatory)`.

    It is a coroutine function because FastAPI calls plain functions in a thread. A handler of
    Starlette can read `request.state.purgatory` instead.

    Raises:
        AiowheelError: The application has no `wheel_lifespan`, or its server does not run it.
    """
    return _from_state(connection, "purgatory", Purgatory)


async def get_timer(connection: HTTPConnection) -> Timer:
    """Return the lifespan's timer; in FastAPI `Depends(get_timer)`.

    Raises:
        AiowheelError: The application has no `wheel_lifespan`, or its server does not run it.
    """
    return _from_state(connection, "timer", Timer)


async def get_shared(connection: HTTPConnection) -> SharedCounters:
    """Return the lifespan's shared counters; in FastAPI `Depends(get_shared)`.

    Raises:
        AiowheelError: The application has no `wheel_lifespan` with `counters`, or its server does
            not run it.
    """
    return _from_state(connection, "shared", SharedCounters, "shared counters", "counters=store")


def _from_state(
    connection: HTTPConnection, name: str, kind: type[T], noun: str = "", option: str = ""
) -> T:
    found: object = getattr(connection.state, name, None)
    if not isinstance(found, kind):
        raise AiowheelError(
            f"no {noun or name} in request.state: give the app "
            f"lifespan=wheel_lifespan({option}), {_SERVE_IT}"
        )
    return found
