"""One long poll: an operation that waits for an answer. Rank 4.

Source: Kafka's delayed fetch, as an HTTP request.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from aiowheel._arguments import checked_str, safe_repr
from aiowheel._callbacks import AWAIT_BEFORE, plain_callback, refuse_coroutine
from aiowheel._types import Delay
from aiowheel.errors import (
    PurgatoryClosedError,
    PurgatoryFullError,
    SharedCountersClosedError,
    StoreUnavailableError,
    TimerClosedError,
)
from aiowheel.purgatory import DelayedOperation, Outcome, Purgatory
from aiowheel.shared._store import checked_store
from aiowheel.timer import ManualTimer, Timer

#: Errors of a purgatory or store that accepts no operation at present: the client gets a 503.
REFUSALS = (
    PurgatoryFullError,
    PurgatoryClosedError,
    SharedCountersClosedError,
    StoreUnavailableError,
    TimerClosedError,
)

CLIENT_CLOSED_REQUEST = 499  # nginx's status: no client gets it, only access logs show it


class Poll(DelayedOperation[object]):
    """An operation that waits until *ready* returns something true, which is then the result.

    Args:
        ready: A plain function, called when the poll is watched and at every check of its keys.
        on_timeout: A plain function, called for the result after the timeout; default: None.
        timeout: Seconds.

    Raises:
        TypeError: A function is not callable, or a coroutine function.
    """

    def __init__(
        self,
        ready: Callable[[], object],
        on_timeout: Callable[[], object] | None,
        timeout: Delay | None,
    ) -> None:
        super().__init__(timeout)
        self._ready = plain_callback("ready", ready, AWAIT_BEFORE)
        self._on_timeout: Callable[..., object] | None = None
        if on_timeout is not None:
            self._on_timeout = plain_callback("on_timeout", on_timeout, AWAIT_BEFORE)
        self._found: object = None

    def try_complete(self) -> bool:
        """Call *ready*, and keep its result."""
        self._found = called("ready", self._ready)
        return bool(self._found)

    def on_complete(self) -> object:
        """Return the result of *ready*, or of *on_timeout* after the timeout."""
        if self.outcome is Outcome.COMPLETED:
            return self._found
        return None if self._on_timeout is None else called("on_timeout", self._on_timeout)


def check_purgatory(purgatory: object) -> None:
    """Raise an error if *purgatory* is not a purgatory."""
    if not isinstance(purgatory, Purgatory):
        raise TypeError(f"purgatory must be a Purgatory, got {safe_repr(purgatory)}")


def check_wheel(
    name: object, tick: Any, max_pending: Any, instruments: Any, counters: object
) -> None:
    """Raise an error now if an argument would make the start of the application fail later."""
    checked_str("name", name)
    Timer(tick=tick)
    Purgatory(timer=ManualTimer(), max_pending=max_pending, instruments=instruments)
    if counters is not None:
        checked_store(counters, "counters")


def called(name: str, function: Callable[..., object], *args: object) -> object:
    """Call *function*, and return its result.

    Raises:
        TypeError: The result is a coroutine.
    """
    result = function(*args)
    refuse_coroutine(name, result, AWAIT_BEFORE)
    return result
