"""Objects that pending work keeps alive; their class counts them."""

from __future__ import annotations

from typing import ClassVar

LONGEST = 0.15  # seconds until nearly all work of a phase has ended
RING = 2_048  # the number of recent handles of each kind, from which later steps choose


class InjectedError(Exception):
    """An error that callbacks and conditions raise on purpose."""


class Token:
    """The argument of a callback, or a value in its context.

    Attributes:
        alive: The number of tokens that exist.
        deadline: Seconds on the scale of the timer.
        ended: Whether the work has ended, as the work itself recorded it.
        raises: Whether the callback raises.
    """

    alive: ClassVar[int] = 0

    __slots__ = ("deadline", "ended", "raises")

    def __init__(self) -> None:
        Token.alive += 1
        self.deadline = 0.0
        self.ended = False
        self.raises = False

    def __del__(self) -> None:
        Token.alive -= 1
