"""The store's clock, read or estimated by this process. Rank 4."""

from __future__ import annotations

from aiowheel.durable._store import Store
from aiowheel.timer import Timer

#: A greater difference from the expected time means that the clock was set; drift is smaller.
_JUMP_US = 50_000
_DRIFT_PPM = 200


class LaggingClock:
    """The store's clock: read directly if the store allows it, else estimated from its answers.

    The estimate is behind the store's clock by at most the travel time of an answer. It is never
    ahead of it, so that no timer fires early; `shared._store_clock` estimates by another rule.
    """

    def __init__(self, store: Store, timer: Timer) -> None:
        self._read = store.clock_us
        self._timer = timer
        self._offset_us: int | None = None  # the store's clock minus the timer's
        self._observed_us = 0

    def now_us(self) -> int:
        """Return the store's time."""
        direct = self._read()
        if direct is not None:
            return direct
        assert self._offset_us is not None, "the clock is read before the first answer"
        return self._offset_us + int(self._timer.time() * 1e6)

    def observe(self, now_us: int, round_trip: float) -> bool:
        """Correct the estimate by an answer that has just arrived.

        Args:
            now_us: The store's time at some moment of the round trip.
            round_trip: Seconds from the request to the answer.

        Returns:
            Whether the clock was set since the last answer: the window must be read again.
        """
        direct = self._read()
        timer_us = int(self._timer.time() * 1e6) + 1
        least = (now_us if direct is None else direct) - timer_us
        last = self._offset_us
        if last is None:
            self._offset_us, self._observed_us = least, timer_us
            return False
        # After a slow answer, the last estimate minus the possible drift since then is more exact.
        # It is kept if the answer does not contradict it.
        estimate = last - (timer_us - self._observed_us) * _DRIFT_PPM // 1_000_000 - 1
        may_hold = direct is None and estimate <= least + round_trip * 1e6
        self._offset_us = max(least, estimate) if may_hold else least
        self._observed_us = timer_us
        return abs(self._offset_us - last) > _JUMP_US
