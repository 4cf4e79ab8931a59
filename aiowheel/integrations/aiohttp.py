"""Answers that wait, for aiohttp's server. Rank 4; extra `aiohttp`.

aiohttp tells a handler of a client that left by cancelling it, and only where the server was asked
for that: `web.run_app(app, handler_cancellation=True)`.
"""

from __future__ import annotations

from asyncio import Future, wait
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable, Iterable, Sequence
from http import HTTPStatus
from typing import Any, cast

from aiohttp import web

from aiowheel.abc import Instrument
from aiowheel.errors import AiowheelError, BadInputError
from aiowheel.integrations._jitter import spread
from aiowheel.integrations._poll import REFUSALS, Poll
from aiowheel.integrations._version import etag, seen_version
from aiowheel.purgatory import Purgatory
from aiowheel.timer import Timer

__all__ = ("PURGATORY", "TIMER", "add_wheel", "long_poll", "long_poll_version")

#: Keys of the application that `add_wheel` was called with: `request.config_dict[PURGATORY]`.
PURGATORY = web.AppKey("aiowheel.purgatory", Purgatory)
TIMER = web.AppKey("aiowheel.timer", Timer)

Render = Callable[[Any], web.Response]


def add_wheel(
    app: web.Application,
    name: str = "requests",
    *,
    tick: object = 0.001,
    max_pending: int | None = None,
    instruments: Sequence[Instrument] = (),
) -> None:
    """Give *app* a timer and a purgatory for as long as it runs: `app[TIMER]`, `app[PURGATORY]`.

    When the server is told to stop, every operation that waits expires at once: nobody holds the
    shutdown up.

    Args:
        app: Not started yet.
        name: The purgatory's.
        tick: The timer's.
        max_pending: Most requests that may wait at once; default: no limit.
        instruments: Told of every finished operation.
    """

    async def run_wheel(app: web.Application) -> AsyncIterator[None]:
        async with (
            Timer(tick=tick) as timer,
            Purgatory(
                name, timer=timer, max_pending=max_pending, instruments=instruments
            ) as purgatory,
        ):
            app[TIMER], app[PURGATORY] = timer, purgatory
            yield

    async def answer_everybody(app: web.Application) -> None:
        await app[PURGATORY].aclose()

    app.cleanup_ctx.append(run_wheel)
    app.on_shutdown.append(answer_everybody)


async def long_poll(
    request: web.Request,
    purgatory: Purgatory,
    *,
    keys: Iterable[Hashable],
    ready: Callable[[], object],
    timeout: object,  # noqa: ASYNC109 - of the poll; this call ends by itself
    jitter: object = 0.0,
    on_timeout: Callable[[], object] | None = None,
    render: Render = web.json_response,
    retry_after: int = 1,
) -> web.StreamResponse:
    """Answer once *ready* returns something true, or after the timeout.

    As `aiowheel.integrations.asgi.long_poll`, with aiohttp's requests and responses.

    Raises:
        AiowheelError: The server would not tell of a client that left.
        ValueError: *keys* is empty, or *jitter* is not from 0 to *timeout*.
        Exception: What *ready*, *on_timeout* or *render* raised.
    """
    poll = Poll(ready, on_timeout, spread(timeout, jitter))
    answer = await _answer_of(request, lambda: purgatory.watch(poll, keys), retry_after)
    if isinstance(answer, web.StreamResponse):
        response = answer
    elif answer is None:
        response = web.Response(status=HTTPStatus.NO_CONTENT)
    else:
        response = render(answer)
    response.headers.setdefault("Cache-Control", "no-store")
    return response


async def long_poll_version(
    request: web.Request,
    purgatory: Purgatory,
    key: Hashable,
    *,
    version: Callable[[], int],
    answer: Callable[[], object],
    timeout: object,  # noqa: ASYNC109 - of the poll; this call ends by itself
    jitter: object = 0.0,
    render: Render = web.json_response,
    retry_after: int = 1,
) -> web.StreamResponse:
    """Answer once the client's version of *key* is out of date, with the version as `ETag`.

    As `aiowheel.integrations.asgi.long_poll_version`, with aiohttp's requests and responses.

    Raises:
        AiowheelError: The server would not tell of a client that left.
    """
    longest = spread(timeout, jitter)
    current = version()
    try:
        seen = seen_version(
            request.headers.get("If-None-Match"), request.query.get("since"), current
        )
    except BadInputError as error:
        return web.Response(status=HTTPStatus.BAD_REQUEST, text=str(error))
    if seen.version == current:
        news = await _answer_of(
            request,
            lambda: purgatory.wait_until({key: current + 1}, timeout=longest),
            retry_after,
        )
        if isinstance(news, web.StreamResponse):
            return news
        # A version made after the timeout, in the same turn, is news all the same: its tag without
        # its answer would have the client wait for the one after it.
        if not news and version() == current:
            status = HTTPStatus.NOT_MODIFIED if seen.conditional else HTTPStatus.NO_CONTENT
            return _versioned(web.Response(status=status), current)
    found = answer()
    response = found if isinstance(found, web.StreamResponse) else render(found)
    return _versioned(response, version())


async def _answer_of(
    request: web.Request, watch: Callable[[], Awaitable[object]], retry_after: int
) -> object:
    """What the wait was for, or the response that tells why there is nothing."""
    _check_that_it_tells(request)
    try:
        waiter = cast("Future[object]", watch())
        try:
            await wait([waiter])
        finally:
            waiter.cancel()
        if not waiter.cancelled():
            return waiter.result()
    except REFUSALS:
        pass
    headers = {"Retry-After": str(retry_after), "Cache-Control": "no-store"}
    return web.Response(status=HTTPStatus.SERVICE_UNAVAILABLE, headers=headers)


def _check_that_it_tells(request: web.Request) -> None:
    # Private, but the only place that knows; where it is not found the caller is believed.
    server = getattr(request.protocol, "_manager", None)
    if server is not None and not getattr(server, "handler_cancellation", True):
        raise AiowheelError(
            "the server does not tell of clients that left: it must be started with "
            "handler_cancellation=True, as in web.run_app(app, handler_cancellation=True)"
        )


def _versioned(response: web.StreamResponse, version: int) -> web.StreamResponse:
    response.headers.setdefault("ETag", etag(version))
    response.headers.setdefault("Cache-Control", "no-cache")
    return response
