"""Idle detection over recorded touches: a wheel in virtual time. Rank 3: no loop, no I/O.

The rule is that of `IdleDetector`, so a replay has the same events as a live detector.
"""

from collections.abc import Iterable, Iterator

from aiowheel.wheel import TimerEntry, TimingWheel

Touch = tuple[int, str]
IdleEvent = tuple[int, str]


def idle_events(rows: Iterable[Touch], timeout: int) -> Iterator[IdleEvent]:
    """Replay touches at full speed and yield ``(fire, key)`` each time a key falls idle.

    With two successive touches t1 <= t2 of a key, the key is idle at t1 + timeout if
    t2 > t1 + timeout or if there is no t2. A touch exactly at the deadline keeps the key alive.

    Args:
        rows: ``(time, key)`` ordered by time, in any integer unit; rows of one time may have any
            order.
        timeout: More than 0, in the same unit.

    Yields:
        Idle events ordered by fire time, then by key as UTF-8 bytes. Keys that are open at the end
        of the rows fall idle after the last row.

    Raises:
        ValueError: The rows go back in time, or a deadline is beyond the wheel's range.

    Cost: O(1) for each row; memory for the keys that are open at the same time.
    """
    trace = IdleTrace(timeout)
    yield from trace.replay(rows)
    yield from trace.close()


class IdleTrace:
    """A replay that gets its touches in parts; `idle_events` replays a single part.

    Args:
        timeout: More than 0, in the unit of the touches.
    """

    def __init__(self, timeout: int) -> None:
        self._timeout = timeout
        self._wheel: TimingWheel | None = None
        self._open: dict[str, TimerEntry] = {}
        self._now = 0

    def replay(self, rows: Iterable[Touch]) -> Iterator[IdleEvent]:
        """Replay the next touches, ordered by time; yield the idle events before the last one."""
        timeout, open_keys, wheel, now = self._timeout, self._open, self._wheel, self._now
        # No entry is due before this time, so touches before it skip `advance`.
        due = None if wheel is None else wheel.next_expiration()
        for time, key in rows:
            if wheel is None:
                # With a tick of one unit, fire times are exact and ordered in every unit.
                wheel = self._wheel = TimingWheel(tick=1, start=time)
            elif time < now:
                raise ValueError(f"rows must be ordered by time, got {time} after {now}")
            elif due is not None and time > due:
                # Only up to the time before the touch, because a key due at the touch stays alive.
                yield from self._fire(wheel.advance(time - 1))
                due = wheel.next_expiration()
            now, deadline = time, time + timeout
            entry = open_keys.get(key)
            if entry is None:
                open_keys[key] = wheel.schedule(deadline, key)
                due = deadline if due is None else due  # the other deadlines are earlier
            else:
                wheel.reschedule(entry, deadline)
        self._now = now

    def close_until(self, now: int) -> list[IdleEvent]:
        """Return the idle events up to *now*. No touch up to and including *now* may follow."""
        if self._wheel is None or now < self._now:
            return []
        self._now = now
        return self._fire(self._wheel.advance(now))

    def close(self) -> list[IdleEvent]:
        """Return the idle events of all open keys, at the end of the trace."""
        return self.close_until(self._now + self._timeout)

    def last_touches(self) -> list[Touch]:
        """Return the last touch of each open key; replaying these restores the state."""
        return [(entry.deadline - self._timeout, key) for key, entry in self._open.items()]

    def _fire(self, due: list[TimerEntry]) -> list[IdleEvent]:
        # Strings have the same order by code point as by UTF-8 bytes.
        events = sorted((entry.deadline, str(entry.payload)) for entry in due)
        for _, key in events:
            del self._open[key]
        return events
