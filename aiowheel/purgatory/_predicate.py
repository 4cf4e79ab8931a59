"""An operation whose condition is a function. Rank 2."""

from __future__ import annotations

from collections.abc import Callable

from aiowheel.purgatory._operation import Operation
from aiowheel.purgatory._outcome import Outcome


class PredicateOperation(Operation):
    """Completes when its predicate is true; made by `wait_for`."""

    def __init__(self, predicate: Callable[[], object], timeout: object) -> None:
        super().__init__(timeout)
        self._predicate = predicate

    def try_complete(self) -> bool:
        return bool(self._predicate())

    def on_complete(self) -> bool:
        return self._outcome is Outcome.COMPLETED
