"""A process's estimate of the store's clock between two answers of the store. Rank 4."""

from __future__ import annotations

from aiowheel.timer import Timer

#: A greater difference means that the store's clock was set; drift alone is smaller.
_JUMP_MS = 50.0


class StoreClock:
    """The store's time in milliseconds: the timer's clock plus an offset that answers correct.

    The offset begins in the middle of what the first answer allows, and then changes only as far as
    an answer demands. The estimate may be ahead of the store's clock or behind it, by less than the
    round trip of an answer; `durable._lagging_clock` is never ahead.
    """

    def __init__(self, timer: Timer) -> None:
        self._timer = timer
        self._offset = 0.0  # milliseconds, the store's clock minus the timer's
        self._is_known = False

    def observe(self, now_ms: int, sent: float) -> bool:
        """Correct the offset by an answer that has just arrived.

        Args:
            now_ms: The store's time at some moment of the round trip.
            sent: When the request was sent, on the timer's clock.

        Returns:
            Whether the store's clock was set since the last answer: times on the timer's clock that
            were computed before are then wrong.
        """
        least, most = now_ms - self._timer.time() * 1000, now_ms + 1 - sent * 1000
        before = self._offset
        if not self._is_known:
            self._is_known = True
            self._offset = (least + most) / 2
            return False
        # The offset stays if the answer allows it, so that a slow answer does not change it.
        self._offset = min(max(before, least), most)
        return abs(self._offset - before) > _JUMP_MS

    def now_ms(self) -> int:
        """Return the store's time."""
        return int(self._offset + self._timer.time() * 1000)

    def on_timer(self, ms: int) -> float:
        """Return the time *ms* of the store on the timer's clock, in seconds."""
        return (ms - self._offset) / 1000
