"""Finished operations for a recorder, without a purgatory."""

from collections.abc import Callable
from typing import Any

import pytest

from aiowheel import DelayedOperation, Outcome
from aiowheel._units import delay_to_ns
from aiowheel.trace import TraceRecorder


class Fetch(DelayedOperation[None]):
    """A finished operation; times in seconds of the loop's clock."""

    def __init__(
        self,
        *,
        keys: tuple[object, ...] = ("topic",),
        created: float = 1.0,
        deadline: float = 2.0,
        finished: float = 1.5,
        outcome: Outcome = Outcome.COMPLETED,
        completed_by: object = None,
        checks: int = 1,
    ) -> None:
        super().__init__(timeout=1.0)
        self.keys = keys
        self.completed_by = completed_by
        self.created_ns = delay_to_ns("created", created)
        self.deadline_ns = delay_to_ns("deadline", deadline)
        self.finished_ns = delay_to_ns("finished", finished)
        self._outcome = outcome
        self._checks = checks

    def try_complete(self) -> bool:
        """Do nothing: the recorder never calls this."""
        return False


Finish = Callable[..., None]


@pytest.fixture
def finish() -> Finish:
    """Return a function that reports a number of equal operations to a recorder."""

    def finish(recorder: TraceRecorder, *, times: int = 1, **attributes: Any) -> None:
        operation = Fetch(**attributes)
        for _ in range(times):
            recorder.operation_finished("room", operation)

    return finish
