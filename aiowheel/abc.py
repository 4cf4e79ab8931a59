"""Interfaces that users of the package implement. Rank 0."""

from __future__ import annotations

from typing import Protocol


class FinishedOperation(Protocol):
    """The part of an ended operation that an instrument may read.

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
        """How often its condition was checked."""
        ...

    @property
    def created(self) -> float:
        """Time at which it was watched."""
        ...

    @property
    def deadline(self) -> float:
        """Time at which it would have expired."""
        ...

    @property
    def finished(self) -> float:
        """Time at which it ended."""
        ...


class Instrument:
    """A base class of observers of a purgatory; override the methods you need.

    The purgatory calls them on the loop's thread, in the middle of its work: they must be quick
    and must not raise.
    """

    def operation_finished(self, purgatory: str, operation: FinishedOperation) -> None:
        """Handle the end of an operation; called once for each, after its `on_complete`.

        Args:
            purgatory: Name of the purgatory.
            operation: The ended operation; its class is the kind of operation.
        """
