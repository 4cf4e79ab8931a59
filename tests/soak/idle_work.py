"""Keys that are touched, discarded, and become idle."""

from __future__ import annotations

from random import Random

from aiowheel import IdleDetector, Timer

from .living import LONGEST

KEYS = 1_000


class IdleWork:
    """The keys of an `IdleDetector`."""

    def __init__(self, timer: Timer, chance: Random) -> None:
        self._chance = chance
        self._detector = IdleDetector(LONGEST / 2, self._fall_idle, timer=timer)
        self._watched: set[object] = set()
        self.began = 0
        self.idle = 0
        self.discarded = 0
        self.unsure = 0

    def steps(self) -> dict[str, int]:
        """Return the methods among which a turn chooses, with their weights."""
        return {"touch": 24, "discard": 4}

    def touch(self) -> None:
        """Touch a key; an overdue key becomes idle in this call and starts anew."""
        key = self._chance.randrange(KEYS)
        self._detector.touch(key)
        if key not in self._watched:
            self._watched.add(key)
            self.began += 1

    def discard(self) -> None:
        """Discard a key."""
        key = self._chance.randrange(KEYS)
        discarded = self._detector.discard(key)
        self.unsure += discarded != (key in self._watched)
        self._watched.discard(key)
        self.discarded += discarded

    def settle(self) -> None:
        """Do nothing: the keys become idle by themselves."""

    def pending(self) -> int:
        """Return the number of watched keys."""
        return self.began - self.idle - self.discarded

    def flaws(self) -> list[str]:
        """Return descriptions of what is wrong."""
        wrong = self.unsure + len(self._watched.symmetric_difference(self._detector))
        return [f"{wrong} keys were not what they were known to be"] if wrong else []

    def _fall_idle(self, key: object) -> None:
        self.idle += 1
        self.unsure += key not in self._watched
        self._watched.discard(key)
