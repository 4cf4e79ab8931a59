"""Finished operations for the recorder, without a purgatory around them."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from aiowheel import Outcome
from aiowheel.trace import TraceRecorder


@dataclass
class Fetch:
    """Has what the recorder reads of an operation; times in seconds of the loop's clock."""

    keys: tuple[object, ...] = ("topic",)
    created: float = 1.0
    deadline: float = 2.0
    finished: float = 1.5
    outcome: Outcome = Outcome.COMPLETED
    completed_by: object = None
    checks: int = 1


Finish = Callable[..., None]


@pytest.fixture
def finish() -> Finish:
    """Tell a recorder of a number of equal operations."""

    def finish(recorder: TraceRecorder, *, times: int = 1, **attributes: Any) -> None:
        operation = Fetch(**attributes)
        for _ in range(times):
            recorder.operation_finished("room", operation)

    return finish
