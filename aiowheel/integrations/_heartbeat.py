"""Heartbeats: pings to a silent peer, and a callback if it does not answer. Rank 4.

Source: the keepalive of websocket libraries. Here no connection needs a task of its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Self, cast

from aiowheel._arguments import safe_repr
from aiowheel._callbacks import START_A_TASK, plain_callback, refuse_coroutine
from aiowheel._events import emit
from aiowheel._types import Delay
from aiowheel._units import delay_to_ns
from aiowheel.integrations._jitter import spread
from aiowheel.integrations._limits import beyond
from aiowheel.timer import Timer, TimerHandle
from aiowheel.timer._shared import chosen_timer


class Heartbeat:
    """The heartbeat of one connection: it sends pings and detects a peer that does not answer.

    Call `seen` for all received data. The heartbeat calls `send()` after *interval* seconds without
    a call of `seen`. If none follows in the next *timeout* seconds, it calls `dead()` and closes
    itself. A peer that sends data often enough gets no pings. A heartbeat has one pending timer.
    Use it with `async with`, or call `close`.

    Args:
        send: Sends a ping; a plain or a coroutine function. If it raises, the peer is dead.
        dead: A plain function such as `transport.abort`, called at most once.
        interval: The silence before *send*, in seconds or as timedelta.
        timeout: The time for an answer; None for no limit: *dead* is called only if *send* raises,
            and the next ping follows only after a call of `seen`.
        jitter: Each interval is shorter by a random time from 0 to this. Peers that connected at
            the same time then get their pings at different times.
        timer: Default: the running loop's shared timer.

    Raises:
        ValueError: *interval* or *timeout* is not more than 0, or *jitter* is not from 0 to
            *interval*.
        TypeError: An argument has the wrong type, or *dead* is a coroutine function.
        TimerClosedError: The timer is not open.
    """

    __slots__ = (
        "_dead",
        "_handle",
        "_interval",
        "_jitter",
        "_pinged",
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
        interval: Delay,
        timeout: Delay | None,
        jitter: Delay = 0.0,
        timer: Timer | None = None,
    ) -> None:
        if not callable(send):
            raise TypeError(f"send must be a function, got {safe_repr(send)}")
        self._send: Callable[[], object] = send
        self._dead: Callable[[], object] = plain_callback("dead", dead, START_A_TASK)
        delay_to_ns("interval", interval)  # refuses None, which is only legal for a limit
        self._interval = beyond("interval", interval)
        self._timeout = beyond("timeout", timeout)
        self._jitter = jitter
        self._timer = chosen_timer(timer)
        self._pinged = False  # True after a ping, until the next call of `seen`
        self._sending: asyncio.Future[object] | None = None
        self._handle: TimerHandle = self._wait_for_silence()

    def seen(self) -> None:
        """Record that data was received.

        Cost: one clock reading and one write; after a ping also a new timer.
        """
        if not self._pinged:
            self._handle.touch()
        elif self._handle.cancel():
            self._pinged = False
            self._handle = self._wait_for_silence()

    def close(self) -> None:
        """Stop the pings, and drop *send* and *dead*. Idempotent."""
        self._handle.cancel()
        if self._sending is not None:
            self._sending.cancel()
        # Breaks a cycle: the functions are often methods of the object that holds the heartbeat.
        self._send = self._dead = ignore

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        self.close()
        if self._sending is not None:
            await asyncio.wait([self._sending])

    def _wait_for_silence(self) -> TimerHandle:
        return self._timer.call_later(spread("interval", self._interval, self._jitter), self._ping)

    def _ping(self) -> None:
        self._pinged = True
        self._handle = self._timer.call_later(self._timeout, self._end)
        if self._sending is not None:  # the peer sends but does not read: one ping is enough
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
            try:
                self._end()  # before the log: an error there must not keep a dead connection open
            finally:
                if not isinstance(error, OSError):  # OSError: the connection was lost, no bug
                    emit("aiowheel.heartbeat_failed", error, error=repr(error))

    def _end(self) -> None:
        dead = self._dead
        self.close()
        refuse_coroutine("dead", dead(), START_A_TASK)


def ignore() -> None:
    """Do nothing, in place of the functions of a closed heartbeat."""


@asynccontextmanager
async def heartbeat(
    send: Callable[[], object],
    *,
    interval: Delay,
    timeout: Delay | None,  # noqa: ASYNC109 - for one answer
    jitter: Delay = 0.0,
    timer: Timer | None = None,
) -> AsyncGenerator[Heartbeat]:
    """Run a `Heartbeat` during the block, and end the block if the peer is dead.

    `async with heartbeat(ping, interval=20, timeout=20) as beat:`. If the peer is dead, the block
    is cancelled and raises `TimeoutError`, as under `asyncio.timeout`.

    Args:
        send: As for `Heartbeat`.
        interval: As for `Heartbeat`.
        timeout: As for `Heartbeat`.
        jitter: As for `Heartbeat`.
        timer: Default: the running loop's shared timer.

    Raises:
        TimeoutError: The peer did not answer within *timeout*, or *send* raised.
        ValueError: A time is out of range.
        TypeError: An argument has the wrong type.
    """
    chosen = chosen_timer(timer)
    async with chosen.timeout(None) as bound:

        def dead() -> None:
            bound.reschedule(chosen.time())

        async with Heartbeat(
            send, dead, interval=interval, timeout=timeout, jitter=jitter, timer=chosen
        ) as beat:
            yield beat
