"""Waiting for a result, or for the client to hang up. Rank 4.

Source: the cancel and uncancel of `asyncio.timeout`. Nothing is polled, and no task is started: the
task that has to answer listens to its client, and the result interrupts it.
"""

from __future__ import annotations

from asyncio import CancelledError, Future, current_task
from collections.abc import Coroutine
from typing import Any


async def done_before(waiter: Future[Any], hangup: Coroutine[Any, Any, object]) -> bool:
    """Whether *waiter* was done before *hangup* ended; the other of the two is cancelled.

    Cancelling this call cancels both.

    Args:
        waiter: What a purgatory returned.
        hangup: Ends when there is nobody to answer any more; runs in the calling task.
    """
    if waiter.done():
        hangup.close()
        return True
    listener = current_task()
    assert listener is not None
    cancelling = listener.cancelling()
    interrupted = False

    def interrupt(_: Future[Any]) -> None:
        nonlocal interrupted
        # The hangup may have been seen in this very turn, when this call was on its way already:
        # a callback that the loop has taken up cannot be removed.
        if listener is not None:
            interrupted = True
            listener.cancel()

    waiter.add_done_callback(interrupt)
    try:
        await hangup
    except CancelledError:
        # Somebody else may have cancelled the task in the same turn of the loop.
        if not interrupted or listener.cancelling() > cancelling + 1:
            raise
    finally:
        waiter.remove_done_callback(interrupt)
        if interrupted:
            listener.uncancel()
        listener = None  # it keeps the error that leaves here, which keeps this frame: no cycle
        done = waiter.done()
        waiter.cancel()
    return done
