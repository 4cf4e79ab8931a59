"""ASGI middleware that limits the time of a request. Rank 4; imports no framework.

Source: the slow-body attack, and RFC 9110 on 408 and 503. The server must limit slow *headers*,
because it reads them before it calls the application.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, MutableMapping
from http import HTTPStatus
from typing import Any

from aiowheel._arguments import MOST, checked_int
from aiowheel._types import Delay
from aiowheel.integrations._limits import beyond
from aiowheel.timer import Timeout, Timer, TimerHandle, current_timer
from aiowheel.timer._shared import check_timer

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]


class SlowRequestMiddleware:
    """ASGI middleware that ends HTTP requests beyond their limits.

    A client that sends the body too slowly gets 408; a request that exceeds *total* gets 503. Both
    responses ask the server to close the connection, unless the request came with HTTP/2. If the
    response has already begun, the middleware raises `TimeoutError` instead, and the server ends
    the connection without completing the response. The application is cancelled in each case. The
    limits of the body count only the time for which the application waits for the client; a wait
    that it gives up counts as well, and only a message of the client renews a limit.

    A client that does not read its response keeps the connection: the server closes it only after
    the data that it has buffered, and an ASGI application cannot abort it. That needs a limit of
    the server or of a proxy.

    Args:
        app: The application. Websockets pass unchanged.
        first_byte: The longest wait for the first chunk of the body, in seconds or as timedelta;
            default: as *idle*.
        idle: The longest wait for every later chunk; None for no limit.
        body: The longest wait for the whole body; None for no limit.
        total: The longest time of the whole request with its response; None for no limit. Long
            polls must be shorter.
        retry_after: Seconds after which a client that got 503 may try again.
        timer: Default: the shared timer of the loop on which the request runs.

    Raises:
        ValueError: A limit is not more than 0.
        TypeError: A limit is no number.

    Cost: one timer per request, two with *total*; none per chunk.
    """

    def __init__(
        self,
        app: Application,
        *,
        first_byte: Delay | None = None,
        idle: Delay | None = None,
        body: Delay | None = None,
        total: Delay | None = None,
        retry_after: int = 1,
        timer: Timer | None = None,
    ) -> None:
        if not callable(app):
            raise TypeError(f"app must be an ASGI application, got {app!r}")
        self._app = app
        self._idle = beyond("idle", idle)
        self._first = self._idle if first_byte is None else beyond("first_byte", first_byte)
        self._body = beyond("body", body)
        self._total = beyond("total", total)
        self._retry_after = checked_int("retry_after", retry_after, 0, MOST)
        check_timer(timer)
        self._timer = timer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Run the application within the limits."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        timer = current_timer() if self._timer is None else self._timer
        bound = timer.timeout(self._total)
        body = _Body(receive, timer, bound, self._first, self._idle, self._body)
        begun = trailers = ended = False

        async def send_and_note(message: Message) -> None:
            nonlocal begun, trailers
            if ended:  # Quart runs the handler in a task that the cancellation does not reach
                return
            # Early hints and push promises, which may come before it, are no response.
            if message["type"] == "http.response.start":
                begun, trailers = True, message.get("trailers", False)
            await send(message)
            if _ends_response(message, trailers=trailers) and not bound.expired():
                # What the application does after the response has no limit.
                body.close()
                bound.reschedule(None)

        try:
            async with bound:
                try:
                    await self._app(scope, body.receive, send_and_note)
                finally:
                    body.close()
        except TimeoutError:
            ended = True
            if begun or not bound.expired():
                raise
            await self._refuse(scope, send, slow_body=body.slow)

    async def _refuse(self, scope: Scope, send: Send, *, slow_body: bool) -> None:
        status = HTTPStatus.REQUEST_TIMEOUT if slow_body else HTTPStatus.SERVICE_UNAVAILABLE
        reason = b"the request body came too slowly" if slow_body else b"the request took too long"
        headers = [
            (b"content-type", b"text/plain; charset=utf-8"),
            (b"content-length", str(len(reason)).encode()),
        ]
        if scope["http_version"].startswith("1"):  # HTTP/2 has no such header
            headers.append((b"connection", b"close"))  # the rest of the body is not read
        if not slow_body:
            headers.append((b"retry-after", str(self._retry_after).encode()))
        await send({"type": "http.response.start", "status": status.value, "headers": headers})
        await send({"type": "http.response.body", "body": reason})


def _ends_response(message: Message, *, trailers: bool) -> bool:
    if trailers:
        return message["type"] == "http.response.trailers" and not message.get(
            "more_trailers", False
        )
    # With the extension `pathsend`, the server itself sends the file that the message names.
    return message["type"] == "http.response.pathsend" or (
        message["type"] == "http.response.body" and not message.get("more_body", False)
    )


class _Body:
    """The body of one request, and the remaining time of its client.

    Attributes:
        slow: Whether the client has exceeded a limit.
    """

    __slots__ = (
        "_alarm",
        "_allowed",
        "_bound",
        "_complete",
        "_idle",
        "_left",
        "_receive",
        "_since",
        "_timer",
        "_waiting",
        "slow",
    )

    def __init__(
        self,
        receive: Receive,
        timer: Timer,
        bound: Timeout,
        first: float,
        idle: float,
        whole: float,
    ) -> None:
        self._receive = receive
        self._timer = timer
        self._bound = bound
        self._allowed = first  # the remaining time of the next message
        self._idle = idle
        self._left = whole  # the remaining time of the whole body
        self._waiting = 0  # calls of `receive` that have not ended
        self._since = 0.0  # when the wait began whose time is not subtracted yet
        self._alarm: TimerHandle | None = None
        self._complete = False
        self.slow = False

    async def receive(self) -> Message:
        """Return the next message, within the limits."""
        if self._complete:  # only a disconnect can follow
            return await self._receive()
        if self._waiting == 0:
            self._since = self._timer.time()
            self._limit(min(self._allowed, self._left))
        self._waiting += 1
        arrived = False
        try:
            message = await self._receive()
            arrived = True
        finally:
            self._waiting -= 1
            self._end_wait(arrived=arrived)
        if message["type"] != "http.request" or not message.get("more_body", False):
            self.close()
        return message

    def _limit(self, allowed: float) -> None:
        if self._alarm is None:
            self._alarm = self._timer.call_later(allowed, self._expire)
        else:
            self._alarm.touch(allowed)

    def _end_wait(self, *, arrived: bool) -> None:
        # A wait that the application gives up counts as well: only a message renews the limit.
        now = self._timer.time()
        waited = now - self._since
        self._since = now
        self._left -= waited
        self._allowed = self._idle if arrived else self._allowed - waited
        self._limit(min(self._allowed, self._left) if self._waiting else math.inf)

    def close(self) -> None:
        """End the limits of the body."""
        self._complete = True
        if self._alarm is not None:
            self._alarm.cancel()

    def _expire(self) -> None:
        if not self._bound.expired():  # *total* may have expired in the same loop iteration
            self.slow = True
            self._bound.reschedule(self._timer.time())
