"""What the driver runs when a deadline has come. Rank 1."""

from __future__ import annotations

from mypy_extensions import i64, mypyc_attr

from aiowheel.wheel._entry import TimerEntry


@mypyc_attr(acyclic=True)
class Alarm(TimerEntry):
    """A deadline, in nanoseconds of the timer's clock, that does something.

    The payload is what the alarm acts on; the driver names it when firing fails or takes long.
    """

    __slots__ = ()

    def __init__(self, deadline: i64, payload: object) -> None:
        super().__init__(deadline, payload, None)

    def fire(self) -> None:
        """Act; the alarm is no longer pending. What it raises, the driver reports."""
        raise NotImplementedError

    def drop(self) -> None:
        """Cut every reference: the timer was closed, or dropped, before the deadline."""
        self._payload = None
