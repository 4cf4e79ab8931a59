"""The simplest purgatory with immediate removal: a dictionary of watchers by key."""

from collections.abc import Hashable, Sequence
from time import monotonic

from benchmarks.baselines._parking import Parked, Timers


class EagerParking:
    """A `Parking` over any `Timers`: a finished request is removed from its keys and its timer."""

    def __init__(self, timeout: float, timers: Timers) -> None:
        self.expired: int = 0
        self._timeout = timeout
        self._timers = timers
        # A dictionary used as an ordered set.
        self._watchers: dict[Hashable, dict[Parked, None]] = {}

    def park(self, request: Parked, keys: Sequence[Hashable]) -> None:
        """Watch every key and arm the timeout."""
        request.keys = keys
        for key in keys:
            watchers = self._watchers.get(key)
            if watchers is None:
                self._watchers[key] = {request: None}
            else:
                watchers[request] = None
        self._timers.add(request, monotonic() + self._timeout)

    def check(self, key: Hashable) -> None:
        """Complete the requests that are ready."""
        for request in list(self._watchers.get(key, ())):
            if request.ready:
                self.force(request)

    def force(self, request: Parked) -> None:
        """Complete the request and remove it."""
        if not request.done:
            self._timers.remove(request)
            self._finish(request)

    def turn(self, now: float) -> None:
        """Expire due requests."""
        self._timers.turn(now, self._expire)

    def _expire(self, request: Parked) -> None:
        if not request.done:
            self.expired += 1
            self._finish(request)

    def _finish(self, request: Parked) -> None:
        request.done = True
        for key in request.keys:
            watchers = self._watchers[key]
            del watchers[request]
            if not watchers:
                del self._watchers[key]
