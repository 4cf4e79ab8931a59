"""The limits and the heartbeat of one connection, on one pending timer. Rank 4.

Source: the timeouts of HTTP servers against slow clients. asyncio's streams have no idle timeout.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import Context
from enum import StrEnum
from typing import TypeAlias, cast

from mypy_extensions import i64, mypyc_attr

from aiowheel._arguments import safe_repr
from aiowheel._callbacks import START_A_TASK, plain_callback, refuse_coroutine
from aiowheel._types import Delay
from aiowheel._units import FOREVER
from aiowheel.integrations._limits import beyond_ns, heartbeat_ns
from aiowheel.timer._driver import Driver, TimerTask
from aiowheel.timer._interpreter import captured_context
from aiowheel.timer._shared import chosen_timer
from aiowheel.timer._timer import Timer

Chosen: TypeAlias = Timer | None  # an object to mypyc; see aiowheel/_types.py


class Limit(StrEnum):
    """The kinds of limits of a connection."""

    FIRST_BYTE = "first byte"
    IDLE = "idle"
    TOTAL = "total"


@mypyc_attr(acyclic=True)
class WatchAlarm(TimerTask):
    """The next deadline of one connection; its payload is the watch."""

    __slots__ = ()

    def fire(self) -> None:
        watch = cast("ConnectionWatch", self.payload)
        super().drop()
        watch._reach(self._deadline)


class ConnectionWatch:
    """The limits of one connection, and its heartbeat.

    `on_limit(limit)` is called once, when the connection exceeds a limit. A connection that is
    silent for exactly a limit is within it. `on_heartbeat()` is called after every *heartbeat*
    seconds of silence, until the silence exceeds the limit. Only `touch` ends a silence; call it
    for received data, and for sent data if a client may listen for long.

    A watch has one pending timer for all its limits. Call `close` at the end of the connection;
    otherwise the timer keeps the watch until a limit is exceeded. Both functions run in the context
    in which the watch was made. If one raises, the loop's exception handler gets the error.

    Args:
        on_limit: A plain function. The watch is closed when it is called.
        idle: The longest silence, in seconds or as timedelta; None for no limit.
        first_byte: The longest silence before the first touch; default: as *idle*.
        total: The longest time from now on, with or without touches; None for no limit.
        heartbeat: The silence after which *on_heartbeat* is called; None for no heartbeat.
        on_heartbeat: A plain function, which sends a ping.
        timer: Default: the running loop's shared timer.

    Attributes:
        exceeded: The limit that was exceeded, or None.

    Raises:
        ValueError: A limit is not more than 0, or *heartbeat* is not less than *idle*.
        TypeError: A limit is no number, a function is a coroutine function, or one of *heartbeat*
            and *on_heartbeat* is missing.
        TimerClosedError: The timer is not open.
        ForeignLoopError: Called from another loop or thread than the timer's.
    """

    __slots__ = (
        "_alarm",
        "_beat",
        "_context",
        "_driver",
        "_first",
        "_heard",
        "_idle",
        "_on_heartbeat",
        "_on_limit",
        "_step",
        "_total_at",
        "_touched",
        "exceeded",
    )

    def __init__(
        self,
        on_limit: Callable[[Limit], object],
        *,
        idle: Delay | None = None,
        first_byte: Delay | None = None,
        total: Delay | None = None,
        heartbeat: Delay | None = None,
        on_heartbeat: Callable[[], object] | None = None,
        timer: Chosen = None,
    ) -> None:
        # Every time below is one nanosecond more than the limit: see _limits.
        self._idle: i64 = beyond_ns("idle", idle)
        self._first: i64 = self._idle if first_byte is None else beyond_ns("first_byte", first_byte)
        total_ns: i64 = beyond_ns("total", total)
        self._beat: i64 = heartbeat_ns("heartbeat", heartbeat, "idle", idle)
        self._step: i64 = min(self._idle, self._beat)  # from a touch to the next deadline
        self._on_limit: Callable[..., object] = plain_callback("on_limit", on_limit, START_A_TASK)
        self._on_heartbeat: Callable[..., object] = ignore
        if on_heartbeat is not None:
            self._on_heartbeat = plain_callback("on_heartbeat", on_heartbeat, START_A_TASK)
        if (heartbeat is None) != (on_heartbeat is None):
            raise TypeError(
                "heartbeat and on_heartbeat must be given together, "
                f"got {safe_repr(heartbeat)} and {safe_repr(on_heartbeat)}"
            )
        self._context: Context | None = captured_context()
        self._driver: Driver = chosen_timer(timer).open_driver()
        self._heard = first_byte is None
        self.exceeded: Limit | None = None
        now = self._driver.now_ns()
        self._touched: i64 = now
        self._total_at: i64 = min(now + total_ns, FOREVER)
        self._alarm: WatchAlarm = self._armed_at(now + min(self._first, self._beat), now)

    def touch(self) -> None:
        """Record that data was received or sent, which ends the silence.

        Does nothing after `close`, after a limit was exceeded and after the timer was closed. Cost:
        one clock reading and one write.

        Raises:
            ForeignLoopError: Called from another loop or thread.
        """
        alarm = self._alarm
        if not alarm.pending:
            return
        driver = self._driver
        now = driver.checked_now()
        self._touched = now
        self._heard = True
        driver.move(alarm, min(now + self._step, self._total_at), now)

    def close(self) -> None:
        """Stop watching, and drop the two functions. Idempotent.

        Raises:
            ForeignLoopError: Called from another loop or thread.
        """
        if self._alarm.pending:
            self._driver.checked_now()
            self._alarm.cancel()
        # Breaks a cycle: the functions are often methods of the object that holds the watch.
        self._on_limit = self._on_heartbeat = ignore

    def _armed_at(self, deadline: i64, now: i64) -> WatchAlarm:
        alarm = WatchAlarm(min(deadline, self._total_at), self)
        self._driver.arm(alarm, now)
        return alarm

    def _reach(self, due: i64) -> None:
        """Act on the deadline *due*: a limit is exceeded, or it is time for a heartbeat."""
        limit_at = self._touched + (self._idle if self._heard else self._first)
        if due >= self._total_at:
            self._exceed(Limit.TOTAL)
        elif due >= limit_at:
            self._exceed(Limit.IDLE if self._heard else Limit.FIRST_BYTE)
        else:
            now = self._driver.now_ns()
            after = due + self._beat
            if after <= now:  # the loop was blocked: the next ping must not follow at once
                after = now + self._beat
            # Armed before the call, so that the limits hold even if the function raises.
            self._alarm = self._armed_at(min(after, limit_at), now)
            result = self._own_context().run(self._on_heartbeat)
            if result is not None:
                refuse_coroutine("on_heartbeat", result, START_A_TASK)

    def _exceed(self, limit: Limit) -> None:
        on_limit = self._on_limit
        self.exceeded = limit
        self.close()
        result = self._own_context().run(on_limit, limit)
        if result is not None:
            refuse_coroutine("on_limit", result, START_A_TASK)

    def _own_context(self) -> Context:
        context = self._context
        return Context() if context is None else context.copy()


def ignore(*_: object) -> None:
    """Do nothing, in place of the functions of a closed watch."""
