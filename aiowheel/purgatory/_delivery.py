"""How the end of an operation reaches the task that awaits it. Rank 2."""

from __future__ import annotations

from aiowheel.purgatory._operation import Operation
from aiowheel.purgatory._outcome import Outcome


def deliver(operation: Operation, result: object, error: Exception | None) -> bool:
    """Settle the future of a finished *operation*; False when there is none."""
    waiter = operation._waiter
    if waiter is None:
        return False
    operation._waiter = None
    if waiter.done() or waiter.get_loop().is_closed():
        return True
    waiter.remove_done_callback(operation._abandoned)
    if error is not None:
        waiter.set_exception(error)
        if operation._outcome is not Outcome.FAILED:
            waiter.exception()  # marks it as seen: closing is no news for a task that never looks
    elif operation._outcome is Outcome.CANCELLED:
        waiter.cancel()
    else:
        waiter.set_result(result)
    return True
