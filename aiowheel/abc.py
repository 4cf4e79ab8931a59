"""Interfaces that others implement. Rank 0."""

from __future__ import annotations

from typing import Protocol


class FinishedOperation(Protocol):
    """What an instrument may read of an operation that has just ended.

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
        """How often its condition was asked for."""
        ...

    @property
    def created(self) -> float:
        """When it was watched."""
        ...

    @property
    def deadline(self) -> float:
        """When it was to expire."""
        ...

    @property
    def finished(self) -> float:
        """When it ended."""
        ...


class Instrument:
    """Base of what watches a purgatory at work; override what you need.

    Called on the loop's thread in the middle of the work: be quick, and do not raise.
    """

    def operation_finished(self, purgatory: str, operation: FinishedOperation) -> None:
        """Called once for every operation, after it has ended and `on_complete` has run.

        Args:
            purgatory: Its purgatory's name.
            operation: Over; its class is the kind of operation.
        """
