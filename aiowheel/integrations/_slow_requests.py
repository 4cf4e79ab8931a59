"""ASGI middleware against requests that take too long. Rank 4; imports no framework.

Source: the slow-body attack, and RFC 9110 on 408 and 503. Slow *headers* are the server's own to
bound: an application is called after them.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, MutableMapping
from http import HTTPStatus
from typing import Any

from aiowheel.integrations._connection_watch import just_beyond
from aiowheel.timer import Timeout, Timer, TimerHandle, current_timer

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]


class SlowRequestMiddleware:
    """Ends HTTP requests whose body comes too slowly, or that take too long in all.

    A slow body is answered with 408, a request over *total* with 503; both close the connection,
    or with HTTP/2 the stream.
    Where the response has begun, `TimeoutError` is raised instead and the server breaks the
    connection off: half a response must not look like a whole one. The application is cancelled in
    either case. Only the time it spends waiting for the client counts as the client's.

    Args:
        app: What to protect. Websockets pass unchanged.
        first_byte: Seconds or timedelta that the first piece of a body may take; default: as
            *idle*.
        idle: The same for every piece after it; default: no limit.
        body: The same for the whole body; default: no limit.
        total: The same for the whole request, response included; default: no limit. Long polls
            must be shorter.
        retry_after: Seconds after which a client that got 503 may come back.
        timer: Default: the shared timer of the loop the request runs on.

    Raises:
        ValueError: A limit is not above 0.

    Cost: one timer a request, two where *total* is given; none is made for a piece of the body.
    """

    def __init__(
        self,
        app: Application,
        *,
        first_byte: object = None,
        idle: object = math.inf,
        body: object = math.inf,
        total: object = math.inf,
        retry_after: int = 1,
        timer: Timer | None = None,
    ) -> None:
        self._app = app
        self._idle = just_beyond("idle", idle)
        self._first = self._idle if first_byte is None else just_beyond("first_byte", first_byte)
        self._body = just_beyond("body", body)
        self._total = just_beyond("total", total)
        self._retry_after = retry_after
        self._timer = timer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Run the application within its limits."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        timer = current_timer() if self._timer is None else self._timer
        bound = timer.timeout(None if self._total == math.inf else self._total)
        body = _Body(receive, timer, bound, self._first, self._idle, self._body)
        begun = False

        async def send_and_note(message: Message) -> None:
            nonlocal begun
            begun = True
            await send(message)
            ended = message["type"] == "http.response.body" and not message.get("more_body", False)
            if ended and not bound.expired():
                bound.reschedule(None)  # what runs after the response may take its time

        try:
            async with bound:
                try:
                    await self._app(scope, body.receive, send_and_note)
                finally:
                    body.close()
        except TimeoutError:
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
        if scope["http_version"].startswith("1"):  # later ones have no such header
            headers.append((b"connection", b"close"))  # the rest of the body is not waited for
        if not slow_body:
            headers.append((b"retry-after", str(self._retry_after).encode()))
        await send({"type": "http.response.start", "status": status.value, "headers": headers})
        await send({"type": "http.response.body", "body": reason})


class _Body:
    """The body of one request, and how long its client may still take.

    Attributes:
        slow: The client took too long.
    """

    __slots__ = (
        "_alarm",
        "_bound",
        "_complete",
        "_idle",
        "_left",
        "_patience",
        "_receive",
        "_timer",
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
        self._patience = first
        self._idle = idle
        self._left = whole
        self._alarm: TimerHandle | None = None
        self._complete = False
        self.slow = False

    async def receive(self) -> Message:
        """The next message; the client is waited for only so long."""
        if self._complete:  # all that can come is a disconnect
            return await self._receive()
        asked = self._timer.time()
        patience = min(self._patience, self._left)
        if self._alarm is None:
            self._alarm = self._timer.call_later(patience, self._give_up)
        else:
            self._alarm.touch(patience)
        try:
            message = await self._receive()
        finally:
            self._alarm.touch(math.inf)
        self._left -= self._timer.time() - asked
        self._patience = self._idle
        if message["type"] != "http.request" or not message.get("more_body", False):
            self.close()
        return message

    def close(self) -> None:
        """Wait for the client as long as it takes, from now on."""
        self._complete = True
        if self._alarm is not None:
            self._alarm.cancel()

    def _give_up(self) -> None:
        if not self._bound.expired():  # in this very turn, for the total
            self.slow = True
            self._bound.reschedule(self._timer.time())
