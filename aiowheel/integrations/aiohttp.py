"""Long polls for aiohttp's server. Rank 4; needs the `aiohttp` extra.

aiohttp cancels the handler of a client that disconnects, but only if the server is started with
`handler_cancellation=True`: `web.run_app(app, handler_cancellation=True)`.
"""

from __future__ import annotations

from asyncio import Future, ensure_future, wait
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable, Iterable, Sequence
from contextlib import suppress
from http import HTTPStatus
from typing import Any, cast, overload

from aiowheel._callbacks import AWAIT_BEFORE, plain_callback
from aiowheel._types import Delay
from aiowheel.abc import Instrument
from aiowheel.errors import AiowheelError, BadInputError, MissingExtraError
from aiowheel.integrations._jitter import spread
from aiowheel.integrations._poll import (
    REFUSALS,
    Poll,
    called,
    check_poll,
    check_retry_after,
    check_wheel,
)
from aiowheel.integrations._shared_poll import PollResult, SharedPoll
from aiowheel.integrations._version import etag, seen_token, seen_version, version_of
from aiowheel.purgatory import Purgatory
from aiowheel.shared import CounterStore, SharedCounters
from aiowheel.timer import Timer

try:
    from aiohttp import web
except ImportError as error:
    raise MissingExtraError("aiohttp") from error

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
    """
    check_wheel(name, tick, max_pending, instruments)

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
    check_poll(purgatory, retry_after)
    plain_callback("render", render, AWAIT_BEFORE)
    poll = Poll(ready, on_timeout, spread("timeout", timeout, jitter))
    answer = await _answer_of(request, lambda: purgatory.watch(poll, keys), retry_after)
    if isinstance(answer, web.StreamResponse):
        response = answer
    elif answer is None:
        response = web.Response(status=HTTPStatus.NO_CONTENT)
    else:
        response = cast(web.Response, called("render", render, answer))
    response.headers.setdefault("Cache-Control", "no-store")
    return response


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
    plain_callback("render", render, AWAIT_BEFORE)
    if isinstance(purgatory, SharedCounters):
        check_retry_after(retry_after)
        poll = SharedPoll(purgatory, key, answer, version)
        longest = spread("timeout", timeout, jitter)
        return await _shared_version(request, purgatory.epoch, poll, longest, render, retry_after)
    check_poll(purgatory, retry_after)
    for name, function in (("version", version), ("answer", answer)):
        plain_callback(name, cast(object, function), AWAIT_BEFORE)
    current_version = cast(Callable[[], int], version)
    longest = spread("timeout", timeout, jitter)
    current = version_of(current_version)
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
        # The version may have changed after the timeout in the same loop iteration. The client
        # needs that answer: with its tag alone it would wait for the version after it.
        if not news and version_of(current_version) == current:
            return _nothing_new(current, conditional=seen.conditional)
    found = called("answer", answer)
    if not isinstance(found, web.StreamResponse):
        found = cast(web.Response, called("render", render, found))
    return _versioned(found, version_of(current_version))


async def _shared_version(
    request: web.Request,
    epoch: str,
    poll: SharedPoll,
    longest: float,
    render: Render,
    retry_after: int,
) -> web.StreamResponse:
    try:
        seen = seen_token(request.headers.get("If-None-Match"), request.query.get("since"), epoch)
    except BadInputError as error:
        return web.Response(status=HTTPStatus.BAD_REQUEST, text=str(error))
    news = await _answer_of(
        request, lambda: ensure_future(poll.news(seen.token, longest)), retry_after
    )
    if isinstance(news, web.StreamResponse):
        return news
    token, changed = cast(PollResult, news)
    if not changed:
        return _nothing_new(token, conditional=seen.conditional)
    found = await poll.read()
    if isinstance(found, web.StreamResponse):
        return _versioned(found, token)
    tag = await poll.tag(found, token)
    return _versioned(cast(web.Response, called("render", render, found)), tag)


async def _answer_of(
    request: web.Request, watch: Callable[[], Awaitable[object]], retry_after: int
) -> object:
    """Return the result of the operation, or a 503 response if it has none."""
    _check_handler_cancellation(request)
    try:
        waiter = cast("Future[object]", watch())
        discarding = None if request.content.at_eof() else ensure_future(_discard_body(request))
        try:
            await wait([waiter])
        finally:
            waiter.cancel()
            if discarding is not None:
                discarding.cancel()
                await wait([discarding])  # aiohttp itself may then read the body
        if not waiter.cancelled():
            return waiter.result()
    except REFUSALS:
        pass
    headers = {"Retry-After": str(retry_after), "Cache-Control": "no-store"}
    return web.Response(status=HTTPStatus.SERVICE_UNAVAILABLE, headers=headers)


async def _discard_body(request: web.Request) -> None:
    # aiohttp receives nothing while much of a body is unread, and would miss the disconnect.
    with suppress(Exception):  # a malformed body, which the handler has not asked for
        await request.release()


def _check_handler_cancellation(request: web.Request) -> None:
    # aiohttp offers only this private attribute. If it is missing, the check is skipped.
    server = getattr(request.protocol, "_manager", None)
    if server is not None and not getattr(server, "handler_cancellation", True):
        raise AiowheelError(
            "the server must cancel the handlers of clients that disconnect: start it with "
            "handler_cancellation=True, as in web.run_app(app, handler_cancellation=True)"
        )


def _nothing_new(version: int | str, *, conditional: bool) -> web.StreamResponse:
    status = HTTPStatus.NOT_MODIFIED if conditional else HTTPStatus.NO_CONTENT
    return _versioned(web.Response(status=status), version)


def _versioned(response: web.StreamResponse, version: int | str) -> web.StreamResponse:
    response.headers.setdefault("ETag", etag(version))
    response.headers.setdefault("Cache-Control", "no-cache")
    return response
