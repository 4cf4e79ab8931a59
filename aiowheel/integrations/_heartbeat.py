"""Asking a silent peer whether it is still there. Rank 4.

Source: the keepalive of websocket libraries, without a task for each connection.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Self, cast

from aiowheel._events import emit
from aiowheel.integrations._connection_watch import just_beyond
from aiowheel.integrations._jitter import spread
from aiowheel.timer import Timer, TimerHandle, current_timer


class Heartbeat:
    """Calls *send* after a silence, and *dead* where that brings no sign of life.

    `seen()` for everything that is received, answers included; then *send* is called only for a
    peer that is silent anyway. A connection waits on one timer, whatever it receives. Use it with
    `async with`, or call `close`.

    Args:
        send: Asks the peer for an answer; a plain or a coroutine function. Where it fails, the
            peer is dead.
        dead: A plain callable such as `transport.abort`, called at most once; nothing follows.
        interval: Seconds or timedelta of silence before *send*.
        timeout: The same from there to *dead*, if nothing is seen for more than this.
        jitter: The interval is shorter by a random time from 0 to this, so that peers that came
            together are not asked together.
        timer: Default: the running loop's shared timer.

    Raises:
        ValueError: *interval* or *timeout* is not above 0, or *jitter* not from 0 to *interval*.
        TimerClosedError: The timer is not open.
    """

    __slots__ = (
        "_asked",
        "_dead",
        "_handle",
        "_interval",
        "_jitter",
        "_send",
        "_sending",
        "_timeout",
        "_timer",
    )

    def __init__(
        self,
        send: Callable[[], object],
        dead: Callable[[], object],
        *,
        interval: object,
        timeout: object,
        jitter: object = 0.0,
        timer: Timer | None = None,
    ) -> None:
        self._timer = current_timer() if timer is None else timer
        self._send: Callable[[], object] = send
        self._dead: Callable[[], object] = dead
        self._interval = just_beyond("interval", interval)
        self._timeout = just_beyond("timeout", timeout)
        self._jitter = jitter
        self._asked = False  # and not answered yet
        self._sending: asyncio.Future[object] | None = None
        self._handle: TimerHandle = self._listen()

    def seen(self) -> None:
        """Note a sign of life. One clock reading and one write, but for the answer to *send*."""
        if not self._asked:
            self._handle.touch()
        elif self._handle.cancel():
            self._asked = False
            self._handle = self._listen()

    def close(self) -> None:
        """Ask no more, and let go of *send* and *dead*; safe to call again."""
        self._handle.cancel()
        if self._sending is not None:
            self._sending.cancel()
        self._send = self._dead = ignore  # they often belong to who holds this: no cycle

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        self.close()
        if self._sending is not None:
            await asyncio.wait([self._sending])

    def _listen(self) -> TimerHandle:
        return self._timer.call_later(spread(self._interval, self._jitter), self._ask)

    def _ask(self) -> None:
        self._asked = True
        self._handle = self._timer.call_later(self._timeout, self._give_up)
        if self._sending is not None:  # a peer that sends, but does not read
            return
        try:
            sending = self._send()
        except Exception as error:
            self._fail(error)
            return
        if hasattr(sending, "__await__"):
            self._sending = asyncio.ensure_future(cast("Awaitable[object]", sending))
            self._sending.add_done_callback(self._sent)

    def _sent(self, sending: asyncio.Future[object]) -> None:
        self._sending = None
        if not sending.cancelled() and (error := sending.exception()) is not None:
            self._fail(error)

    def _fail(self, error: BaseException) -> None:
        if self._handle.cancel():
            if not isinstance(error, OSError):  # which is how a lost connection shows
                emit("aiowheel.heartbeat_failed", error=repr(error))
            self._give_up()

    def _give_up(self) -> None:
        dead = self._dead
        self.close()
        dead()


def ignore() -> None:
    """What a closed heartbeat does."""


@asynccontextmanager
async def heartbeat(
    send: Callable[[], object],
    *,
    interval: object,
    timeout: object,  # noqa: ASYNC109 - of one answer
    jitter: object = 0.0,
    timer: Timer | None = None,
) -> AsyncGenerator[Heartbeat]:
    """A `Heartbeat` around the work of one connection, which ends it where the peer is dead.

    `async with heartbeat(ping, interval=20, timeout=20) as beat:`. The block is then cancelled and
    raises `TimeoutError`, as under `asyncio.timeout`.

    Args:
        send: As for `Heartbeat`.
        interval: As for `Heartbeat`.
        timeout: As for `Heartbeat`.
        jitter: As for `Heartbeat`.
        timer: Default: the running loop's shared timer.

    Raises:
        TimeoutError: No sign of life, or *send* failed.
        ValueError: A time is out of range.
    """
    chosen = current_timer() if timer is None else timer
    async with chosen.timeout(None) as bound:

        def dead() -> None:
            bound.reschedule(chosen.time())

        async with Heartbeat(
            send, dead, interval=interval, timeout=timeout, jitter=jitter, timer=chosen
        ) as beat:
            yield beat
