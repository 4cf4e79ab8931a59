"""Rounds of several sides in turn, and their statistics."""

import statistics
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass

from aiowheel._progress import Progress
from benchmarks._side import Figures, Side, Worker


@dataclass(frozen=True, slots=True)
class Series:
    """The rounds of one side, oldest first."""

    side: Side
    rounds: list[Figures]

    def median(self, name: str) -> float:
        """Return the median of one figure over the rounds."""
        return statistics.median(one[name] for one in self.rounds)

    def minimum(self, name: str) -> float:
        """Return the least value of one figure, from the least disturbed round."""
        return min(one[name] for one in self.rounds)

    def maximum(self, name: str) -> float:
        """Return the greatest value of one figure."""
        return max(one[name] for one in self.rounds)

    def net(self, name: str) -> float:
        """Return the median of a figure minus its empty harness, subtracted round by round."""
        return statistics.median(one[name] - one[f"{name}_empty"] for one in self.rounds)

    def times(self, other: "Series", name: str) -> float:
        """Return the median over the rounds of this figure divided by the other side's.

        The two values are of the same round: a machine that slows down for a minute slows both
        sides of a round, so this ratio varies less than the ratio of two medians.
        """
        pairs = zip(self.rounds, other.rounds, strict=True)
        return statistics.median(ours[name] / theirs[name] for ours, theirs in pairs)


def alternate(sides: Sequence[Side], rounds: int) -> dict[str, Series]:
    """Run the sides in turn, one at a time; return their series by name.

    Each round starts with the next side, so that no side always runs after the same neighbour.
    """
    measured = {side.name: Series(side, []) for side in sides}
    assert len(measured) == len(sides), "two sides of one name"
    with ExitStack() as stack:
        workers = [stack.enter_context(Worker(side)) for side in sides]
        progress = stack.enter_context(Progress())
        turns = rounds * len(workers)
        for turn in range(turns):
            number, place = divmod(turn, len(workers))
            worker = workers[(place + number) % len(workers)]
            progress.show(f"round {number + 1} of {rounds}: {worker.side.name}", turn, turns)
            measured[worker.side.name].rounds.append(worker.ask())
    return measured
