"""The trace of a run: one line for each event. Rank 4."""

from __future__ import annotations

from collections import Counter

from aiowheel.testing.simulation._loop import SimulationLoop


class Trace:
    """The lines of a run and the number of faults of each kind.

    Each line begins with the clock and the number of the loop's turn, so that two runs that differ
    before a line also differ in that line.
    """

    def __init__(self, loop: SimulationLoop) -> None:
        self.faults: Counter[str] = Counter()
        self._loop = loop
        self._lines: list[str] = []
        loop.on_fault = self.count

    def note(self, text: str) -> None:
        """Add a line."""
        self._lines.append(f"{self._loop.now_ns} {self._loop.turns} {text}")

    def count(self, kind: str) -> None:
        """Count a fault."""
        self.faults[kind] += 1

    def fault(self, kind: str, text: str = "") -> None:
        """Add a line for a fault, and count it."""
        self.faults[kind] += 1
        self.note(f"fault {kind} {text}".rstrip())

    def as_bytes(self) -> bytes:
        """Return the lines."""
        return "".join(f"{line}\n" for line in self._lines).encode()
