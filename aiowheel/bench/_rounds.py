"""Rounds of several sides in turn, and what is said about them. Rank 5."""

import statistics
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass

from aiowheel._progress import Progress
from aiowheel.bench._side import Figures, Side, Worker


@dataclass(frozen=True, slots=True)
class Series:
    """The rounds of one side, oldest first."""

    side: Side
    rounds: list[Figures]

    def median(self, name: str) -> float:
        """Median over the rounds of one figure."""
        return statistics.median(one[name] for one in self.rounds)

    def minimum(self, name: str) -> float:
        """The least disturbed round's figure."""
        return min(one[name] for one in self.rounds)

    def maximum(self, name: str) -> float:
        """The worst round's figure."""
        return max(one[name] for one in self.rounds)

    def net(self, name: str) -> float:
        """Median of a figure without its empty harness, taken off round by round."""
        return statistics.median(one[name] - one[f"{name}_empty"] for one in self.rounds)

    def times(self, other: "Series", name: str) -> float:
        """Median over the rounds of this figure divided by the other side's of the same round.

        A machine that slows down for a minute slows both sides of a round, so this ratio varies
        less than the ratio of two medians.
        """
        pairs = zip(self.rounds, other.rounds, strict=True)
        return statistics.median(ours[name] / theirs[name] for ours, theirs in pairs)


def alternate(sides: Sequence[Side], rounds: int) -> dict[str, Series]:
    """Run all sides, one at a time, in turn; by the sides' names.

    The order moves on by one each round, so that no side always runs after the same neighbour.
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
