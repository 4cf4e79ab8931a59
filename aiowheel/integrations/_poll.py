"""One long poll: an operation that waits for something to answer with. Rank 4.

Source: Kafka's delayed fetch, as an HTTP request.
"""

from __future__ import annotations

from collections.abc import Callable
from random import uniform

from aiowheel._units import delay_to_ns, ns_to_seconds
from aiowheel.errors import PurgatoryClosedError, PurgatoryFullError, TimerClosedError
from aiowheel.purgatory import DelayedOperation, Outcome

#: What a purgatory says when it takes nobody in: the client is to come back later.
REFUSALS = (PurgatoryFullError, PurgatoryClosedError, TimerClosedError)

CLIENT_CLOSED_REQUEST = 499  # nobody reads it; nginx's number, for whoever counts statuses


class Poll(DelayedOperation[object]):
    """Waits until *ready* returns something true, which is then the result.

    Args:
        ready: Asked when it is watched and at every check of its keys.
        on_timeout: Asked for the result when the timeout came first; default: None.
        timeout: Seconds or timedelta; `inf` for none.
    """

    def __init__(
        self, ready: Callable[[], object], on_timeout: Callable[[], object] | None, timeout: object
    ) -> None:
        super().__init__(timeout)
        self._ready = ready
        self._on_timeout = on_timeout
        self._found: object = None

    def try_complete(self) -> bool:
        """Ask, and keep the answer."""
        self._found = self._ready()
        return bool(self._found)

    def on_complete(self) -> object:
        """What was found, or what there is to say after the timeout."""
        if self._outcome is Outcome.COMPLETED:
            return self._found
        return None if self._on_timeout is None else self._on_timeout()


def spread(timeout: object, jitter: object) -> float:
    """A time between *timeout* - *jitter* and *timeout*, in seconds.

    Polls that began together, after a restart say, then do not all end and come back together. It
    never exceeds *timeout*, which has to stay below the patience of proxies.

    Raises:
        TypeError: An argument is no number.
        ValueError: One is NaN, or *jitter* is not from 0 to *timeout*.
    """
    longest = ns_to_seconds(max(delay_to_ns("timeout", timeout), 0))
    most = ns_to_seconds(delay_to_ns("jitter", jitter))
    if not 0 <= most <= longest:
        raise ValueError(f"jitter must be from 0 to the timeout {timeout!r}, got {jitter!r}")
    return longest - uniform(0, most) if most else longest  # noqa: S311 - to spread, no secret
