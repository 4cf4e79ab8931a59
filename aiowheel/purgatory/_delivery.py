"""How the end of an operation reaches the task that awaits it. Rank 2."""

from __future__ import annotations

from asyncio import Future
from typing import Final

from aiowheel.purgatory._operation import Operation
from aiowheel.purgatory._outcome import Outcome

_CANCELLED: Final = Outcome.CANCELLED
_FAILED: Final = Outcome.FAILED


def deliver(operation: Operation, result: object, error: Exception | None) -> bool:
    """Settle the future of a finished *operation*; False when there is none."""
    waiter = operation._waiter
    if waiter is None:
        return False
    operation._waiter = None
    if waiter.done():
        return True
    waiter.remove_done_callback(operation._abandoned)
    try:
        _settle(waiter, operation._outcome, result, error)
    except RuntimeError:
        if not waiter.get_loop().is_closed():  # then there is nobody left who could await
            raise
    return True


def _settle(
    waiter: Future[object], outcome: Outcome, result: object, error: Exception | None
) -> None:
    if error is not None:
        waiter.set_exception(error)
        if outcome is not _FAILED:
            waiter.exception()  # marks it as seen: closing is no news for a task that never looks
    elif outcome is _CANCELLED:
        waiter.cancel()
    else:
        waiter.set_result(result)
