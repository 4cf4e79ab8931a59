"""One look at a timer and its purgatories. Rank 4.

Nothing here walks over what is pending: buckets are counted up to `SHADE`, keys and operations are
looked at by rotation, and all else is a counter that is there already.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Final

from aiowheel._units import ns_to_seconds
from aiowheel.dashboard._rotation import Rotation, described
from aiowheel.errors import PurgatoryClosedError
from aiowheel.purgatory import Purgatory
from aiowheel.timer import Histogram, Timer
from aiowheel.wheel import LevelOccupancy

SHADE: Final = 16  #: entries beyond which a bucket is as bright as it gets
_SHADES: Final = bytes.maketrans(  # 0, 1, 2-3, 4-7, 8-15, 16
    bytes(range(SHADE + 1)), b"0" + b"".join(b"%d" % n.bit_length() for n in range(1, SHADE + 1))
)


class Sampler:
    """Takes looks; those at keys and operations continue where the last one ended."""

    def __init__(self, timer: Timer, purgatories: Sequence[Purgatory], run: str) -> None:
        self._timer = timer
        self._rotations = [(purgatory, Rotation(purgatory)) for purgatory in purgatories]
        self._run = run

    def rest(self) -> None:
        """Let go of what was found: nobody looks."""
        for _, rotation in self._rotations:
            rotation.forget()

    def look(self) -> bytes:
        """What is there now, as JSON.

        Raises:
            TimerClosedError: The timer is closed.
            PurgatoryClosedError: So is every purgatory, as when the server is told to stop.
        """
        if self._rotations and all(purgatory.closed for purgatory, _ in self._rotations):
            raise PurgatoryClosedError("every purgatory has been closed")
        timer = self._timer
        driver = timer.open_driver()
        now = timer.time()
        now_ns = int(driver.now_ns())
        upcoming = driver.wheel.next_expiration()
        sample = {
            "run": self._run,
            "at": now,
            "tick": ns_to_seconds(driver.wheel.tick),
            "next": None if upcoming is None else ns_to_seconds(max(0, upcoming - now_ns)),
            "levels": [_level(level, now_ns) for level in driver.wheel.occupancy(SHADE)],
            "timer": {
                "pending": driver.counts.pending,
                "scheduled": driver.counts.scheduled,
                "fired": driver.fired,
                "cancelled": driver.counts.cancelled,
                "moved": driver.counts.rescheduled,
                "wakeups": driver.wakeups,
                "cascaded": driver.counts.cascaded,
                "errors": driver.callback_errors,
            },
            "lateness": {
                "octaves": octaves(driver.lateness),
                "p50": driver.lateness.quantile(0.5),
                "p99": driver.lateness.quantile(0.99),
                "most": driver.lateness.maximum,
            },
            "purgatories": [
                _purgatory(purgatory, rotation, now) for purgatory, rotation in self._rotations
            ],
        }
        return json.dumps(sample, separators=(",", ":")).encode()


def _level(level: LevelOccupancy, now_ns: int) -> dict[str, object]:
    return {
        "width": level.width / 1e9,
        "hand": (now_ns - level.base) / 1e9,  # seconds since the first bucket began
        "lit": level.counts.translate(_SHADES).decode(),
    }


def _purgatory(purgatory: Purgatory, rotation: Rotation, now: float) -> dict[str, object]:
    rotation.look()
    counts = purgatory.counts
    return {
        "name": purgatory.name,
        "pending": len(purgatory),
        "watched": int(purgatory.watched),
        "completed": counts.completed,
        "expired": counts.expired,
        "cancelled": counts.cancelled,
        "failed": counts.failed,
        "checks": counts.checks,
        **dict(described(rotation, now)),
    }


def octaves(histogram: Histogram) -> list[tuple[float, int]]:
    """Return the upper edge in seconds and the count of every power of two in use, in ns."""
    found: dict[int, int] = {}
    for upper, count in histogram.buckets():
        # A float beyond 2**53 ns may round the last duration of an octave up to the next one.
        octave = max(4, round(upper * 1e9 * (1 - 2**-50)).bit_length())
        found[octave] = found.get(octave, 0) + count
    return [(2**octave / 1e9, count) for octave, count in found.items()]
