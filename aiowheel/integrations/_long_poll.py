"""Long polls for Starlette and FastAPI. Rank 4; needs the `web` extra."""

from __future__ import annotations

from asyncio import Future
from collections.abc import Callable, Hashable, Iterable
from typing import Any, overload

from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response

from aiowheel._arguments import safe_repr
from aiowheel._types import Delay
from aiowheel.integrations._exchange import Exchange
from aiowheel.integrations._hangup import done_before_disconnect
from aiowheel.integrations._jitter import spread
from aiowheel.integrations._poll import Poll
from aiowheel.integrations._version import one_header
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
    exchange = _Exchange(request, render, retry_after)
    poll = Poll(ready, on_timeout, spread("timeout", timeout, jitter))
    return await exchange.answer(purgatory, poll, keys)


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
    polls that wait under *key*. With a purgatory, the functions are plain functions.

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
    exchange = _Exchange(request, render, retry_after)
    longest = spread("timeout", timeout, jitter)
    return await exchange.answer_version(purgatory, key, version, answer, longest)


class _Exchange(Exchange[Response]):
    response_class = Response

    def __init__(self, request: object, render: Render, retry_after: int) -> None:
        if not isinstance(request, Request):
            got = safe_repr(request)
            raise TypeError(f"request must be a Request of Starlette or FastAPI, got {got}")
        super().__init__(render, retry_after)
        self._request: Request = request

    def seen(self) -> tuple[str | None, str | None]:
        request = self._request
        tags = one_header(request.headers.getlist("if-none-match"))
        return tags, request.query_params.get("since")

    def response(self, status: int, text: str | None = None) -> Response:
        return Response(status_code=status) if text is None else PlainTextResponse(text, status)

    async def ended(self, watch: Callable[[], Future[Any]]) -> Future[Any] | None:
        waiter = watch()
        return waiter if await done_before_disconnect(waiter, self._request.receive) else None
