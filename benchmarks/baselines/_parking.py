"""The interface of the measured purgatories, and their requests."""

from collections.abc import Callable, Hashable, Sequence
from typing import Protocol


class Parked:
    """A request that waits in a baseline; it completes when ready, or expires, exactly once."""

    __slots__ = ("done", "keys", "payload", "ready", "timer")

    def __init__(self) -> None:
        self.payload: bytes = b""
        self.ready: bool = False
        self.done: bool = False
        self.keys: Sequence[Hashable] = ()
        self.timer: object = None  # the handle of the baseline's timer


class Parking(Protocol):
    """A container of waiting requests. Times are seconds of the monotonic clock."""

    expired: int

    def park(self, request: Parked, keys: Sequence[Hashable]) -> None:
        """Let *request* wait for any of *keys*, or for its timeout."""
        ...

    def check(self, key: Hashable) -> None:
        """Complete the requests that wait for *key* and are ready."""
        ...

    def force(self, request: Parked) -> None:
        """Complete *request* unconditionally."""
        ...

    def turn(self, now: float) -> None:
        """Expire due requests; called every millisecond."""
        ...


class Timers(Protocol):
    """The timers of an `EagerParking`."""

    def add(self, request: Parked, deadline: float) -> None:
        """Schedule the expiry of *request*."""
        ...

    def remove(self, request: Parked) -> None:
        """Cancel the expiry of *request*."""
        ...

    def turn(self, now: float, expire: Callable[[Parked], None]) -> None:
        """Expire due requests."""
        ...
