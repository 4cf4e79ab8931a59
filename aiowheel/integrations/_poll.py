"""One long poll: an operation that waits for something to answer with. Rank 4.

Source: Kafka's delayed fetch, as an HTTP request.
"""

from __future__ import annotations

from collections.abc import Callable

from aiowheel._types import Delay
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
        self,
        ready: Callable[[], object],
        on_timeout: Callable[[], object] | None,
        timeout: Delay | None,
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
        if self.outcome is Outcome.COMPLETED:
            return self._found
        return None if self._on_timeout is None else self._on_timeout()
