"""Answers that wait, for Starlette and FastAPI. Rank 4; needs the `web` extra."""

from __future__ import annotations

from asyncio import Future
from collections.abc import Awaitable, Callable, Hashable, Iterable
from http import HTTPStatus
from typing import Any, cast

from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.types import Receive

from aiowheel.errors import BadInputError
from aiowheel.integrations._hangup import done_before
from aiowheel.integrations._jitter import spread
from aiowheel.integrations._poll import CLIENT_CLOSED_REQUEST, REFUSALS, Poll
from aiowheel.integrations._version import etag, seen_version
from aiowheel.purgatory import Purgatory

Render = Callable[[Any], Response]


async def long_poll(
    request: Request,
    purgatory: Purgatory,
    *,
    keys: Iterable[Hashable],
    ready: Callable[[], object],
    timeout: object,  # noqa: ASYNC109 - of the poll; this call ends by itself
    jitter: object = 0.0,
    on_timeout: Callable[[], object] | None = None,
    render: Render = JSONResponse,
    retry_after: int = 1,
) -> Response:
    """Answer once *ready* returns something true, or after the timeout.

    The request waits in *purgatory*, without a task or a timer of its own. Whoever makes it ready
    calls `purgatory.check_and_complete(key)`. A client that disconnects leaves at once. A body that
    is still to come is thrown away: read it before.

    Args:
        request: Starlette's, which is also FastAPI's.
        purgatory: Where to wait.
        keys: At least one hashable.
        ready: Returns a `Response`, or what to *render* as one; anything false means not yet. It
            only looks: what it took away would be lost with a client that leaves meanwhile.
        timeout: Seconds or timedelta.
        jitter: The timeout comes sooner by a random time from 0 to this, so that polls that began
            together do not end together.
        on_timeout: Returns a `Response`, or what to *render* as one; default: 204 without a body.
        render: Makes a response; default: as JSON.
        retry_after: Seconds after which a refused client may come back.

    Returns:
        The answer; 204 (or *on_timeout*'s) after the timeout, and when the purgatory closes with
        `drain="expire"`; 503 with `Retry-After` where the purgatory is full or closed, or the
        application gave the wait up with `cancel_for_key`; 499, which nobody gets, for a client
        that disconnected.

    Raises:
        ValueError: *keys* is empty, or *jitter* is not from 0 to *timeout*.
        Exception: What *ready*, *on_timeout* or *render* raised.
    """
    poll = Poll(ready, on_timeout, spread(timeout, jitter))
    answer = await _answer_of(request, lambda: purgatory.watch(poll, keys), retry_after)
    if isinstance(answer, Response):
        response = answer
    elif answer is None:
        response = Response(status_code=HTTPStatus.NO_CONTENT)
    else:
        response = render(answer)
    response.headers.setdefault("cache-control", "no-store")
    return response


async def long_poll_version(
    request: Request,
    purgatory: Purgatory,
    key: Hashable,
    *,
    version: Callable[[], int],
    answer: Callable[[], object],
    timeout: object,  # noqa: ASYNC109 - of the poll; this call ends by itself
    jitter: object = 0.0,
    render: Render = JSONResponse,
    retry_after: int = 1,
) -> Response:
    """Answer once the client's version of *key* is out of date, with the version as `ETag`.

    The client tells which version it has by `If-None-Match: "17"` or by `?since=17`. Where it tells
    none, or another than the current one, older or newer, it is answered at once. Else it waits
    for the next: whoever makes one calls `purgatory.advance(key, version)`, which costs what it
    completes, whatever else waits under *key*.

    Args:
        request: Starlette's, which is also FastAPI's.
        purgatory: Where to wait.
        key: What the versions are of.
        version: Returns the current one, at least 0. Where it starts anew, or *key* is deleted,
            call `purgatory.forget(key)`: else polls of lower versions are answered at once.
        answer: Returns a `Response`, or what to *render* as one, of the current version.
        timeout: Seconds or timedelta.
        jitter: As for `long_poll`.
        render: Makes a response; default: as JSON.
        retry_after: Seconds after which a refused client may come back.

    Returns:
        The answer with its `ETag`. After the timeout 304 to `If-None-Match`, 204 to `since`; 400
        for a `since` that is no version; else as `long_poll`.
    """
    longest = spread(timeout, jitter)
    current = version()
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
        # A version made after the timeout, in the same turn, is news all the same: its tag without
        # its answer would have the client wait for the one after it.
        if not news and version() == current:
            status = HTTPStatus.NOT_MODIFIED if seen.conditional else HTTPStatus.NO_CONTENT
            return _versioned(Response(status_code=status), current)
    found = answer()
    return _versioned(found if isinstance(found, Response) else render(found), version())


async def _answer_of(
    request: Request, watch: Callable[[], Awaitable[object]], retry_after: int
) -> object:
    """What the wait was for, or the response that tells why there is nothing."""
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
        pass  # of the body, which nobody reads


def _versioned(response: Response, version: int) -> Response:
    response.headers.setdefault("etag", etag(version))
    response.headers.setdefault("cache-control", "no-cache")
    return response
