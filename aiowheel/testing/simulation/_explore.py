"""Runs of many seeds, up to the first one that breaks a rule. Rank 4."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from aiowheel._arguments import safe_repr
from aiowheel.errors import SimulationFailedError
from aiowheel.testing.simulation._command import command_of
from aiowheel.testing.simulation._faults import checked_kinds
from aiowheel.testing.simulation._loop import TooManyTurnsError
from aiowheel.testing.simulation._run import STEPS, Run, checked_steps, checked_world, simulate
from aiowheel.testing.simulation._shrink import shrink
from aiowheel.testing.simulation._world import World

_LAST_LINES = 25  # of the trace, in the text of a failure
_NOT_REPEATED = (
    "this run does not repeat: a second run had another trace; see the section "
    '"What a seed cannot repeat" of the guide "Simulate your own code"'
)


@dataclass(slots=True)
class Exploration:
    """The totals of many runs.

    Attributes:
        runs: The number of runs.
        simulated_seconds: The simulated time of all runs, in seconds.
        seconds: The real time of all runs, in seconds.
        faults: The number of injected faults, by kind.
    """

    runs: int = 0
    simulated_seconds: float = 0.0
    seconds: float = 0.0
    faults: Counter[str] = field(default_factory=Counter[str])
    _states: set[int] = field(default_factory=set[int])

    @property
    def states(self) -> int:
        """The number of different states in all runs."""
        return len(self._states)

    @property
    def ratio(self) -> float:
        """The simulated seconds for each real second."""
        return self.simulated_seconds / self.seconds if self.seconds else 0.0

    def add(self, run: Run) -> None:
        """Add a run."""
        self.runs += 1
        self.simulated_seconds += run.simulated_seconds
        self.seconds += run.seconds
        self.faults.update(run.faults)
        self._states.update(hash((run.world, state)) for state in run.states)

    def merge(self, other: Exploration) -> None:
        """Add the totals of another exploration."""
        self.runs += other.runs
        self.simulated_seconds += other.simulated_seconds
        self.seconds += other.seconds
        self.faults.update(other.faults)
        self._states |= other._states


def explore(
    world: type[World],
    *,
    seeds: Iterable[int] = range(100),
    steps: int | Iterable[int] = STEPS,
    faults: Iterable[str] | None = None,
) -> Exploration:
    """Run a world with many seeds, up to the first one that breaks a rule.

    Args:
        world: The class of the world.
        seeds: The seeds, one run each.
        steps: As for `simulate`.
        faults: As for `simulate`.

    Raises:
        SimulationFailedError: A seed broke a rule, or took too many turns. The text describes the
            smallest run that was found to do so: its size, the end of its trace, and the command
            that replays it, or the call of `simulate` if no other process can find the world. If a
            second run has another trace, the text says so. The cause is the error of that run.
        TypeError, ValueError: As for `simulate`.
    """
    checked_world(world)
    if not isinstance(seeds, Iterable):  # pyright: ignore[reportUnnecessaryIsInstance] - users pass anything
        raise TypeError(f"seeds must be integers such as range(100), got {safe_repr(seeds)}")
    numbers = checked_steps(steps)
    kinds = checked_kinds(faults, world.faults)
    total = Exploration()
    for seed in seeds:
        run = simulate(world, seed=seed, steps=numbers, faults=kinds)
        total.add(run)
        if run.error is not None:
            smallest = shrink(run)
            raise SimulationFailedError(_text_of(run, smallest), seed) from smallest.error
    return total


def _text_of(run: Run, smallest: Run) -> str:
    error = smallest.error
    name = f"{type(error).__name__}: {error}"
    what = "was stopped" if isinstance(error, TooManyTurnsError) else "broke a rule"
    lines = smallest.trace.decode().splitlines()[-_LAST_LINES:]
    kinds = ", ".join(smallest.faults) or "none"
    return "\n".join(
        [
            f"seed {run.seed} of {run.world.__name__} {what}: {name}",
            f"it needs {len(smallest.steps)} of {len(run.steps)} steps; faults: {kinds}",
            *(f"  {line}" for line in lines),
            *([] if _repeats(smallest) else [_NOT_REPEATED]),
            f"replay: {command_of(smallest)}",
        ]
    )


def _repeats(run: Run) -> bool:
    again = simulate(run.world, seed=run.seed, steps=run.steps, faults=run.kinds)
    return again.trace == run.trace
