"""Long polls for Starlette and FastAPI. Rank 4; needs the `web` extra."""

from __future__ import annotations

from asyncio import Future, ensure_future
from collections.abc import Awaitable, Callable, Hashable, Iterable
from http import HTTPStatus
from typing import Any, cast, overload

from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.types import Receive

from aiowheel._callbacks import AWAIT_BEFORE, plain_callback
from aiowheel._types import Delay
from aiowheel.errors import BadInputError
from aiowheel.integrations._hangup import done_before
from aiowheel.integrations._jitter import spread
from aiowheel.integrations._poll import (
    CLIENT_CLOSED_REQUEST,
    REFUSALS,
    Poll,
    called,
    check_poll,
    check_retry_after,
)
from aiowheel.integrations._shared_poll import PollResult, SharedPoll
from aiowheel.integrations._version import etag, seen_token, seen_version, version_of
from aiowheel.purgatory import Purgatory
from aiowheel.shared import SharedCounters

Render = Callable[[Any], Response]


async def long_poll(
    request: Request,
    purgatory: Purgatory,
    *,
    keys: Iterable[Hashable],
    ready: Callable[[], object],
    timeout: Delay | None,  # noqa: ASYNC109 - of the poll; this call ends by itself
    jitter: Delay = 0.0,
    on_timeout: Callable[[], object] | None = None,
    render: Render = JSONResponse,
    retry_after: int = 1,
) -> Response:
    """Answer a request once *ready* returns something true, or after the timeout.

    The request waits in *purgatory*, without a task or a timer of its own. After a change the
    application calls `purgatory.check_and_complete(key)`. If the client disconnects, the operation
    is cancelled at once. Read the body of the request before this call, which discards the rest.

    The four functions are plain functions; aiowheel does not await them.

    Args:
        request: A request of Starlette or FastAPI.
        purgatory: The purgatory in which the request waits.
        keys: At least one hashable.
        ready: Returns a `Response` or a value for *render*; a false value means not yet. `ready`
            must have no side effects: if the client disconnects at that moment, anything it removed
            is lost.
        timeout: Seconds or timedelta; None for no timeout.
        jitter: The timeout is shorter by a random time from 0 to this. Polls that started at the
            same time then end at different times.
        on_timeout: Returns a `Response` or a value for *render*; default: 204 without a body.
        render: Makes a response of a value; default: JSON.
        retry_after: Seconds after which a refused client may try again.

    Returns:
        The answer. After the timeout, or when the purgatory closes with `drain="expire"`: 204, or
        the result of *on_timeout*. If the purgatory is full or closed, or `cancel_for_key` has
        cancelled the operation: 503 with `Retry-After`. If the client has disconnected: 499, which
        is not sent.

    Raises:
        ValueError: *keys* is empty, or *jitter* is not from 0 to *timeout*.
        TypeError: An argument has the wrong type, or a function is a coroutine function.
        Exception: The error that *ready*, *on_timeout* or *render* raised.
    """
    check_poll(purgatory, retry_after)
    plain_callback("render", render, AWAIT_BEFORE)
    poll = Poll(ready, on_timeout, spread("timeout", timeout, jitter))
    answer = await _answer_of(request, lambda: purgatory.watch(poll, keys), retry_after)
    if isinstance(answer, Response):
        response = answer
    elif answer is None:
        response = Response(status_code=HTTPStatus.NO_CONTENT)
    else:
        response = cast(Response, called("render", render, answer))
    response.headers.setdefault("cache-control", "no-store")
    return response


@overload
async def long_poll_version(
    request: Request,
    purgatory: Purgatory,
    key: Hashable,
    *,
    version: Callable[[], int],
    answer: Callable[[], object],
    timeout: Delay | None,  # noqa: ASYNC109 - of the poll; this call ends by itself
    jitter: Delay = 0.0,
    render: Render = JSONResponse,
    retry_after: int = 1,
) -> Response: ...


@overload
async def long_poll_version(
    request: Request,
    purgatory: SharedCounters,
    key: str,
    *,
    version: Callable[[Any], int] | None = None,
    answer: Callable[[], object],
    timeout: Delay | None,  # noqa: ASYNC109 - of the poll; this call ends by itself
    jitter: Delay = 0.0,
    render: Render = JSONResponse,
    retry_after: int = 1,
) -> Response: ...


async def long_poll_version(
    request: Request,
    purgatory: Purgatory | SharedCounters,
    key: Any,
    *,
    version: Callable[..., int] | None = None,
    answer: Callable[[], object],
    timeout: Delay | None,  # noqa: ASYNC109 - of the poll; this call ends by itself
    jitter: Delay = 0.0,
    render: Render = JSONResponse,
    retry_after: int = 1,
) -> Response:
    """Answer once the client's version of *key* is out of date, with the version as `ETag`.

    The client sends its version as `If-None-Match: "17"` or as `?since=17`. A client without a
    version, or with an older or newer version than the current one, is answered at once. A client
    with the current version waits for the next one. After a change the application calls
    `purgatory.advance(key, version)`. Its cost grows with the polls that it completes, not with the
    polls that wait under *key*. The functions are plain functions; aiowheel does not await them.

    With `SharedCounters` in place of the purgatory, all workers share the versions, and the tag is
    a token, `"epoch:17"`, which is valid at each worker and after a restart. After a change any
    worker calls `await shared.advance(key, version)`. A client whose token belongs to a history
    that the store has lost is answered at once. *answer* may be a coroutine function; *version*
    takes its result.

    Args:
        request: A request of Starlette or FastAPI.
        purgatory: The purgatory in which the request waits, or shared counters over it.
        key: Key of the document or resource that has the versions, or of the shared counter.
        version: Returns the current version, an int from 0 to 2**63 - 1. If versions start again,
            or *key* is deleted, call `purgatory.forget(key)`; otherwise polls of lower versions are
            answered at once. With shared counters, `version(answer)` returns the version of an
            answer that is not a `Response`, and the tag is exactly that version. A version above
            the counter raises the counter, because the process that wrote the version may have died
            before it did so. Without *version*, the tag is the value of the counter before the
            answer was read; if a change happens between the two, a client may get an answer twice.
        answer: Returns a `Response` of the current version, or a value for *render*.
        timeout: Seconds or timedelta; None for no timeout.
        jitter: As for `long_poll`.
        render: Makes a response of a value; default: JSON.
        retry_after: Seconds after which a refused client may try again.

    Returns:
        The answer with its `ETag`. After the timeout: 304 to `If-None-Match`, 204 to `since`. If
        `since` is not a version: 400. If the store does not answer: 503.
        Otherwise as `long_poll`.

    Raises:
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
            request.headers.get("if-none-match"), request.query_params.get("since"), current
        )
    except BadInputError as error:
        return PlainTextResponse(str(error), status_code=HTTPStatus.BAD_REQUEST)
    if seen.version == current:
        news = await _answer_of(
            request,
            lambda: purgatory.wait_until({key: current + 1}, timeout=longest),
            retry_after,
        )
        if isinstance(news, Response):
            return news
        # The version may have changed after the timeout in the same loop iteration. The client
        # needs that answer: with its tag alone it would wait for the version after it.
        if not news and version_of(current_version) == current:
            return _nothing_new(current, conditional=seen.conditional)
    found = called("answer", answer)
    if not isinstance(found, Response):
        found = cast(Response, called("render", render, found))
    return _versioned(found, version_of(current_version))


async def _shared_version(
    request: Request,
    epoch: str,
    poll: SharedPoll,
    longest: float,
    render: Render,
    retry_after: int,
) -> Response:
    try:
        seen = seen_token(
            request.headers.get("if-none-match"), request.query_params.get("since"), epoch
        )
    except BadInputError as error:
        return PlainTextResponse(str(error), status_code=HTTPStatus.BAD_REQUEST)
    news = await _answer_of(
        request, lambda: ensure_future(poll.news(seen.token, longest)), retry_after
    )
    if isinstance(news, Response):
        return news
    token, changed = cast(PollResult, news)
    if not changed:
        return _nothing_new(token, conditional=seen.conditional)
    found = await poll.read()
    if isinstance(found, Response):
        return _versioned(found, token)
    tag = await poll.tag(found, token)
    return _versioned(cast(Response, called("render", render, found)), tag)


async def _answer_of(
    request: Request, watch: Callable[[], Awaitable[object]], retry_after: int
) -> object:
    """Return the result of the operation, or a 499 or 503 response if it has none."""
    try:
        waiter = cast("Future[object]", watch())
        if not await done_before(waiter, _hang_up(request.receive)):
            return Response(status_code=CLIENT_CLOSED_REQUEST)
        if not waiter.cancelled():
            return waiter.result()
    except REFUSALS:
        pass
    headers = {"retry-after": str(retry_after), "cache-control": "no-store"}
    return Response(status_code=HTTPStatus.SERVICE_UNAVAILABLE, headers=headers)


async def _hang_up(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass  # discards the rest of the body


def _nothing_new(version: int | str, *, conditional: bool) -> Response:
    status = HTTPStatus.NOT_MODIFIED if conditional else HTTPStatus.NO_CONTENT
    return _versioned(Response(status_code=status), version)


def _versioned(response: Response, version: int | str) -> Response:
    response.headers.setdefault("etag", etag(version))
    response.headers.setdefault("cache-control", "no-cache")
    return response
