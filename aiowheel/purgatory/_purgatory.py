"""The purgatory: pending operations, and the checks that complete them. Rank 2.

Sources: Kafka's DelayedOperationPurgatory (try, watch, try again; check by key; purge by the
estimated total), the action queue of its broker, which is here the queue of nested checks, and the
threshold purgatory of its raft client.
"""

from __future__ import annotations

import heapq
from asyncio import AbstractEventLoop, Event, Future, get_running_loop
from collections import deque
from collections.abc import Callable, Coroutine, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from contextvars import Context
from itertools import islice
from types import CoroutineType
from typing import Any, Final, TypeAlias, TypeVar, cast

from mypy_extensions import i64

from aiowheel._arguments import (
    checked_choice,
    checked_int,
    checked_str,
    refuse_unhashable,
    safe_repr,
)
from aiowheel._callbacks import plain_callback
from aiowheel._coroutine_function import coroutine_function
from aiowheel._events import emit, emit_info
from aiowheel._types import Count, Delay, Drain, Mode, Name, Value
from aiowheel._units import FOREVER, delay_to_ns
from aiowheel.abc import Instrument
from aiowheel.errors import PurgatoryClosedError, PurgatoryFullError
from aiowheel.purgatory._closing import close
from aiowheel.purgatory._counters import Counters, ThresholdOperation
from aiowheel.purgatory._delayed_operation import DelayedOperation
from aiowheel.purgatory._operation import (
    Operation,
    OperationAlarm,
    OperationOwner,
    Outcome,
    PredicateOperation,
    asynchronous,
    awaitable_error,
    complete,
    deliver,
    evaluate,
    follow,
    is_abandoned,
)
from aiowheel.purgatory._statistics import PurgatoryStatistics, RunningCounts
from aiowheel.purgatory._watchers import Cursor, Link, Watchers, WatchLists
from aiowheel.timer._interpreter import captured_context
from aiowheel.timer._shared import chosen_timer
from aiowheel.timer._threads import Inbox
from aiowheel.timer._timer import Timer

Chosen: TypeAlias = Timer | None  # an object to mypyc; see aiowheel/_types.py

# Mapping is invariant in its keys: Mapping[Hashable, ...] would not accept a dict[str, int].
K = TypeVar("K", bound=Hashable)
T = TypeVar("T")

_PENDING: Final = Outcome.PENDING
_COMPLETED: Final = Outcome.COMPLETED
_EXPIRED: Final = Outcome.EXPIRED
_CANCELLED: Final = Outcome.CANCELLED
_FAILED: Final = Outcome.FAILED
# Final makes these statics of the compiled module; an imported name costs a look-up for each call.
_new_context: Final = Context
_evaluate: Final = evaluate
_complete: Final = complete
_MOST: Final = FOREVER - 1  # as a count FOREVER stands for no limit
_MODES: Final = ("all", "any")
_DRAINS: Final = ("expire", "cancel", "wait")
#: Advice for a condition that is a coroutine function.
_CHECK_LATER: Final = "await in a task, then call check_and_complete"


class _EveryKey:
    """The default of a key, because None is a legal one."""

    def __repr__(self) -> str:
        return "every key"


_EVERY_KEY: Final = _EveryKey()


class Purgatory(OperationOwner):
    """A collection of delayed operations, completed by checks of their keys or by timeouts.

    An operation ends exactly once: by its condition, by force, by its timeout, by a cancellation,
    by the closing of the purgatory, or by an exception. It then leaves the wheel and all its watch
    lists at once, and a key without operations is forgotten.

    Only the `*_threadsafe` methods and `statistics` may be called outside the timer's loop and
    thread; methods that change something raise ForeignLoopError there.

    Args:
        name: The name in statistics, log events and traces.
        timer: An open `Timer` or a `ManualTimer`; default: the running loop's shared timer.
        max_pending: The number of operations that may be pending at once; default: no limit.
        purge_interval: Default: watch lists are exact. A *count* of operations, at least 0: lists
            are purged lazily, as in Kafka, when the estimated total of operations in them exceeds
            the pending ones by more than this count. Waits for counters are in no list.
        instruments: Called for every operation that ends.

    Raises:
        TypeError: An argument has the wrong type.
        ValueError: A count is out of range.
        RuntimeError: There is no *timer*, and no loop is running.

    Attributes:
        name: As given.
        counts: The running counts behind `statistics`; read only.
    """

    def __init__(
        self,
        name: Name = "purgatory",
        *,
        timer: Chosen = None,
        max_pending: Count | None = None,
        purge_interval: Count | None = None,
        instruments: Sequence[Instrument] = (),
    ) -> None:
        self.name: str = checked_str("name", name)
        self._max_pending: i64 = FOREVER
        if max_pending is not None:
            self._max_pending = checked_int("max_pending", max_pending, 1, _MOST)
        self._purge_interval: i64 = -1
        if purge_interval is not None:
            self._purge_interval = checked_int("purge_interval", purge_interval, 0, _MOST)
        self._instruments = _checked_instruments(instruments)
        # The reference keeps the timer open, because a ManualTimer may have no other reference.
        self._timer: Timer = chosen_timer(timer)
        self._driver = self._timer.open_driver()
        self._loop: AbstractEventLoop | None = self._driver.loop
        self._lists = WatchLists()
        self._counters = Counters()
        self.counts: RunningCounts = RunningCounts()
        self._pending: i64 = 0
        self._counting: i64 = 0  # those of the pending operations that wait for counters
        self._estimated_total: i64 = 0  # without those that wait for counters
        self._closed = False
        self._emptied: list[Event] = []  # set when the last operation has ended
        self._next_end: Event | None = None  # set when an operation ends
        self._full = False  # the log event was emitted; False again when there is room
        self._busy = False  # a check or an advance is running; nested ones are queued
        # An item for each queued call: key, value (None for a check), limit, and for the rest of an
        # interrupted check the links that it had not reached.
        self._queue: deque[tuple[object, int | float | None, int, list[Link] | None]] = deque()
        self._checking: Operation | None = None  # the operation whose condition is evaluated now
        self._checking_key: object = None  # the key of that check
        self._inside: Operation | None = None  # the operation whose context is entered now
        self._blank: Context | None = None  # an empty context for reuse
        self._create_future: Callable[[], Future[object]] | None = None
        self._inbox: Inbox | None = None
        self._left: deque[object] = deque()  # items that the inbox had not delivered when it closed
        if self._loop is not None:
            self._create_future = self._loop.create_future
            owner = f"the purgatory {self.name!r}"
            self._inbox = Inbox(self._loop, self._receive, PurgatoryClosedError, owner)

    # --- watching ---------------------------------------------------------------------------

    def watch(self, operation: DelayedOperation[T], keys: Iterable[Hashable]) -> Future[T]:
        """Wait for *operation*: try; if its condition is not met, watch its keys and try again.

        All of that happens in this call, which also starts the timeout. The returned future may be
        awaited at once, later, in a task group, or never; it costs no task. Its result is that of
        `on_complete`. Cancelling the awaiting task cancels the operation.

        Args:
            operation: A new operation; it can be watched once.
            keys: At least one hashable key; a key given twice counts once.

        Raises:
            TypeError: *operation* is not a DelayedOperation, its class does not call
                `super().__init__` or has coroutine functions, or a key is not hashable.
            ValueError: *keys* is empty, or *operation* was watched before.
            PurgatoryFullError: `max_pending` operations are pending; nothing was registered.
            PurgatoryClosedError: The purgatory is closed.
            ForeignLoopError: Called from another loop or thread.
            RuntimeError: No loop is running; `try_complete_else_watch` needs none.

        Cost: O(keys), two calls of `try_complete`.
        """
        checked = _checked_operation(operation)
        names = _checked_keys(keys)
        return cast("Future[T]", self._watch(checked, names, None))

    def try_complete_else_watch(
        self, operation: DelayedOperation[T], keys: Iterable[Hashable]
    ) -> bool:
        """Watch as `watch` does, without a future; return whether the operation has ended already.

        On a `ManualTimer`, the call needs no running loop. An exception of the operation goes to
        the loop's exception handler, or is raised by the next `ManualTimer.advance`.
        """
        checked = _checked_operation(operation)
        names = _checked_keys(keys)
        self._claim(checked)
        return self._admit(checked, names, None)

    def wait_for(
        self, predicate: Callable[[], bool], keys: Iterable[Hashable], timeout: Delay | None
    ) -> Future[bool]:
        """Wait until *predicate* is true at a check of one of the keys; False on timeout.

        Args:
            predicate: A plain function, called in the context of this call.
            keys: As for `watch`.
            timeout: Seconds or a timedelta; None or `inf` for no timeout.

        Raises: as `watch`.
        """
        plain_callback("predicate", predicate, _CHECK_LATER)
        operation = PredicateOperation(predicate, timeout)
        return cast("Future[bool]", self._watch(operation, _checked_keys(keys), None))

    def wait_until(
        self, thresholds: Mapping[K, Value], timeout: Delay | None, mode: Mode = "all"
    ) -> Future[bool]:
        """Wait until counters, which `advance` raises, reach thresholds; False on timeout.

        Args:
            thresholds: The value, int or float, that each key must reach.
            timeout: Seconds or a timedelta; None or `inf` for no timeout.
            mode: "all" keys, or "any" one of them.

        Raises:
            TypeError: *thresholds* is not a mapping, or a threshold is not a number.
            ValueError: *thresholds* is empty, a threshold is NaN, or *mode* is unknown.
            PurgatoryFullError: `max_pending` operations are pending; nothing was registered.
            PurgatoryClosedError: The purgatory is closed.

        Cost: O(keys x log waiters of the key).
        """
        if mode != "all" and mode != "any":  # noqa: PLR1714 - a set would hash what may not hash
            checked_choice("mode", mode, _MODES)
        wanted = _checked_thresholds(thresholds)
        operation = ThresholdOperation(timeout, len(wanted) if mode == "all" else 1)
        keys = tuple([key for key, _ in wanted])
        return cast("Future[bool]", self._watch(operation, keys, wanted))

    def try_reach_else_watch(
        self, operation: ThresholdOperation, thresholds: list[tuple[object, int | float]]
    ) -> bool:
        """Wait as `wait_until` does for an operation that the caller has created, without a future.

        Replays call this, because they set timeouts in nanoseconds. Return whether the operation
        has ended already.
        """
        self._claim(operation)
        return self._admit(operation, tuple([key for key, _ in thresholds]), thresholds)

    def _watch(
        self,
        operation: Operation,
        keys: tuple[object, ...],
        thresholds: list[tuple[object, int | float]] | None,
    ) -> Future[object]:
        # If the loop is known, it is not looked up: that costs a system call on Python 3.11.
        create_future = self._create_future
        if create_future is None:
            create_future = get_running_loop().create_future
        waiter = create_future()
        self._claim(operation)
        operation._waiter = waiter
        if not self._admit(operation, keys, thresholds):
            follow(operation, waiter)
        return waiter

    def _refuse_if_closed(self) -> None:
        if self._closed:
            raise PurgatoryClosedError(f"{self!r} is closed")

    def _claim(self, operation: Operation) -> None:
        """Become the owner of a new operation, and set its deadline."""
        self._refuse_if_closed()
        if operation._owner is not None or operation._outcome is not _PENDING:
            raise ValueError(
                f"operation must be new, for it can be watched once, got {safe_repr(operation)}"
            )
        now = self._driver.checked_now()
        operation._owner = self
        operation.created_ns = now
        operation.deadline_ns = min(now + operation._timeout_ns, FOREVER)

    def _admit(
        self,
        operation: Operation,
        keys: tuple[object, ...],
        thresholds: list[tuple[object, int | float]] | None,
    ) -> bool:
        """Try; if not met, link it, start its timeout, try again. Return whether it has ended."""
        operation.keys = keys
        outer = self._inside
        self._inside = operation  # these tries run in the context of the caller itself
        try:
            if thresholds is not None:
                return self._admit_until(cast(ThresholdOperation, operation), thresholds)
            self._try(operation, None)
            if operation._outcome is not _PENDING:
                return True
            self._refuse_if_full()
            operation._context = captured_context()
            self._lists.link(operation, keys)
            if operation._outcome is not _PENDING:  # the hash of a key may run any code
                self._lists.unlink(operation)
                return True
            self._start_timeout(operation)
            # Kafka tries again because another thread may have met the condition meanwhile. Here,
            # code that a condition or the hash of a key ran may have met it.
            self._try(operation, None)
            return operation._outcome is not _PENDING  # noqa: TRY300 - that cannot raise
        except BaseException as error:
            self._undo_admission(operation)
            if isinstance(error, TypeError):
                for key in keys:
                    refuse_unhashable("keys", key)
            raise
        finally:
            self._inside = outer

    def _admit_until(
        self, operation: ThresholdOperation, thresholds: list[tuple[object, int | float]]
    ) -> bool:
        counters = self._counters
        missing = [item for item in thresholds if not counters.reached(item[0], item[1])]
        wanted = operation.wanted
        operation.wanted -= len(thresholds) - len(missing)
        try:
            self._try(operation, None)
            if operation._outcome is not _PENDING:
                return True
            self._refuse_if_full()
            counters.link(operation, missing)
            if operation.wanted <= 0:
                self._try(operation, None)
            if operation._outcome is not _PENDING:  # the hash of a key may run any code
                counters.unlink(operation)
                return True
            self._start_timeout(operation)
            return False  # noqa: TRY300 - that cannot raise
        except BaseException:
            operation.wanted = wanted
            raise

    def _refuse_if_full(self) -> None:
        if self._pending < self._max_pending:
            self._full = False
            return
        if not self._full:
            self._full = True
            emit("aiowheel.purgatory_full", purgatory=self.name, max_pending=self._max_pending)
        raise PurgatoryFullError(self.name, self._max_pending)

    def _start_timeout(self, operation: Operation) -> None:
        # The condition or the hash of a key may have closed the purgatory or the timer: closing
        # misses this operation. They may also have taken long, so the clock is read again.
        self._refuse_if_closed()
        driver = self._driver
        if driver.closed:
            driver.check()
        alarm = OperationAlarm(operation.deadline_ns, operation)
        driver.arm(alarm, driver.now_ns())
        operation._alarm = alarm
        self._pending += 1
        if isinstance(operation, ThresholdOperation):
            self._counting += 1
        else:
            self._estimated_total += 1

    def _undo_admission(self, operation: Operation) -> None:
        """Remove a pending operation after its admission raised, so that it can be watched again.

        An operation that ended before the exception stays ended.
        """
        if operation._outcome is not _PENDING:
            return
        operation._owner = None
        operation._waiter = None
        operation._context = None
        operation.keys = ()
        alarm = operation._alarm
        if alarm is not None:
            operation._alarm = None
            alarm.cancel()
            self._pending -= 1
            if isinstance(operation, ThresholdOperation):
                self._counting -= 1
            else:
                self._estimated_total -= 1
        if isinstance(operation, ThresholdOperation):
            self._counters.unlink(operation)
        else:
            self._lists.unlink(operation)

    # --- completing -------------------------------------------------------------------------

    def check_and_complete(
        self, key: Hashable, *, limit: Count | None = None, budget: Delay | None = None
    ) -> int:
        """Check every operation that watches *key* now, oldest first; complete those that are met.

        A call during a check or `advance` is queued and returns 0: it runs at the end of that
        call, so that nested calls need no recursion. A call inside an `on_complete` that a timeout,
        a force or `watch` runs is not queued, unless that happens during a check. A call with
        *budget* during a check or `advance` returns 0 as well, but it begins in the next turn of
        the loop, after all queued calls, so that the running call does not become longer.

        Args:
            key: The watch key. If no operation watches it, the call returns 0.
            limit: The greatest number of completions, at least 1; default: no limit.
            budget: Seconds or a timedelta above 0: after that time, the rest is checked in later
                turns of the loop, and the returned count is that of the first part.

        Returns:
            The number of operations that this call completed.

        Raises:
            TypeError: *key* is not hashable, or an argument has the wrong type.
            ValueError: *limit* or *budget* is out of range, or there is no loop for *budget*.
            ForeignLoopError: Called from another loop or thread.

        Cost: O(operations that watch *key*), one call of `try_complete` each.
        """
        most = FOREVER if limit is None else checked_int("limit", limit, 1, _MOST)
        if budget is not None:
            return self._begin_slices(key, most, self._checked_budget(budget))
        self._driver.checked_now()
        return self._check(key, most)

    def advance(self, key: Hashable, value: Value) -> int:
        """Raise the counter *key* to *value*; a value below the current one is ignored.

        The counter keeps the value until `forget`, so that a later `wait_until` completes at once.

        Returns:
            The number of operations that this call completed, lowest thresholds first; 0 for a call
            during a check or another `advance`, which is queued.

        Raises:
            TypeError: *value* is not an int or a float, or *key* is not hashable.
            ValueError: *value* is NaN.
            ForeignLoopError: Called from another loop or thread.

        Cost: O(log waiters) for each threshold reached, independent of the other waiters.
        """
        checked = _checked_number("value", value)
        self._driver.checked_now()
        return self._advance(key, checked)

    def value(self, key: Hashable) -> int | float | None:
        """Return the value of the counter *key*; None if it was never advanced, or forgotten."""
        counter = self._counters.get(key)
        return None if counter is None else counter.value

    def forget(self, key: Hashable, *, error: Callable[[], Exception] | None = None) -> bool:
        """Drop the value of the counter *key*; return whether it had one.

        Args:
            key: The key of the counter. A key without a counter is not an error.
            error: Default: pending operations continue to wait for the counter. Otherwise they are
                cancelled, and the awaiter of each gets the exception that a call of *error*
                returns. All calls of *error* come first: if one fails, nothing is dropped and
                every operation continues to wait.

        Raises:
            TypeError: *key* is not hashable, *error* is not callable, or it did not return an
                Exception other than StopIteration.
            ForeignLoopError: Called from another loop or thread.
        """
        if error is not None and not callable(error):
            raise TypeError(f"error must be a callable, got {safe_repr(error)}")
        self.check_caller()
        counter = self._counters.get(key)
        ends: list[tuple[Operation, Exception]] = []
        if error is not None and counter is not None:
            for operation in counter.operations():
                if operation._outcome is not _PENDING:  # an earlier call of *error* ended it
                    continue
                ends.append((operation, _checked_reason(error)))
        had_value = self._counters.forget(key)
        for each, reason in ends:
            if each._outcome is _PENDING:
                self.end(each, _CANCELLED, reason)
        return had_value

    def cancel_for_key(self, key: Hashable) -> list[DelayedOperation[Any]]:
        """Cancel the operations that wait for *key*, with all their keys; return them.

        An operation of `wait_for` or `wait_until` has the methods of DelayedOperation, but it is
        not an instance of that class.

        Raises:
            ForeignLoopError: Called from another loop or thread.
        """
        self.check_caller()
        cancelled = [operation for operation in self._operations_of(key) if operation.cancel()]
        return cast("list[DelayedOperation[Any]]", cancelled)

    def check_and_complete_threadsafe(self, key: Hashable) -> None:
        """Call `check_and_complete` soon in the loop; from any thread.

        Many calls share one wake-up of the loop. There is no `context`: conditions and
        `on_complete` run in the context in which their operation was watched.

        Raises:
            PurgatoryClosedError: The purgatory or its loop is closed.
            TypeError: *key* is not hashable.
            ValueError: The purgatory runs on a `ManualTimer`, which has no loop.
        """
        refuse_unhashable("key", key)
        self._open_inbox().put((key, None))

    def advance_threadsafe(self, key: Hashable, value: Value) -> None:
        """Call `advance` soon in the loop; from any thread. Many calls share one wake-up.

        Raises: as `check_and_complete_threadsafe`, and as `advance` for a bad value.
        """
        refuse_unhashable("key", key)
        checked = _checked_number("value", value)
        self._open_inbox().put((key, checked))

    def _open_inbox(self) -> Inbox:
        if self._inbox is None:
            raise ValueError("timer must have a loop for calls from threads, got a ManualTimer")
        return self._inbox

    def _receive(self, item: object) -> None:
        """Execute a call of another thread on the loop's thread."""
        if isinstance(item, Operation):
            if item._outcome is _PENDING:
                self.end(item, _CANCELLED if is_abandoned(item) else _COMPLETED, None)
            return
        key, value = cast("tuple[object, int | float | None]", item)
        if value is None:
            self._check(key, FOREVER)
        else:
            self._advance(key, value)

    # --- one check --------------------------------------------------------------------------

    def _check(self, key: object, limit: i64) -> int:
        """Check the operations that watch *key* now; return how many completed."""
        if self._busy:
            refuse_unhashable("key", key)  # raises here, not in the running check
            self._queue.append((key, None, limit, None))
            return 0
        watchers = self._lists.get(key)
        if watchers is None and not self._queue:
            return 0
        completed = 0
        self._busy = True
        try:
            if watchers is not None:
                completed = self._check_list(watchers, limit)
            if self._queue:
                self._run_queued()
        finally:
            self._busy = False
            if self._queue:
                self._run_queued_later()
        return completed

    def _check_list(self, watchers: Watchers, limit: i64) -> int:
        only = watchers.next
        if watchers.count == 1 and isinstance(only, Link):
            return int(self._check_link(only, watchers.key))
        completed = 0
        cursor = Cursor(watchers)
        try:
            while completed < limit:
                link = cursor.next()
                if link is None:
                    break
                completed += self._check_link(link, watchers.key)
        except BaseException:  # for example Ctrl-C: the others are checked later
            self._queue_rest(cursor.rest(), watchers.key, limit - completed)
            raise
        finally:
            cursor.close()
        return completed

    def _queue_rest(self, links: list[Link], key: object, limit: i64) -> None:
        """Queue the rest of an interrupted check as the next call."""
        if links:
            self._queue.appendleft((key, None, limit, links))

    def _check_rest(self, links: list[Link], key: object, limit: i64) -> None:
        """Check the operations that an interrupted check of *key* had not reached."""
        completed = 0
        visited = 0
        try:
            while completed < limit and visited < len(links):
                link = links[visited]
                visited += 1
                if link.operation is not None:
                    completed += self._check_link(link, key)
        except BaseException:  # a second Ctrl-C
            self._queue_rest(links[visited:], key, limit - completed)
            raise

    def _check_link(self, link: Link, key: object) -> bool:
        """Check one operation for *key*; return whether that completed it."""
        operation = cast(Operation, link.operation)
        if operation._outcome is not _PENDING:  # the operation has ended and is not purged yet
            self._lists.remove(link)
            return False
        if is_abandoned(operation):
            self.end(operation, _CANCELLED, None)
            return False
        return self._try(operation, key)

    def _try(self, operation: Operation, key: object) -> bool:
        """Evaluate the condition once; return whether that completed the operation."""
        self.counts.checks += 1
        operation._checks += 1
        outer, outer_key = self._checking, self._checking_key
        self._checking, self._checking_key = operation, key
        try:
            if self._inside is operation:
                evaluate(operation)
            else:
                self._run(operation, _evaluate)
        except (SystemExit, KeyboardInterrupt):
            raise
        except BaseException as error:  # one failing condition must not end the check of others
            self._fail(operation, awaitable_error(error))
        finally:
            self._checking, self._checking_key = outer, outer_key
        return operation._outcome is _COMPLETED

    def _run(self, operation: Operation, step: Callable[[Operation], object]) -> object:
        """Call `step(operation)` in the context in which the operation was watched.

        An empty context is entered as well: a variable that the operation sets must not reach the
        caller. One empty context is reused until an operation leaves a variable in it.
        """
        outer = self._inside
        context = operation._context
        empty = context is None
        if context is None:
            context = self._blank
            if context is None:
                context = _new_context()
            self._blank = None
        elif outer is not None:  # an outer call may have entered it already
            context = context.copy()
        self._inside = operation
        try:
            return context.run(step, operation)
        finally:
            self._inside = outer
            if empty and not context:
                self._blank = context

    def _fail(self, operation: Operation, error: Exception) -> None:
        if operation._outcome is _PENDING:
            self.end(operation, _FAILED, error)
        else:  # it completed itself and then raised: its awaiter already has the result
            self._report(operation, error)

    def _begin_slices(self, key: object, limit: i64, slice_ns: i64) -> int:
        self._driver.checked_now()
        watchers = self._lists.get(key)
        if watchers is None:
            return 0
        return self._check_slice(Cursor(watchers), key, limit, slice_ns)

    def _check_slice(self, cursor: Cursor, key: object, limit: i64, slice_ns: i64) -> int:
        """Check operations for *slice_ns*, and the rest in the next turns of the loop."""
        loop = cast(AbstractEventLoop, self._loop)
        if self._busy:
            loop.call_soon(self._check_slice, cursor, key, limit, slice_ns)
            return 0
        end = self._driver.now_ns() + slice_ns
        completed = 0
        unfinished = True
        self._busy = True
        try:
            while True:
                link = cursor.next()
                if link is None:
                    unfinished = False
                    break
                completed += self._check_link(link, key)
                if completed >= limit:
                    unfinished = False
                    break
                if self._driver.now_ns() >= end:
                    break
            if self._queue:
                self._run_queued()
        finally:
            self._busy = False
            if self._queue:
                self._run_queued_later()
            if unfinished:
                loop.call_soon(self._check_slice, cursor, key, limit - completed, slice_ns)
            else:
                cursor.close()
        return completed

    def _advance(self, key: object, value: int | float) -> int:
        if self._busy:
            refuse_unhashable("key", key)  # as in `_check`
            self._queue.append((key, value, FOREVER, None))
            return 0
        self._busy = True
        try:
            completed = self._raise_counter(key, value)
            if self._queue:
                self._run_queued()
        finally:
            self._busy = False
            if self._queue:
                self._run_queued_later()
        return completed

    def _raise_counter(self, key: object, value: int | float) -> int:
        counter = self._counters.raise_to(key, value)
        if counter is None:
            return 0
        completed = 0
        arrivals = counter.arrivals
        outer = self._inside
        try:
            while True:
                operation = self._counters.pop_reached(counter, value, arrivals)
                if operation is None:
                    break
                operation.wanted -= 1
                self._inside = operation  # its methods are not user code, so any context is right
                if is_abandoned(operation):
                    self.end(operation, _CANCELLED, None)
                else:
                    completed += self._try(operation, key)
        except BaseException:  # for example Ctrl-C: the other waiters still need this value
            self._queue.appendleft((key, value, FOREVER, None))
            raise
        finally:
            self._inside = outer
            counter.put_back()
        return completed

    def _run_queued(self) -> None:
        """Execute the queued calls in order."""
        while self._queue:
            key, value, limit, rest = self._queue.popleft()
            if value is not None:
                self._raise_counter(key, value)
            elif rest is not None:
                self._check_rest(rest, key, limit)
            else:
                watchers = self._lists.get(key)
                if watchers is not None:
                    self._check_list(watchers, limit)

    def _run_queued_later(self) -> None:
        """Schedule the queued calls after Ctrl-C; without a loop, the next check runs them."""
        loop = self._loop
        if loop is not None and not loop.is_closed():
            loop.call_soon(self._resume_queued)

    def _resume_queued(self) -> None:
        if self._busy:
            return
        self._busy = True
        try:
            self._run_queued()
        finally:
            self._busy = False
            if self._queue:
                self._run_queued_later()

    # --- ending -----------------------------------------------------------------------------

    def check_caller(self) -> i64:
        driver = self._driver
        # If the driver is closed, the operations have ended or are ending.
        return driver.now_ns() if driver.closed else driver.checked_now()

    def end_threadsafe(self, operation: Operation) -> None:
        self._open_inbox().put(operation)

    def end(
        self, operation: Operation, outcome: Outcome, error: Exception | None, now_ns: i64 = 0
    ) -> None:
        operation._outcome = outcome
        operation._owner = None  # an ended operation must not keep the purgatory alive
        operation.finished_ns = now_ns or self._driver.now_ns()
        if operation is self._checking and outcome is _COMPLETED:
            operation.completed_by = self._checking_key
        result: object = None
        try:
            alarm = operation._alarm
            if alarm is not None:
                operation._alarm = None
                alarm.cancel()
                self._leave(operation)
            if outcome is _COMPLETED or outcome is _EXPIRED:
                # The methods of a ThresholdOperation are not user code, so any context is right.
                if self._inside is operation or isinstance(operation, ThresholdOperation):
                    result = complete(operation)
                else:
                    result = self._run(operation, _complete)
        except BaseException as caught:  # only this operation fails
            error = awaitable_error(caught)
            operation._outcome = outcome = _FAILED
            operation.completed_by = None
            if isinstance(caught, (SystemExit, KeyboardInterrupt)):  # ends the loop as well
                operation._context = None
                self.counts.record(operation)
                deliver(operation, None, error)
                self._announce_end(operation)
                raise
        operation._context = None
        self.counts.record(operation)
        delivered = deliver(operation, result, error)
        if outcome is _FAILED and not delivered:
            self._report(operation, error)
        if outcome is _FAILED or self._instruments:
            self._announce_end(operation)

    def _leave(self, operation: Operation) -> None:
        self._pending -= 1
        try:
            if isinstance(operation, ThresholdOperation):
                self._counting -= 1
                self._counters.unlink(operation)
            elif self._purge_interval < 0:
                self._estimated_total -= 1
                self._lists.unlink(operation)
            else:  # the links stay until a purge; the collector cannot see a cycle through them
                operation._links = None
        finally:
            if self._purge_interval >= 0 and self._unpurged() > self._purge_interval:
                self._purge()
            if self._pending == 0 and self._emptied:
                emptied, self._emptied = self._emptied, []
                for event in emptied:
                    _announce(event)
            if self._next_end is not None:
                ended, self._next_end = self._next_end, None
                _announce(ended)

    def _unpurged(self) -> i64:
        """Return the estimated number of ended operations in the watch lists."""
        return self._estimated_total - (self._pending - self._counting)

    def _purge(self) -> None:
        self._estimated_total = self._pending - self._counting
        self.counts.purges += 1
        self._lists.purge()

    def _announce_end(self, operation: Operation) -> None:
        """Log a failed operation, and call the instruments."""
        if operation._outcome is _FAILED:
            emit("aiowheel.operation_failed", purgatory=self.name, operation=safe_repr(operation))
        for instrument in self._instruments:
            try:
                instrument.operation_finished(self.name, operation)
            except (SystemExit, KeyboardInterrupt):
                raise
            except BaseException as caught:  # a failing instrument must not end the work
                self._report(operation, awaitable_error(caught))

    def _report(self, operation: Operation, error: Exception | None) -> None:
        """Pass an exception that no task awaits to the loop's exception handler."""
        self._driver.report(
            {
                "message": f"Exception in delayed operation {safe_repr(operation)}",
                "exception": error,
                "operation": operation,
            }
        )

    def __reduce_ex__(self, protocol: object) -> str:
        raise TypeError(f"{type(self).__name__} cannot be copied or pickled: it owns operations")

    # --- closing ----------------------------------------------------------------------------

    async def __aenter__(self) -> Purgatory:
        return self

    # The type checkers demand the type of a coroutine function.
    @coroutine_function
    def __aexit__(self, *exc_info: object) -> CoroutineType[Any, Any, None]:
        return cast("CoroutineType[Any, Any, None]", self.aclose())

    @property
    def closed(self) -> bool:
        """Whether closing has begun; new operations are then refused."""
        return self._closed

    @coroutine_function
    def aclose(self, drain: Drain = "expire") -> Coroutine[object, object, None]:
        """Refuse new operations and end the pending ones. Idempotent.

        Args:
            drain: "expire": every pending operation expires now. "cancel": every pending operation
                is cancelled, and its awaiter gets `PurgatoryClosedError`. "wait": wait until all
                have ended.

        Raises:
            TypeError, ValueError: *drain* has another value; raised by the call itself.
            ForeignLoopError: Awaited in another loop.
        """
        checked = checked_choice("drain", drain, _DRAINS)
        return close(self._begin_closing, self._finish_closing, checked)

    def _begin_closing(self, drain: str) -> Event | None:
        """Refuse new operations; return the event to wait for, if any."""
        if not self._driver.closed:
            self._driver.check()
        if drain != "wait":
            self._close_inbox()
        if not self._closed and self._pending:
            log = emit_info if drain == "expire" else emit
            log(
                "aiowheel.purgatory_closed_with_pending",
                purgatory=self.name,
                pending=int(self._pending),
                drain=drain,
            )
        self._closed = True
        if drain != "wait" or not self._pending:
            return None
        event = Event()  # one for each call, because an event belongs to one loop
        self._emptied.append(event)
        return event

    def _finish_closing(self, drain: str) -> None:
        """End the operations that are still pending."""
        # With drain="wait", the inbox stays open until here: threads may complete operations.
        self._close_inbox()
        text = f"{self!r} was closed"
        while pending := self._operations():
            for operation in pending:
                if operation._outcome is not _PENDING:  # an earlier on_complete may have ended it
                    continue
                if is_abandoned(operation):
                    self.end(operation, _CANCELLED, None)
                elif drain == "expire":
                    self.end(operation, _EXPIRED, None)
                else:  # each gets its own error, because raising changes context and traceback
                    self.end(operation, _CANCELLED, PurgatoryClosedError(text))
        if self._unpurged() > 0:
            self._purge()  # no later check will find these links

    def _close_inbox(self) -> None:
        if self._inbox is not None:
            self._left.extend(self._inbox.close())
            while self._left:
                self._receive(self._left.popleft())

    # --- inspection -------------------------------------------------------------------------

    def next_end(self) -> Event:
        """Return an event that is set when one of the operations ends.

        Shared counters await it while every key has a wait. A periodic check would advance virtual
        time forever. Several callers may get the same event.
        """
        if self._next_end is None or self._next_end.is_set():
            self._next_end = Event()
        return self._next_end

    def __len__(self) -> int:
        return self._pending

    def __bool__(self) -> bool:
        """True even if nothing is pending: `purgatory or default` must not replace it."""
        return True

    @property
    def watched(self) -> int:
        """The number of links between an operation and a key."""
        return self._lists.links + self._counters.links

    def pending(self, key: Hashable = _EVERY_KEY) -> Iterator[DelayedOperation[Any]]:
        """Iterate over a snapshot of the pending operations, or of those that wait for *key*.

        An operation of `wait_for` or `wait_until` has the methods of DelayedOperation, but it is
        not an instance of that class.
        """
        found = self._operations() if key is _EVERY_KEY else self._operations_of(key)
        return cast("Iterator[DelayedOperation[Any]]", iter(found))

    def top_keys(self, count: Count = 10) -> list[tuple[Hashable, int]]:
        """Return the keys with the most watchers, and their numbers of watchers. O(keys).

        Operations that have ended count until they are purged.
        """
        most = checked_int("count", count, 0, _MOST)
        totals = {key: size for size, key in self._lists.sizes()}
        for size, key in self._counters.sizes():
            totals[key] = totals.get(key, 0) + size
        return heapq.nlargest(most, totals.items(), key=lambda item: item[1])

    def statistics(self) -> PurgatoryStatistics:
        """Return a snapshot of the counts; from any thread.

        Cost: O(size of the histograms); if some operations wait for conditions and others for
        counters, also O(keys of counters).
        """
        counts = self.counts
        keys = self._lists.keys + self._counters.keys
        if self._lists.keys > 0 and self._counters.keys > 0:
            keys -= self._lists.watched_among(self._counters.sizes())
        return PurgatoryStatistics(
            pending=self._pending,
            watched=self.watched,
            keys=keys,
            completed=counts.completed,
            expired=counts.expired,
            cancelled=counts.cancelled,
            failed=counts.failed,
            checks=counts.checks,
            estimated_total=self._estimated_total,
            purges=counts.purges,
            lateness=counts.lateness.copy(),
            durations=counts.durations.copy(),
        )

    def key_range(self, start: Count, stop: Count) -> tuple[list[Hashable], int]:
        """Return the keys from position *start* to before *stop*, and the number of positions.

        A page that shows a large purgatory reads its keys in parts. Keys with watchers come first,
        then those with counters, both in order of arrival; a key with both has two positions.
        O(stop).
        """
        begin = checked_int("start", start, 0, _MOST)
        end = checked_int("stop", stop, 0, _MOST)
        watched, counted = self._lists.by_key, self._counters.by_key
        size = len(watched)
        keys: list[Hashable] = list(islice(watched, begin, end))
        keys.extend(islice(counted, max(0, begin - size), max(0, end - size)))
        return keys, size + len(counted)

    def waiters(self, key: Hashable) -> int:
        """Return the number of operations that wait for *key*. O(1).

        Operations that have ended count until they are purged.
        """
        watchers = self._lists.get(key)
        counter = self._counters.get(key)
        watching = 0 if watchers is None else int(watchers.count)
        return watching if counter is None else watching + int(counter.live)

    def counter_waiters(self, key: Hashable = _EVERY_KEY) -> int:
        """Return the number of operations that wait for the counter *key*. O(1); from any thread.

        Without a key, the result is the sum for all counters: an operation counts once for each
        counter that it still waits for.
        """
        if key is _EVERY_KEY:
            return self._counters.links
        counter = self._counters.get(key)
        return 0 if counter is None else int(counter.live)

    def first_waiters(
        self, key: Hashable, most: Count
    ) -> list[tuple[DelayedOperation[Any], int | float | None]]:
        """Return pending operations that wait for *key*, each with its threshold or None.

        The result has at most *most* of each kind: the oldest that wait for a condition, and some
        of those that wait for the counter. O(most + ended operations that are not purged). An
        operation of `wait_for` or `wait_until` is not an instance of DelayedOperation, as in
        `pending`.
        """
        bound = checked_int("most", most, 0, _MOST)
        found: list[tuple[Operation, int | float | None]] = []
        watchers = self._lists.get(key)
        if watchers is not None:
            found.extend([(each, None) for each in watchers.operations(bound)])
        counter = self._counters.get(key)
        if counter is not None:
            found.extend(counter.some(bound))
        return cast("list[tuple[DelayedOperation[Any], int | float | None]]", found)

    def _operations(self) -> list[Operation]:
        """Return the pending operations, each once."""
        found = self._lists.operations()
        found.extend(self._counters.operations())
        return [operation for operation in found if operation._outcome is _PENDING]

    def _operations_of(self, key: object) -> list[Operation]:
        """Return the pending operations that wait for *key*."""
        found: list[Operation] = []
        watchers = self._lists.get(key)
        if watchers is not None:
            found.extend(watchers.operations())
        counter = self._counters.get(key)
        if counter is not None:
            found.extend(counter.operations())
        return [operation for operation in found if operation._outcome is _PENDING]

    def _checked_budget(self, budget: object) -> i64:
        slice_ns = delay_to_ns("budget", budget)
        if slice_ns <= 0:
            raise ValueError(f"budget must be above 0 seconds, got {safe_repr(budget)}")
        if self._loop is None:
            raise ValueError(f"budget must be None without a loop, got {safe_repr(budget)}")
        return slice_ns

    def __repr__(self) -> str:
        state = "closed" if self._closed else f"pending={len(self)}"
        return f"<Purgatory {self.name!r} {state}>"


def _announce(event: Event) -> None:
    """Set *event*, which raises if the loop of a waiting task is closed; no task can wait then."""
    with suppress(RuntimeError):
        event.set()


# --- arguments ------------------------------------------------------------------------------


def _checked_number(name: str, value: object) -> int | float:
    """Return a threshold or the value of a counter as given."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(f"{name} must be an int or a float, got {safe_repr(value)}")
    if value != value:  # noqa: PLR0124 - only NaN differs from itself
        raise ValueError(f"{name} must be a number other than NaN, got {value!r}")
    return value


def _checked_reason(error: Callable[[], object]) -> Exception:
    """Call the *error* of `forget` and return its result, if an awaiter can raise it."""
    reason = error()
    if not isinstance(reason, Exception) or isinstance(reason, StopIteration):
        raise TypeError(
            f"error must return an Exception other than StopIteration, got {safe_repr(reason)}"
        )
    return reason


def _checked_thresholds(thresholds: object) -> list[tuple[object, int | float]]:
    if not isinstance(thresholds, Mapping):
        raise TypeError(
            f"thresholds must be a mapping of keys to numbers, got {safe_repr(thresholds)}"
        )
    # Typed as objects, because compiled code would raise its own error for a bad threshold first.
    thresholds = cast("Mapping[object, object]", thresholds)
    wanted = [(key, _checked_number("threshold", least)) for key, least in thresholds.items()]
    if not wanted:
        raise ValueError(f"thresholds must name at least one key, got {safe_repr(thresholds)}")
    return wanted


def _checked_keys(keys: object) -> tuple[object, ...]:
    if isinstance(keys, (str, bytes)):
        raise TypeError(f"keys must be a collection of keys, not one string, got {safe_repr(keys)}")
    if not isinstance(keys, (list, tuple)) and not isinstance(keys, Iterable):
        raise TypeError(f"keys must be a collection of keys, got {safe_repr(keys)}")
    keys = cast("Iterable[object]", keys)
    checked = tuple(keys)
    if not checked:
        raise ValueError(f"keys must name at least one key, got {safe_repr(keys)}")
    return checked


def _checked_instruments(instruments: object) -> tuple[Instrument, ...]:
    if isinstance(instruments, Iterable):
        instruments = cast("Iterable[Instrument]", instruments)
        checked = tuple(instruments)
        for instrument in checked:
            if not callable(getattr(instrument, "operation_finished", None)):
                break
        else:
            return checked
    raise TypeError(f"instruments must be a sequence of instruments, got {safe_repr(instruments)}")


def _checked_operation(operation: object) -> Operation:
    """Return a user's operation if it can be watched; raise TypeError otherwise."""
    if not isinstance(operation, Operation):
        raise TypeError(f"operation must be a DelayedOperation, got {safe_repr(operation)}")
    method = getattr(operation, "asynchronous_method", "")
    if method:
        raise TypeError(f"{type(operation).__name__}.{asynchronous(method)}")
    try:
        operation._outcome  # noqa: B018 - set by the constructor
    except AttributeError:
        kind = type(operation).__name__
        raise TypeError(
            f"operation must call super().__init__(timeout) in its constructor, got a {kind}, "
            "which does not"
        ) from None
    return operation
