"""Long polls for aiohttp's server. Rank 4; needs the `aiohttp` extra.

aiohttp cancels the handler of a client that disconnects, but only if the server is started with
`handler_cancellation=True`: `web.run_app(app, handler_cancellation=True)`.
"""

from __future__ import annotations

from asyncio import Future, ensure_future, wait
from collections.abc import AsyncIterator, Callable, Hashable, Iterable, Sequence
from contextlib import suppress
from typing import Any, overload

from aiowheel._arguments import safe_repr
from aiowheel._types import Delay
from aiowheel.abc import Instrument
from aiowheel.errors import AiowheelError, MissingExtraError
from aiowheel.integrations._exchange import Exchange
from aiowheel.integrations._jitter import spread
from aiowheel.integrations._poll import Poll, check_wheel
from aiowheel.integrations._version import one_header
from aiowheel.purgatory import Purgatory
from aiowheel.shared import CounterStore, SharedCounters
from aiowheel.timer import Timer

try:
    from aiohttp import web
except ImportError as _error:
    raise MissingExtraError("aiohttp") from _error

__all__ = ("PURGATORY", "SHARED", "TIMER", "add_wheel", "long_poll", "long_poll_version")

#: The keys that `add_wheel` sets in the application: `request.config_dict[PURGATORY]`.
PURGATORY = web.AppKey("aiowheel.purgatory", Purgatory)
SHARED = web.AppKey("aiowheel.shared", SharedCounters)
TIMER = web.AppKey("aiowheel.timer", Timer)

Render = Callable[[Any], web.Response]


def add_wheel(
    app: web.Application,
    name: str = "requests",
    *,
    tick: Delay = 0.001,
    max_pending: int | None = None,
    instruments: Sequence[Instrument] = (),
    counters: CounterStore | None = None,
) -> None:
    """Open a timer and a purgatory while *app* runs: `app[TIMER]` and `app[PURGATORY]`.

    When the server shuts down, all pending operations expire at once, so that they do not delay it.

    Args:
        app: The application, before its start.
        name: The name of the purgatory.
        tick: The tick of the timer.
        max_pending: Maximum number of requests that wait at the same time; default: no limit.
        instruments: Observers of every finished operation.
        counters: The store of `SharedCounters` over the purgatory, available as `app[SHARED]`. Each
            process needs its own store object, on the same address.

    Raises:
        TypeError, ValueError: As `Timer` and `Purgatory`.
        TypeError: *counters* is not a `CounterStore`.
    """
    check_wheel(name, tick, max_pending, instruments, counters)

    async def run_wheel(app: web.Application) -> AsyncIterator[None]:
        async with (
            Timer(tick=tick) as timer,
            Purgatory(
                name, timer=timer, max_pending=max_pending, instruments=instruments
            ) as purgatory,
        ):
            app[TIMER], app[PURGATORY] = timer, purgatory
            if counters is None:
                yield
                return
            async with SharedCounters(purgatory, counters) as shared:
                app[SHARED] = shared
                yield

    async def expire_pending(app: web.Application) -> None:
        await app[PURGATORY].aclose()

    app.cleanup_ctx.append(run_wheel)
    app.on_shutdown.append(expire_pending)


async def long_poll(
    request: web.Request,
    purgatory: Purgatory,
    *,
    keys: Iterable[Hashable],
    ready: Callable[[], object],
    timeout: Delay | None,  # noqa: ASYNC109 - of the poll; this call ends by itself
    jitter: Delay = 0.0,
    on_timeout: Callable[[], object] | None = None,
    render: Render = web.json_response,
    retry_after: int = 1,
) -> web.StreamResponse:
    """Answer a request once *ready* returns something true, or after the timeout.

    As `aiowheel.integrations.asgi.long_poll`, with aiohttp's requests and responses.

    Raises:
        AiowheelError: The server runs without `handler_cancellation=True`.
        ValueError: *keys* is empty, or *jitter* is not from 0 to *timeout*.
        TypeError: An argument has the wrong type, or a function is a coroutine function.
        Exception: The error that *ready*, *on_timeout* or *render* raised.
    """
    exchange = _Exchange(request, render, retry_after)
    poll = Poll(ready, on_timeout, spread("timeout", timeout, jitter))
    return await exchange.answer(purgatory, poll, keys)


@overload
async def long_poll_version(
    request: web.Request,
    purgatory: Purgatory,
    key: Hashable,
    *,
    version: Callable[[], int],
    answer: Callable[[], object],
    timeout: Delay | None,  # noqa: ASYNC109 - of the poll; this call ends by itself
    jitter: Delay = 0.0,
    render: Render = web.json_response,
    retry_after: int = 1,
) -> web.StreamResponse: ...


@overload
async def long_poll_version(
    request: web.Request,
    purgatory: SharedCounters,
    key: str,
    *,
    version: Callable[[Any], int] | None = None,
    answer: Callable[[], object],
    timeout: Delay | None,  # noqa: ASYNC109 - of the poll; this call ends by itself
    jitter: Delay = 0.0,
    render: Render = web.json_response,
    retry_after: int = 1,
) -> web.StreamResponse: ...


async def long_poll_version(
    request: web.Request,
    purgatory: Purgatory | SharedCounters,
    key: Any,
    *,
    version: Callable[..., int] | None = None,
    answer: Callable[[], object],
    timeout: Delay | None,  # noqa: ASYNC109 - of the poll; this call ends by itself
    jitter: Delay = 0.0,
    render: Render = web.json_response,
    retry_after: int = 1,
) -> web.StreamResponse:
    """Answer once the client's version of *key* is out of date, with the version as `ETag`.

    As `aiowheel.integrations.asgi.long_poll_version`, with aiohttp's requests and responses.

    Raises:
        AiowheelError: The server runs without `handler_cancellation=True`.
        ValueError: *jitter* is not from 0 to *timeout*, or a key or version is out of range.
        TypeError: An argument has the wrong type, or a function is a coroutine function.
        Exception: The error that *version*, *answer* or *render* raised.
    """
    exchange = _Exchange(request, render, retry_after)
    longest = spread("timeout", timeout, jitter)
    return await exchange.answer_version(purgatory, key, version, answer, longest)


class _Exchange(Exchange[web.StreamResponse]):
    response_class = web.StreamResponse

    def __init__(self, request: object, render: Render, retry_after: int) -> None:
        if not isinstance(request, web.BaseRequest):  # a Request is a subclass
            raise TypeError(f"request must be a Request of aiohttp, got {safe_repr(request)}")
        super().__init__(render, retry_after)
        self._request = request

    def seen(self) -> tuple[str | None, str | None]:
        tags = one_header(self._request.headers.getall("If-None-Match", []))
        return tags, self._request.query.get("since")

    def response(self, status: int, text: str | None = None) -> web.StreamResponse:
        return web.Response(status=status, text=text)

    async def ended(self, watch: Callable[[], Future[Any]]) -> Future[Any] | None:
        request = self._request
        _check_handler_cancellation(request)
        waiter = watch()
        discarding = None if request.content.at_eof() else ensure_future(_discard_body(request))
        try:
            await wait([waiter])
        finally:
            waiter.cancel()
            if discarding is not None:
                discarding.cancel()
                await wait([discarding])  # aiohttp itself may then read the body
        return waiter


async def _discard_body(request: web.BaseRequest) -> None:
    # aiohttp receives nothing while much of a body is unread, and would miss the disconnect.
    with suppress(Exception):  # a malformed body, which the handler has not asked for
        await request.release()


def _check_handler_cancellation(request: web.BaseRequest) -> None:
    # aiohttp offers only this private attribute. If it is missing, the check is skipped.
    server = getattr(request.protocol, "_manager", None)
    if server is not None and not getattr(server, "handler_cancellation", True):
        raise AiowheelError(
            "the server must cancel the handlers of clients that disconnect: start it with "
            "handler_cancellation=True, as in web.run_app(app, handler_cancellation=True)"
        )
