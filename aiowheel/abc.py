"""Interfaces that applications implement. Rank 0."""

from __future__ import annotations

from typing import Protocol


class FinishedOperation(Protocol):
    """The attributes of an ended operation that an instrument may read.

    Times are seconds on the scale of the timer's clock; `deadline` may be `inf`.
    """

    keys: tuple[object, ...]
    completed_by: object

    @property
    def outcome(self) -> object:
        """A member of `Outcome`, not PENDING."""
        ...

    @property
    def checks(self) -> int:
        """The number of evaluations of its condition."""
        ...

    @property
    def created(self) -> float:
        """When the operation was watched."""
        ...

    @property
    def deadline(self) -> float:
        """When the operation would have expired."""
        ...

    @property
    def finished(self) -> float:
        """When the operation ended."""
        ...


class Instrument:
    """Base class of instruments, which a purgatory calls; override the methods you need.

    The methods run on the loop's thread, inside the purgatory's calls, and must be quick. An
    exception goes to the loop's exception handler and has no other effect.
    """

    def operation_finished(self, purgatory: str, operation: FinishedOperation) -> None:
        """Called once for every operation, after it has ended and `on_complete` has run.

        Args:
            purgatory: The name of its purgatory.
            operation: The ended operation; its class is the kind of operation.
        """
