"""ASGI middleware that limits the time of a request. Rank 4; imports no framework.

Source: the slow-body attack, and RFC 9110 on 408 and 503. The server must limit slow *headers*,
because it reads them before it calls the application.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, MutableMapping
from http import HTTPStatus
from typing import Any, Protocol

from aiowheel._arguments import MOST, checked_int, safe_repr
from aiowheel._types import Delay
from aiowheel.integrations._limits import beyond
from aiowheel.timer import MoveOn, Timeout, Timer, TimerHandle, current_timer
from aiowheel.timer._shared import check_timer

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]


class Refuse(Protocol):
    """Answers the request, unless its response has begun."""

    async def __call__(self, *, slow_body: bool) -> None: ...


# Seconds that an application has to end itself after the disconnect. Django and Quart need a few
# turns of the loop, and a handler may have resources to release.
_GRACE = 1.0


class SlowRequestMiddleware:
    """ASGI middleware that ends HTTP requests beyond their limits.

    A client that sends the body too slowly gets 408; a request that exceeds *total* gets 503. Both
    responses ask the server to close the connection, unless the request came with HTTP/2. If the
    response has already begun, the middleware raises `TimeoutError` instead, and the server ends
    the connection without completing the response. The application is cancelled in each case. The
    limits of the body count only the time for which the application waits for the client; a wait
    that it gives up counts as well, and only a message of the client renews a limit.

    If the application waits for the disconnect of the client when a request exceeds *total*, it
    receives the disconnect, and is cancelled only if it has not ended a second later. This ends the
    tasks of Django and Quart, which a cancellation does not reach.

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
            raise TypeError(f"app must be an ASGI application, got {safe_repr(app)}")
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
        bound = timer.timeout(None)  # `limits` moves its deadline
        begun = trailers = refused = ended = False

        async def refuse(*, slow_body: bool) -> None:
            nonlocal begun, refused
            if not begun:
                begun = True
                await self._refuse(scope, send, slow_body=slow_body)
                refused = True

        limits = _Limits(receive, refuse, timer, bound, self._first, self._idle, self._body)

        async def send_and_note(message: Message) -> None:
            nonlocal begun, trailers
            if limits.disconnected or ended:  # a task of the application may run on
                await asyncio.sleep(0)  # a loop that only sends must not block the event loop
                return
            # Early hints and push promises, which may come before it, are no response.
            if message["type"] == "http.response.start":
                begun, trailers = True, message.get("trailers", False)
            await send(message)
            if _ends_response(message, trailers=trailers) and not bound.expired():
                # What the application does after the response has no limit.
                limits.end()
                # This message may have waited since before the disconnect.
                limits.disconnected = False
                bound.reschedule(None)

        try:
            async with bound:
                limits.begin(self._total)
                await self._run(scope, limits, send_and_note)
        except TimeoutError:
            ended = True
            if not (limits.disconnected or bound.expired()):  # the application's own
                raise
            await refuse(slow_body=limits.slow)
            if not refused:
                raise

    async def _run(self, scope: Scope, limits: _Limits, send: Send) -> None:
        """Run the application; raise TimeoutError if it ends after the disconnect."""
        try:
            await self._app(scope, limits.receive, send)
        except (Exception, asyncio.CancelledError) as error:
            if not limits.disconnected or _is_cancelled(error):
                raise
            raise TimeoutError from error
        finally:
            limits.end()
        if limits.disconnected:
            raise TimeoutError

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


def _is_cancelled(error: BaseException) -> bool:
    """Return whether *error* is the cancellation of the running task, not that of another one."""
    task = asyncio.current_task()
    return isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling() > 0


class _Limits:
    """The remaining time of one request and of its client.

    Attributes:
        disconnected: Whether the application receives the disconnect, as if the client had left.
        slow: Whether the client has exceeded a limit of the body.
    """

    __slots__ = (
        "_alarm",
        "_allowed",
        "_answered",
        "_bound",
        "_complete",
        "_idle",
        "_left",
        "_listening",
        "_receive",
        "_refuse",
        "_since",
        "_timer",
        "_total",
        "_waiting",
        "disconnected",
        "slow",
    )

    def __init__(
        self,
        receive: Receive,
        refuse: Refuse,
        timer: Timer,
        bound: Timeout,
        first: float,
        idle: float,
        whole: float,
    ) -> None:
        self._receive = receive
        self._refuse = refuse
        self._timer = timer
        self._bound = bound
        self._allowed = first  # the remaining time of the next message
        self._idle = idle
        self._left = whole  # the remaining time of the whole body
        self._waiting = 0  # calls of `receive` that have not ended
        self._since = 0.0  # when the wait began whose time is not subtracted yet
        self._alarm: TimerHandle | None = None
        self._total: TimerHandle | None = None
        self._complete = False
        self._answered = False  # whether `receive` has answered a call after the expiry
        self._listening: list[MoveOn] = []  # calls of `receive` that wait for the disconnect
        self.disconnected = self.slow = False

    def begin(self, total: float) -> None:
        """Begin the limit of the whole request."""
        if total < math.inf:
            self._total = self._timer.call_later(total, self._expire_total)

    async def receive(self) -> Message:
        """Return the next message, within the limits."""
        if self.disconnected or self._bound.expired():
            if self._answered:
                await asyncio.sleep(0)  # a loop that only receives must not block the event loop
            self._answered = True  # at once, because Starlette asks in a scope that is cancelled
            return {"type": "http.disconnect"}
        if self._complete:  # only a disconnect can follow
            return await self._listen()
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
            self._end_body()
        return message

    async def _listen(self) -> Message:
        if self._total is None or self._total.cancelled():
            return await self._receive()
        async with self._timer.move_on_after(None) as wait:
            self._listening.append(wait)
            try:
                return await self._receive()
            finally:
                self._listening.remove(wait)
        # The client gets its answer now: Django waits for the thread of a plain view, and a handler
        # may take its time.
        await self._refuse(slow_body=False)
        return {"type": "http.disconnect"}

    def _limit(self, allowed: float) -> None:
        if self._alarm is None:
            self._alarm = self._timer.call_later(allowed, self._expire_body)
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

    def end(self) -> None:
        """End all limits."""
        self._end_body()
        if self._total is not None:
            self._total.cancel()

    def _end_body(self) -> None:
        self._complete = True
        if self._alarm is not None:
            self._alarm.cancel()

    def _expire_body(self) -> None:
        self.slow = True
        self._expire()

    def _expire_total(self) -> None:
        if not self._listening:
            self._expire()
            return
        # Django and Quart wait for the disconnect beside the task of the handler, which they cancel
        # after it. They leave the task running if they are cancelled themselves.
        self.disconnected = True
        now = self._timer.time()
        for wait in self._listening:
            wait.reschedule(now)
        self._bound.reschedule(now + _GRACE)

    def _expire(self) -> None:
        self.end()  # the other limit may expire in the same loop iteration
        self._bound.reschedule(self._timer.time())
