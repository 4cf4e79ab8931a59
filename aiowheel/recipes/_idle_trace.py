"""Idle detection over recorded touches: the wheel in virtual time. Rank 3: no loop, no I/O.

The rule is that of `IdleDetector`, so a trace gives what the live detector would have given.
"""

from collections.abc import Iterable, Iterator

from aiowheel.wheel import TimerEntry, TimingWheel


def idle_events(rows: Iterable[tuple[int, str]], timeout: int) -> Iterator[tuple[int, str]]:
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
    wheel: TimingWheel | None = None
    open_keys: dict[str, TimerEntry] = {}
    due: int | None = None  # before it the wheel has nothing to do and is not asked
    now = deadline = 0
    for time, key in rows:
        if wheel is None:
            # One unit a tick: fire times are exact, whatever the unit, and come in their order.
            wheel = TimingWheel(tick=1, start=time)
        elif time < now:
            raise ValueError(f"rows must come by time, got {time} after {now}")
        elif due is not None and time > due:
            # Up to the instant before the touch: what is due at the touch itself lives on.
            yield from _close(open_keys, wheel.advance(time - 1))
            due = wheel.next_expiration()
        now, deadline = time, time + timeout
        entry = open_keys.get(key)
        if entry is None:
            open_keys[key] = wheel.schedule(deadline, key)
            due = deadline if due is None else due  # others are earlier: deadlines only grow
        else:
            wheel.reschedule(entry, deadline)
    if wheel is not None:
        yield from _close(open_keys, wheel.advance(deadline))


def _close(open_keys: dict[str, TimerEntry], due: list[TimerEntry]) -> list[tuple[int, str]]:
    # Strings compare by code point, which is the order of their UTF-8 bytes.
    events = sorted((entry.deadline, str(entry.payload)) for entry in due)
    for _, key in events:
        del open_keys[key]
    return events
