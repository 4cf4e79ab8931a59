"""Idle detection over recorded touches: the wheel in virtual time. Rank 3: no loop, no I/O.

The rule is that of `IdleDetector`, so a trace gives what the live detector would have given.
"""

from collections.abc import Iterable, Iterator

from aiowheel.wheel import TimerEntry, TimingWheel

Touch = tuple[int, str]
IdleEvent = tuple[int, str]


def idle_events(rows: Iterable[Touch], timeout: int) -> Iterator[IdleEvent]:
    """Replay touches at full speed and yield ``(fire, key)`` where a key fell idle.

    With the touches t1 <= t2 of one key, it is idle at t1 + timeout if t2 > t1 + timeout or if
    there is no t2. A touch exactly at the deadline keeps the key alive.

    Args:
        rows: ``(time, key)`` by time, any integer unit; the order within one instant is free.
        timeout: In the same unit, above 0.

    Yields:
        Idle events by fire time, then by key as UTF-8 bytes. Keys still open when the rows end
        fall idle after the last row.

    Raises:
        ValueError: The rows go back in time, or a deadline is beyond the wheel's range.

    Cost: O(1) a row; memory for the keys open at one time.
    """
    trace = IdleTrace(timeout)
    yield from trace.replay(rows)
    yield from trace.close()


class IdleTrace:
    """The replay behind `idle_events`, for traces that come in stretches.

    Args:
        timeout: In the unit of the touches, above 0.
    """

    def __init__(self, timeout: int) -> None:
        self._timeout = timeout
        self._wheel: TimingWheel | None = None
        self._open: dict[str, TimerEntry] = {}
        self._now = 0

    def replay(self, rows: Iterable[Touch]) -> Iterator[IdleEvent]:
        """Take the next touches, by time; yield what fell idle before the last of them."""
        timeout, open_keys, wheel, now = self._timeout, self._open, self._wheel, self._now
        # Before it the wheel has nothing to do and is not asked.
        due = None if wheel is None else wheel.next_expiration()
        for time, key in rows:
            if wheel is None:
                # One unit a tick: fire times are exact, whatever the unit, and come in order.
                wheel = self._wheel = TimingWheel(tick=1, start=time)
            elif time < now:
                raise ValueError(f"rows must come by time, got {time} after {now}")
            elif due is not None and time > due:
                # Up to the instant before the touch: what is due at the touch itself lives on.
                yield from self._fire(wheel.advance(time - 1))
                due = wheel.next_expiration()
            now, deadline = time, time + timeout
            entry = open_keys.get(key)
            if entry is None:
                open_keys[key] = wheel.schedule(deadline, key)
                due = deadline if due is None else due  # others are earlier: deadlines only grow
            else:
                wheel.reschedule(entry, deadline)
        self._now = now

    def close_until(self, now: int) -> list[IdleEvent]:
        """End the keys that are idle at *now*, if no touch up to and including it is missing."""
        if self._wheel is None or now < self._now:
            return []
        self._now = now
        return self._fire(self._wheel.advance(now))

    def close(self) -> list[IdleEvent]:
        """End every key: the trace is over."""
        return self.close_until(self._now + self._timeout)

    def last_touches(self) -> list[Touch]:
        """The last touch of each open key: replayed later, they are all of what went before."""
        return [(entry.deadline - self._timeout, key) for key, entry in self._open.items()]

    def _fire(self, due: list[TimerEntry]) -> list[IdleEvent]:
        # Strings compare by code point, which is the order of their UTF-8 bytes.
        events = sorted((entry.deadline, str(entry.payload)) for entry in due)
        for _, key in events:
            del self._open[key]
        return events
