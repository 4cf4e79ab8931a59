"""Waiting for a result, or for the client to disconnect. Rank 4.

Source: the cancel and uncancel of `asyncio.timeout`. There is no polling and no extra task: the
task of the request waits for the disconnect, and the result interrupts it.
"""

from __future__ import annotations

from asyncio import CancelledError, Future, current_task
from collections.abc import Coroutine
from typing import Any


async def done_before(waiter: Future[Any], hangup: Coroutine[Any, Any, object]) -> bool:
    """Return whether *waiter* was done before *hangup* ended; cancel the other one.

    Cancelling this call cancels both.

    Args:
        waiter: The future that a purgatory returned.
        hangup: Ends when the client has disconnected; runs in the calling task.
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
        # The hangup may have ended in the same loop iteration: a callback that the loop has
        # already scheduled cannot be removed.
        if listener is not None:
            interrupted = True
            listener.cancel()

    waiter.add_done_callback(interrupt)
    try:
        await hangup
    except CancelledError:
        # The task may also have been cancelled from outside in the same loop iteration.
        if not interrupted or listener.cancelling() > cancelling + 1:
            raise
    finally:
        waiter.remove_done_callback(interrupt)
        if interrupted:
            listener.uncancel()
        listener = None  # breaks a cycle: the task holds the error, which holds this frame
        done = waiter.done()
        waiter.cancel()
    return done
