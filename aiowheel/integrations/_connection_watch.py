"""The limits of one connection: first byte, silence, and all of it. Rank 4.

Source: the idle timeout that resets with every byte, which asyncio's streams never got; the three
limits are those of HTTP servers that were held up by slow clients.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from enum import StrEnum

from aiowheel._units import delay_to_ns, ns_to_seconds
from aiowheel.timer import Timer, TimerHandle, current_timer


class Limit(StrEnum):
    """Which limit a connection exceeded."""

    FIRST_BYTE = "first byte"
    IDLE = "idle"
    TOTAL = "total"


class ConnectionWatch:
    """Calls *on_limit* once, when a connection exceeds one of its limits.

    Silent for a limit is still within it; for more than the limit is not. Only what is received
    counts: a server that streams to a silent client touches for what it sends, too. `close` it, or
    the timer keeps it until a limit is exceeded.

    Args:
        on_limit: A plain callable, which gets the limit; the watch is closed by then.
        idle: Seconds or timedelta without a touch.
        first_byte: The same before the first touch; default: as *idle*.
        total: The same from now on, whatever is received.
        timer: Default: the running loop's shared timer.

    Attributes:
        exceeded: The limit that was, or None.

    Raises:
        ValueError: A limit is not above 0.
        TimerClosedError: The timer is not open.
    """

    __slots__ = ("_heard", "_idle", "_on_limit", "_silence", "_timer", "_total", "exceeded")

    def __init__(
        self,
        on_limit: Callable[[Limit], object],
        *,
        idle: object = math.inf,
        first_byte: object = None,
        total: object = math.inf,
        timer: Timer | None = None,
    ) -> None:
        self._timer = current_timer() if timer is None else timer
        self._on_limit: Callable[[Limit], object] = on_limit
        self._idle = just_beyond("idle", idle)
        self._heard = first_byte is None
        self.exceeded: Limit | None = None
        first = self._idle if first_byte is None else just_beyond("first_byte", first_byte)
        whole = just_beyond("total", total)
        self._silence: TimerHandle = self._timer.call_later(
            first, self._exceed, Limit.IDLE if self._heard else Limit.FIRST_BYTE
        )
        self._total: TimerHandle | None = None
        if whole < math.inf:
            self._total = self._timer.call_later(whole, self._exceed, Limit.TOTAL)

    def touch(self) -> None:
        """Note that something was received. One clock reading and one write; no timer is made."""
        if self._heard:
            self._silence.touch()
        elif self._silence.cancel():
            self._heard = True
            self._silence = self._timer.call_later(self._idle, self._exceed, Limit.IDLE)

    def close(self) -> None:
        """Watch no more, and let go of *on_limit*; safe to call again."""
        self._silence.cancel()
        if self._total is not None:
            self._total.cancel()
        self._on_limit = ignore  # which often belongs to who holds the watch: no cycle

    def _exceed(self, limit: Limit) -> None:
        on_limit = self._on_limit
        self.exceeded = limit
        self.close()
        on_limit(limit)


def ignore(_limit: Limit) -> None:
    """What a closed watch does about a limit."""


def just_beyond(name: str, limit: object) -> float:
    """The shortest delay, in seconds, that is more than *limit*: a tie is not beyond it.

    Raises:
        TypeError: *limit* is no number.
        ValueError: It is NaN, or not above 0.
    """
    limit_ns = delay_to_ns(name, limit)
    if limit_ns <= 0:
        raise ValueError(f"{name} must be more than 0, got {limit!r}")
    return ns_to_seconds(limit_ns + 1)
