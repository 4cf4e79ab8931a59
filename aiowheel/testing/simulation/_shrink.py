"""The reduction of a failing run to fewer kinds of faults and fewer steps. Rank 4.

Source: delta debugging (Zeller & Hildebrandt, "Simplifying and isolating failure-inducing input").
"""

from __future__ import annotations

from collections.abc import Iterable

from aiowheel.testing.simulation._run import Run, simulate

#: The greatest number of runs of one reduction, and the real seconds after which it ends.
_MOST_RUNS = 400
_MOST_SECONDS = 30.0


class _Shrinker:
    """The smallest failing run so far."""

    def __init__(self, run: Run) -> None:
        self.best = run
        self._runs = 0
        self._seconds = 0.0

    def try_with(self, steps: Iterable[int], kinds: Iterable[str]) -> bool:
        """Run with fewer steps or kinds; keep the run if it fails with the same type of error."""
        if self._runs == _MOST_RUNS or self._seconds > _MOST_SECONDS:
            return False
        self._runs += 1
        best = self.best
        run = simulate(best.world, seed=best.seed, steps=steps, faults=kinds)
        self._seconds += run.seconds
        if type(run.error) is not type(best.error):
            return False
        self.best = run
        return True

    def drop_kinds(self) -> None:
        """Leave out the kinds of faults that the failure does not need."""
        if self.try_with(self.best.steps, ()):
            return
        for kind in sorted(self.best.kinds):
            self.try_with(self.best.steps, self.best.kinds - {kind})

    def drop_steps(self) -> None:
        """Leave out the steps that the failure does not need: halves first, then single steps."""
        size = len(self.best.steps) // 2
        while size:
            place = len(self.best.steps)
            while place > 0:  # from the end, because steps after the failure are never needed
                steps = self.best.steps
                place = min(place, len(steps)) - size
                self.try_with(steps[: max(place, 0)] + steps[place + size :], self.best.kinds)
            size //= 2


def shrink(run: Run) -> Run:
    """Return a run of the same seed with the same type of error and fewer steps and faults.

    Args:
        run: A run that failed.

    Cost: up to 400 runs, or 30 seconds.
    """
    shrinker = _Shrinker(run)
    shrinker.drop_kinds()
    shrinker.drop_steps()
    shrinker.drop_kinds()
    return shrinker.best
