"""A delayed operation: its state, its outcome, and how the outcome reaches the awaiter. Rank 2.

Source: Kafka's DelayedOperation, without its lock, because one event loop runs all code.
"""

from __future__ import annotations

import logging
from asyncio import Future, InvalidStateError
from asyncio.events import _get_running_loop
from collections.abc import Callable
from contextvars import Context
from enum import Enum
from types import AsyncGeneratorType, CoroutineType
from typing import Final, cast

from mypy_extensions import i64, mypyc_attr

from aiowheel._arguments import safe_repr
from aiowheel._units import FOREVER, delay_to_ns, ns_to_seconds
from aiowheel.errors import TimerClosedError
from aiowheel.timer._driver import TimerTask
from aiowheel.wheel._bucket import Node


class Outcome(Enum):
    """The outcome of a delayed operation: PENDING until exactly one of the others applies."""

    PENDING = "pending"
    COMPLETED = "completed"  #: its condition was met, or `force_complete` was called
    EXPIRED = "expired"  #: its timeout elapsed first, or the purgatory was closed
    CANCELLED = "cancelled"  #: it, its awaiting task or one of its keys was cancelled
    FAILED = "failed"  #: `try_complete`, `on_complete` or `on_expiration` raised


_PENDING: Final = Outcome.PENDING
_COMPLETED: Final = Outcome.COMPLETED
_EXPIRED: Final = Outcome.EXPIRED
_CANCELLED: Final = Outcome.CANCELLED
_FAILED: Final = Outcome.FAILED
_coroutine_type: Final = CoroutineType


class OperationOwner:
    """The interface through which an operation reaches its purgatory."""

    def check_caller(self) -> i64:
        """Return the time in nanoseconds; raise ForeignLoopError on another loop or thread."""
        raise NotImplementedError

    def end(
        self, operation: Operation, outcome: Outcome, error: Exception | None, now_ns: i64 = 0
    ) -> None:
        """End a pending operation; the caller has made sure that it is pending.

        Args:
            operation: The operation to end.
            outcome: How it ends.
            error: The exception for its awaiter, if any.
            now_ns: A fresh reading of the clock; 0: read it.
        """
        raise NotImplementedError

    def end_threadsafe(self, operation: Operation) -> None:
        """Complete *operation* on the thread of the loop."""
        raise NotImplementedError


@mypyc_attr(allow_interpreted_subclasses=True)
class Operation:
    """The state of a delayed operation; users derive from `DelayedOperation`."""

    def __init__(self, timeout: object) -> None:
        self._timeout_ns: i64 = FOREVER if timeout is None else delay_to_ns("timeout", timeout)
        self._outcome: Outcome = _PENDING
        #: The key whose check completed the operation; None if it ended in another way.
        self.completed_by: object = None
        #: The keys that the operation watches.
        self.keys: tuple[object, ...] = ()
        #: `created`, `deadline` and `finished` in whole nanoseconds. Read only.
        self.created_ns: i64 = 0
        self.deadline_ns: i64 = FOREVER
        self.finished_ns: i64 = FOREVER
        self._checks: i64 = 0
        self._owner: OperationOwner | None = None  # set while the operation is pending
        self._alarm: OperationAlarm | None = None
        self._links: Node | None = None  # the chain of its links in the watch lists
        self._waiter: Future[object] | None = None
        self._on_waiter_done: Callable[[Future[object]], None] | None = None
        # The context of the call of `watch`; None if that is empty.
        self._context: Context | None = None

    # --- for subclasses ---------------------------------------------------------------------

    def try_complete(self) -> object:
        """Return whether the condition is met; any true value completes the operation."""
        raise NotImplementedError(f"{type(self).__name__} must implement try_complete")

    def on_complete(self) -> object:
        """Do the delayed work; the returned value is the result of awaiting the operation."""
        return None

    def on_expiration(self) -> None:
        """Called after `on_complete` when the timeout ended the operation."""

    # --- for callers ------------------------------------------------------------------------

    def force_complete(self) -> bool:
        """Complete the operation without its condition; return True for exactly one caller.

        An operation that was never watched ends as well. If its `on_complete` raises, the outcome
        is FAILED, and the exception goes to the running loop's exception handler or, without a
        loop, to asyncio's logger.

        Raises:
            ForeignLoopError: Called from another loop or thread than the purgatory's;
                `force_complete_threadsafe` can be called there.
        """
        return _end(self, _COMPLETED)

    def force_complete_threadsafe(self) -> None:
        """Call `force_complete` soon in the purgatory's loop; from any thread.

        Many calls share one wake-up of the loop. Calls of one thread keep their order, also with
        `Purgatory.check_and_complete_threadsafe` and `advance_threadsafe`. The call returns nothing
        because the operation may end in another way before; see `outcome`. For an operation that
        has ended, it does nothing.

        Raises:
            RuntimeError: The operation was never watched.
            PurgatoryClosedError: The purgatory or its loop is closed.
            ValueError: The purgatory runs on a `ManualTimer`, which has no loop.
        """
        owner = self._owner
        if owner is not None:
            owner.end_threadsafe(self)
        elif self._outcome is _PENDING:
            raise RuntimeError(f"operation must be watched first, got {safe_repr(self)}")

    def cancel(self) -> bool:
        """Cancel the operation without calling `on_complete`; return True only once.

        A task that awaits it gets CancelledError.

        Raises:
            ForeignLoopError: Called from another loop or thread than the purgatory's.
        """
        return _end(self, _CANCELLED)

    def is_completed(self) -> bool:
        """Return whether the operation has ended, with any outcome."""
        return self._outcome is not _PENDING

    @property
    def outcome(self) -> Outcome:
        """The outcome, PENDING while the operation waits."""
        return self._outcome

    @property
    def checks(self) -> int:
        """The number of calls of `try_complete`."""
        return self._checks

    @property
    def created(self) -> float:
        """When the operation was watched, in seconds on the scale of `timer.time()`."""
        return ns_to_seconds(self.created_ns)

    @property
    def deadline(self) -> float:
        """When the operation expires, in seconds of `timer.time()`; `inf` without a timeout."""
        return ns_to_seconds(self.deadline_ns)

    @property
    def finished(self) -> float:
        """When the operation ended, in seconds of `timer.time()`; `inf` while it is pending."""
        return ns_to_seconds(self.finished_ns)

    def _waiter_done(self, waiter: Future[object]) -> None:
        if waiter.cancelled():
            self._waiter = None
            self._on_waiter_done = None
            owner = self._owner
            if owner is not None and self._outcome is _PENDING:
                owner.end(self, _CANCELLED, None)

    def __reduce_ex__(self, protocol: object) -> str:
        raise TypeError(f"{type(self).__name__} cannot be copied or pickled: it is watched once")

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._outcome.value} keys={self.keys!r}>"


class PredicateOperation(Operation):
    """An operation whose condition is a function; `wait_for` creates it."""

    def __init__(self, predicate: object, timeout: object) -> None:
        super().__init__(timeout)
        self._predicate = cast("Callable[[], object]", predicate)

    def try_complete(self) -> object:
        return self._predicate()

    def on_complete(self) -> bool:
        return self._outcome is _COMPLETED


# An alarm and its operation refer to each other. Every end of the operation breaks that cycle,
# because the cyclic collector does not see an acyclic class.
@mypyc_attr(acyclic=True, free_list_len=1)
class OperationAlarm(TimerTask):
    """The timeout of an operation, which is its payload."""

    __slots__ = ()

    def fire(self) -> None:
        operation = cast(Operation, self._payload)
        self._payload = None
        owner = operation._owner
        if owner is not None and operation._outcome is _PENDING:
            owner.end(operation, _CANCELLED if is_abandoned(operation) else _EXPIRED, None)

    def drop(self) -> None:
        operation = cast(Operation, self._payload)
        self._payload = None
        owner = operation._owner
        if owner is not None and operation._outcome is _PENDING:
            owner.end(operation, _CANCELLED, TimerClosedError("the timer was closed"))


# --- ends, and the awaiter ------------------------------------------------------------------
# These are functions because the compiled build calls the methods of a class with user subclasses
# by name, which costs 15 times as much.


def _end(operation: Operation, outcome: Outcome) -> bool:
    """End *operation* for a caller; return False if it has ended."""
    if operation._outcome is not _PENDING:
        return False
    owner = operation._owner
    if owner is None:
        _end_unwatched(operation, outcome)
        return True
    now = owner.check_caller()
    if outcome is not _CANCELLED and is_abandoned(operation):
        owner.end(operation, _CANCELLED, None, now)
        return False
    owner.end(operation, outcome, None, now)
    return True


def _end_unwatched(operation: Operation, outcome: Outcome) -> None:
    operation._outcome = outcome
    if outcome is not _COMPLETED:
        return
    try:
        refuse_coroutine("on_complete", operation.on_complete())
    except BaseException as error:
        operation._outcome = _FAILED
        if isinstance(error, (SystemExit, KeyboardInterrupt)):
            raise
        _report_unwatched(operation, error)


def is_abandoned(operation: Operation) -> bool:
    """Return whether the awaiting task was cancelled in this turn of the loop."""
    waiter = operation._waiter
    return waiter is not None and waiter.cancelled()


def follow(operation: Operation, waiter: Future[object]) -> None:
    """Cancel *operation* when *waiter*, which `watch` returns, is cancelled."""
    # Stored, because removing the same object later is cheaper than comparing two bound methods.
    operation._on_waiter_done = operation._waiter_done
    waiter.add_done_callback(operation._on_waiter_done)


def deliver(operation: Operation, result: object, error: Exception | None) -> bool:
    """Settle the future of the ended *operation*; return False if no awaiter can get *error*."""
    waiter = operation._waiter
    if waiter is None:
        return False
    operation._waiter = None
    callback = operation._on_waiter_done
    if callback is not None:
        operation._on_waiter_done = None
        waiter.remove_done_callback(callback)
    try:
        if error is not None:
            if waiter.done():  # a method of the operation may have cancelled it
                return False
            waiter.set_exception(error)
            if operation._outcome is not _FAILED:
                # This marks the exception as retrieved: closing must not log an error for
                # each operation that no task awaits.
                waiter.exception()
        elif operation._outcome is _CANCELLED:
            waiter.cancel()
        else:
            waiter.set_result(result)
    except InvalidStateError:
        return True  # the future is done already; its awaiter cancelled it
    except RuntimeError:
        if not waiter.get_loop().is_closed():  # no task can await on a closed loop
            raise
    return True


# --- calls of user code ---------------------------------------------------------------------


def evaluate(operation: Operation) -> None:
    """Evaluate the condition of a pending *operation* once, and complete it if that is met."""
    answer = operation.try_complete()
    if answer is False or (answer is not True and not is_met(answer)):
        return
    owner = operation._owner
    if owner is not None and operation._outcome is _PENDING:
        owner.end(operation, _COMPLETED, None)


def complete(operation: Operation) -> object:
    """Call `on_complete`, and `on_expiration` after a timeout; return the former's result."""
    result = operation.on_complete()
    if result is not None:
        refuse_coroutine("on_complete", result)
    if operation._outcome is _EXPIRED:
        # Typed as object, because an `async def` override returns a coroutine instead of None.
        expiration = cast("Callable[[], object]", operation.on_expiration)
        refuse_coroutine("on_expiration", expiration())
    return result


# --- results and exceptions of user code ----------------------------------------------------


def is_met(answer: object) -> bool:
    """Return the truth value of the result of a condition.

    Raises:
        TypeError: *answer* is awaitable, and would always be true.
    """
    kind = type(answer)
    if kind is _coroutine_type or kind is AsyncGeneratorType or hasattr(kind, "__await__"):
        if kind is _coroutine_type:
            cast("CoroutineType[object, object, object]", answer).close()
        raise TypeError(
            "a condition must be a plain function that returns a bool, got an awaitable "
            f"{kind.__name__}: await it in a task, then call check_and_complete"
        )
    return bool(answer)


def refuse_coroutine(name: str, result: object) -> None:
    """Raise TypeError if the method *name* returned a coroutine, which is closed."""
    if type(result) is _coroutine_type:
        cast("CoroutineType[object, object, object]", result).close()
        raise TypeError(asynchronous(name))


def asynchronous(name: str) -> str:
    """Return the error text for a method *name* that is a coroutine function."""
    return (
        f"{name} must be a plain function, got a coroutine function: it runs inside the call that "
        "checks the operation; start a task for the part that awaits"
    )


def awaitable_error(error: BaseException) -> Exception:
    """Return *error* in a form that an awaiting task can receive.

    A task cannot raise StopIteration, and treats CancelledError as its own cancellation. Any other
    exception that is not an Exception would end more than the task. These exceptions are wrapped.
    """
    if isinstance(error, Exception) and not isinstance(error, StopIteration):
        return error
    wrapped = RuntimeError(f"a delayed operation raised {error!r}")
    wrapped.__cause__ = error
    return wrapped


def _report_unwatched(operation: Operation, error: BaseException) -> None:
    message = f"Exception in delayed operation {safe_repr(operation)}"
    loop = _get_running_loop()
    if loop is not None:
        loop.call_exception_handler(
            {"message": message, "exception": error, "operation": operation}
        )
    else:  # the logger of a loop's default exception handler
        logging.getLogger("asyncio").error(message, exc_info=error)
