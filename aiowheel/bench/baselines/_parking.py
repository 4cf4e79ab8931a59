"""The interface of every waiting room under test, and what waits in them. Rank 5."""

from collections.abc import Callable, Hashable, Sequence
from typing import Protocol


class Parked:
    """A request that waits in a baseline: completes when it is ready, or expires; once."""

    __slots__ = ("done", "keys", "payload", "ready", "timer")

    def __init__(self) -> None:
        self.payload: bytes = b""
        self.ready: bool = False
        self.done: bool = False
        self.keys: Sequence[Hashable] = ()
        self.timer: object = None  # whatever the baseline's timers return


class Parking(Protocol):
    """Where requests wait. Times are seconds of the monotonic clock."""

    expired: int

    def park(self, request: Parked, keys: Sequence[Hashable]) -> None:
        """Have *request* wait for any of *keys*, or for its timeout."""
        ...

    def check(self, key: Hashable) -> None:
        """Complete those that wait for *key* and are ready."""
        ...

    def force(self, request: Parked) -> None:
        """Complete *request* whatever it waits for."""
        ...

    def turn(self, now: float) -> None:
        """Expire what is due; called every millisecond."""
        ...


class Timers(Protocol):
    """Where the deadlines of an `EagerParking` hang."""

    def add(self, request: Parked, deadline: float) -> None:
        """Remember to expire *request*."""
        ...

    def remove(self, request: Parked) -> None:
        """Forget about it."""
        ...

    def turn(self, now: float, expire: Callable[[Parked], None]) -> None:
        """Expire what is due."""
        ...
