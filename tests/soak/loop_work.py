"""Timers of the event loop itself; on a wheel loop they are on the wheel."""

from __future__ import annotations

import asyncio
from random import Random

from .living import LONGEST, RING, Token


class LoopWork:
    """The callbacks of `loop.call_later`."""

    def __init__(self, chance: Random) -> None:
        self._loop = asyncio.get_running_loop()
        self._chance = chance
        self._ring: list[tuple[asyncio.TimerHandle, Token] | None] = [None] * RING
        self._next = 0
        self.began = 0
        self.fired = 0
        self.cancelled = 0
        self.unsure = 0

    def steps(self) -> dict[str, int]:
        """Return the methods among which a turn chooses, with their weights."""
        return {"arm": 8, "cancel": 8}

    def arm(self) -> None:
        """Arm a callback."""
        token = Token()
        handle = self._loop.call_later(self._chance.random() * LONGEST, self._run, token)
        self._ring[self._next] = (handle, token)
        self._next = (self._next + 1) % RING
        self.began += 1

    def cancel(self) -> None:
        """Cancel a callback that has not run."""
        chosen = self._ring[self._chance.randrange(RING)]
        if chosen is not None and not chosen[1].ended:
            chosen[1].ended = True
            chosen[0].cancel()
            self.cancelled += 1

    def settle(self) -> None:
        """Drop every handle."""
        self._ring = [None] * RING

    def pending(self) -> int:
        """Return the number of callbacks that have neither run nor been cancelled."""
        return self.began - self.fired - self.cancelled

    def flaws(self) -> list[str]:
        """Return descriptions of what is wrong."""
        return [f"{self.unsure} callbacks of the loop ran after their end"] if self.unsure else []

    def _run(self, token: Token) -> None:
        self.fired += 1
        self.unsure += token.ended
        token.ended = True
