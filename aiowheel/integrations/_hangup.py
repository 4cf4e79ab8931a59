"""Waiting for a result, or for the client to disconnect. Rank 4.

Source: the cancel and uncancel of `asyncio.timeout`. There is no polling and no extra task: the
task of the request waits for the disconnect, and the result interrupts it.
"""

from __future__ import annotations

from asyncio import CancelledError, Future, create_task, current_task, sleep, wait
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from starlette.types import Receive


async def done_before_disconnect(waiter: Future[Any], receive: Receive) -> bool:
    """Return whether *waiter* was done before the client disconnected; otherwise cancel it.

    Cancelling this call cancels *waiter* as well.

    Args:
        waiter: The future that a purgatory returned, or a task.
        receive: The `receive` of the request, whose body is discarded.
    """
    if waiter.done():
        return True
    listener = current_task()
    assert listener is not None
    cancelling = listener.cancelling()
    interrupted = False

    def interrupt(_: Future[Any]) -> None:
        nonlocal interrupted
        # The client may have disconnected in the same loop iteration: a callback that the loop has
        # already scheduled cannot be removed.
        if listener is not None:
            interrupted = True
            listener.cancel()

    waiter.add_done_callback(interrupt)
    try:
        await disconnected(receive)
    except CancelledError:
        if not interrupted:
            raise
        if listener.cancelling() > cancelling + 1:  # cancelled from outside at the same time
            # A scope of anyio ends only with its own error, and cancels the task in each iteration
            # of the loop until then. The error at hand may be that of the interruption, as under
            # BaseHTTPMiddleware.
            await sleep(0)
            raise
    finally:
        waiter.remove_done_callback(interrupt)
        if interrupted:
            listener.uncancel()
        listener = None  # breaks a cycle: the task holds the error, which holds this frame
        done = waiter.done()
        waiter.cancel()
    return done


async def send_until_disconnect(
    sending: Coroutine[Any, Any, None], receive: Receive, lost: type[Exception]
) -> None:
    """Run *sending* until it ends or the client disconnects, which cancels it.

    Args:
        sending: Sends the messages to the client.
        receive: The `receive` of the request; an exception of it cancels *sending* and is raised.
        lost: The error that *sending* raises if the client has disconnected; it is dropped.
    """
    task = create_task(sending)
    try:
        await done_before_disconnect(task, receive)
    finally:
        # Not the task itself: its cancellation would look like one from outside.
        await wait({task})
        error = None if task.cancelled() else task.exception()
        if error is not None and not isinstance(error, lost):
            raise error


async def disconnected(receive: Receive) -> None:
    """Wait until the client has disconnected; discard everything that it sends until then."""
    while not (await receive())["type"].endswith(".disconnect"):
        pass
