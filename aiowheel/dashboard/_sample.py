"""Snapshots of a timer, its purgatories and its durable timers. Rank 4.

A snapshot does not iterate over all pending operations: buckets are counted up to a limit, keys and
operations are examined by rotation, and all other numbers are running counts.
"""

from __future__ import annotations

import asyncio
import os
import platform
import socket
from collections.abc import Hashable, Mapping, Sequence
from typing import TYPE_CHECKING

from aiowheel._build import __version__, accelerated
from aiowheel._printable import as_unicode
from aiowheel._units import ns_to_seconds
from aiowheel.dashboard._durable import DurableSampler
from aiowheel.dashboard._history import POINTS, History
from aiowheel.dashboard._occupancy import Occupancy
from aiowheel.dashboard._rotation import Rotation
from aiowheel.dashboard._waiting import Json
from aiowheel.errors import PurgatoryClosedError
from aiowheel.purgatory import Purgatory
from aiowheel.timer import Timer
from aiowheel.wheel import LevelOccupancy

if TYPE_CHECKING:
    from aiowheel.durable import DurableTimers


class Sampler:
    """Takes snapshots; the rotation over keys continues from one snapshot to the next.

    Args:
        timer: An open timer.
        purgatories: Purgatories, by the name to show.
        durable: Durable timers, by the name to show.
        run: Unique id of this dashboard.

    Attributes:
        history: Points of the last five minutes.
    """

    def __init__(
        self,
        timer: Timer,
        purgatories: Mapping[str, Purgatory],
        durable: Mapping[str, DurableTimers],
        run: str,
    ) -> None:
        self._timer = timer
        self._rotations = {
            name: (purgatory, Rotation(purgatory)) for name, purgatory in purgatories.items()
        }
        self._occupancy = Occupancy()
        self._run = run
        self._durable = DurableSampler(durable)
        self.history = History(timer, purgatories, durable)

    def discard(self) -> None:
        """Drop the results of the rotation, because there is no viewer."""
        for _, rotation in self._rotations.values():
            rotation.forget()
        self._durable.discard()

    def shown_keys(self, name: str) -> list[Hashable]:
        """Return the keys of the purgatory *name* in the last snapshot."""
        _, rotation = self._rotations[name]
        return rotation.shown_keys()

    def snapshot(self) -> Json:
        """Return a snapshot, as JSON.

        Raises:
            TimerClosedError: The timer is closed.
            PurgatoryClosedError: All purgatories are closed, as when a server begins to stop.
        """
        rotations = self._rotations
        if rotations and all(purgatory.closed for purgatory, _ in rotations.values()):
            raise PurgatoryClosedError("every purgatory has been closed")
        driver = self._timer.open_driver()
        now = self._timer.time()
        now_ns = int(driver.now_ns())
        upcoming = driver.wheel.next_expiration()
        return {
            "process": {"run": self._run, **described_process()},
            "tick": ns_to_seconds(driver.wheel.tick),
            "next": None if upcoming is None else ns_to_seconds(max(0, upcoming - now_ns)),
            "levels": [
                _level(level, text, now_ns)
                for level, text in self._occupancy.snapshot(driver.wheel)
            ],
            "pending": int(driver.counts.pending),
            "scheduled": int(driver.counts.scheduled),
            "fired": int(driver.fired),
            "errors": int(driver.callback_errors),
            "latest": driver.lateness.maximum,
            "purgatories": [
                _purgatory(name, purgatory, rotation, now)
                for name, (purgatory, rotation) in rotations.items()
            ],
            "durable": self._durable.snapshot(),
            "points": self.history.last(POINTS),
        }


def named(purgatories: Sequence[Purgatory]) -> dict[str, Purgatory]:
    """Return the purgatories by name; the second one of a name gets a number."""
    found: dict[str, Purgatory] = {}
    for purgatory in purgatories:
        text = as_unicode(purgatory.name)  # browsers cannot send a lone surrogate
        name, number = text, 2
        while name in found:
            name = f"{text} ({number})"
            number += 1
        found[name] = purgatory
    return found


def described_process() -> Json:
    """Return the facts about this process and its build of aiowheel."""
    try:
        loop = type(asyncio.get_running_loop()).__module__.partition(".")[0]
    except RuntimeError:
        loop = "none"
    return {
        "id": os.getpid(),
        "host": socket.gethostname(),
        "version": __version__,
        "build": "compiled" if accelerated() else "pure",
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "loop": loop,
    }


def _level(level: LevelOccupancy, text: str, now_ns: int) -> Json:
    return {
        "width": level.width / 1e9,
        "hand": (now_ns - level.base) / 1e9,  # seconds since the first bucket began
        "lit": text,
    }


def _purgatory(name: str, purgatory: Purgatory, rotation: Rotation, now: float) -> Json:
    rotation.snapshot()
    counts = purgatory.counts
    return {
        "name": name,
        "pending": len(purgatory),
        "watched": int(purgatory.watched),
        "checks": int(counts.checks),
        "failed": int(counts.failed),
        **rotation.as_json(now),
    }
