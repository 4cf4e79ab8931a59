"""The calls of handlers, and the commits of their outcomes. Rank 4."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from contextvars import copy_context
from functools import partial
from inspect import isawaitable, iscoroutinefunction
from typing import Any, TypeAlias, cast

from aiowheel._arguments import safe_repr
from aiowheel._events import emit
from aiowheel._units import FOREVER
from aiowheel.durable._committer import Committer
from aiowheel.durable._fire import Fire
from aiowheel.durable._lagging_clock import LaggingClock
from aiowheel.durable._recurrence import recurrence_from
from aiowheel.durable._retry import Retry
from aiowheel.durable._statistics import Counts
from aiowheel.durable._store import Store
from aiowheel.durable._window import Entry, Window
from aiowheel.durable.operations import (
    UNREAD,
    Result,
    Row,
    Settle,
    made,
    settled_row,
    without_large_payload,
)
from aiowheel.errors import (
    BadRowError,
    DurableTimersClosedError,
    StaleFireError,
    StoreError,
    TimerClosedError,
    UnknownHandlerError,
)
from aiowheel.timer import Timer

#: A handler: a plain or a coroutine function of one argument.
HandlerFunction: TypeAlias = Callable[[Fire], object]

_SLICE = 100  # fires begun in one turn of the loop, at most
_FIRST_SLICE = 10  # the same, until it is known how long the handlers block the loop
_SLICE_SECONDS = 0.005  # that the handlers of a slice may block the loop
_LOADS = 4  # payloads that are read at a time, because a page waits for them
_LONGEST_ERROR = 2000  # characters
_PAUSE_AFTER_ERROR = 0.25  # seconds until a settlement is sent again
_PAUSE_OF_BAD_RECURRENCE = 60.0  # seconds until a recurrence that failed is computed again


class Handler:
    """A registered function and its retries."""

    __slots__ = ("function", "is_async", "retry")

    def __init__(self, function: HandlerFunction, retry: Retry) -> None:
        self.function = function
        self.retry = retry
        self.is_async = iscoroutinefunction(function)


def _no_handler(fire: Fire) -> None:
    raise UnknownHandlerError(f"no handler named {fire.handler!r} is registered in this process")


_UNKNOWN = Handler(_no_handler, Retry())


class Runner:
    """The fires of one process.

    Args:
        store: Settles fires inside the user's transactions.
        timer: Runs pauses.
        clock: The store's clock.
        committer: Commits the settlements.
        counts: Counts fires and their outcomes.
        max_in_flight: The greatest number of fires that have begun and are not settled.
    """

    def __init__(
        self,
        store: Store,
        timer: Timer,
        clock: LaggingClock,
        committer: Committer,
        counts: Counts,
        max_in_flight: int,
    ) -> None:
        self._store = store
        self._timer = timer
        self._clock = clock
        self._committer = committer
        self._counts = counts
        self._max_in_flight = max_in_flight
        self.ready: deque[Entry] = deque()
        self._unread: deque[Entry] = deque()  # due, but their payloads are in the store
        self._loads: set[asyncio.Task[None]] = set()
        self._loaded: deque[Entry] = deque()  # due, with their payloads; few at a time
        # By id, generation and name: after a failover, a timer may have the id of a lost one.
        self.unsettled: dict[tuple[int, int, str], Fire] = {}
        self._busy: dict[int, int] = {}  # unsettled fires by partition
        # A dict, because its order makes a simulation repeatable.
        self._tasks: dict[Fire, asyncio.Task[None]] = {}
        self._pumping = False
        self._slice = _FIRST_SLICE  # fires of the next slice, at most
        self._tasks_began = 0.0  # when the tasks of the last slice began, on the timer's clock
        self._idle = asyncio.Event()
        self._idle.set()
        self.closing = False
        # Set by `DurableTimers` before the first call.
        self.handlers: dict[str, Handler]
        self.window: Window
        self.valid: Callable[[], bool]
        self.renew_soon: Callable[[], None]

    # --- beginning ----------------------------------------------------------------------------

    def add(self, entry: Entry) -> None:
        """Fire an entry that is due, in a later turn of the loop, once fewer fires are in flight.

        A page of overdue timers arrives in one turn; if its fires began here, they would block the
        loop.
        """
        self.ready.append(entry)
        if not self._pumping:
            self.resume()

    def resume(self) -> None:
        """Continue with the due entries, after a fire has ended or a lease was renewed."""
        if (self.ready or self._loaded) and not self._pumping:
            self._pumping = True
            asyncio.get_running_loop().call_soon(self._pump_slice)
        if self._unread:
            self._load_some()

    def _pump_slice(self) -> None:
        """Begin some fires: plain functions here, coroutine functions after it as tasks.

        A slice ends after 5 ms. The tasks begin between the two callbacks below, and the time that
        they take limits the number of fires of the next slice.
        """
        self._pumping = False
        call_soon = asyncio.get_running_loop().call_soon
        call_soon(self._note_tasks)
        begun, is_over = self._pump()
        call_soon(self._adjust_slice, begun)
        if is_over and not self.closing:
            self.resume()
        if self.has_room():
            self.window.wake()

    def _note_tasks(self) -> None:
        self._tasks_began = self._timer.time()

    def _adjust_slice(self, begun: int) -> None:
        took = self._timer.time() - self._tasks_began
        if begun and took > _SLICE_SECONDS:
            self._slice = max(1, int(begun * _SLICE_SECONDS / took))
        elif begun == self._slice:
            self._slice = min(_SLICE, 2 * begun)

    def has_room(self) -> bool:
        """Return whether another page of overdue timers may be read."""
        return len(self.ready) + len(self._unread) < 2 * self._max_in_flight

    def _pump(self) -> tuple[int, bool]:
        """Begin the fires of a slice; return how many, and whether the slice's limits ended it."""
        parked: list[Entry] = []
        begun = 0
        is_over = False
        until = self._timer.time() + _SLICE_SECONDS
        while (
            (self.ready or self._loaded)
            and not is_over
            and len(self.unsettled) < self._max_in_flight
        ):
            if self.closing or self._timer.closed or not self.valid():
                break  # the next renewal resumes
            entry = (self._loaded or self.ready).popleft()
            row = entry.row
            if row is None:
                continue
            held = self.window.held.get(row.part)
            if held is None:
                continue
            if held.draining:
                entry.row = without_large_payload(row)  # it may wait for long
                parked.append(entry)
                continue
            if row.payload is UNREAD:
                self._unread.append(entry)
                continue
            del self.window.resident[row.id]
            begun += 1
            now_us = self._clock.now_us()
            if row.due_us > now_us:
                self.window.arm(row)  # the store's clock was set back
            else:
                self._begin(row, held.epoch, now_us)
            is_over = begun == self._slice or self._timer.time() >= until
        self.ready.extendleft(reversed(parked))
        self._load_some()
        return begun, is_over

    def _load_some(self) -> None:
        """Read payloads of due timers, if their fires can begin then."""
        while (
            self._unread
            and len(self._loads) < _LOADS
            and len(self.unsettled) + len(self._loads) + len(self._loaded) < self._max_in_flight
            and not self.closing
            and self.valid()
        ):
            task = asyncio.get_running_loop().create_task(self._load(self._unread.popleft()))
            self._loads.add(task)
            task.add_done_callback(self._on_loaded)

    async def _load(self, entry: Entry) -> None:
        """Read the payload of an entry that is due; it stays in memory until its fire begins."""
        row = entry.row
        if row is None:
            return
        try:
            found = await self._store.get(row.name)
        except StoreError as error:
            self._counts.store_errors += 1
            emit("aiowheel.durable_store_error", call="get", error=repr(error))
            self._load_later(entry)
            return
        except BaseException:  # cancelled, for example
            self._load_later(entry)
            raise
        if entry.row is not row:
            return  # a commit has changed the timer
        if found is None or _version(found) != _version(row):
            self.window.forget(row.id)  # another process has changed it, and left a note
            return
        entry.row = found
        self._loaded.append(entry)

    def _load_later(self, entry: Entry) -> None:
        with suppress(TimerClosedError):  # without a timer, nothing fires
            self._timer.call_later(_PAUSE_AFTER_ERROR, self._load_again, entry)

    def _load_again(self, entry: Entry) -> None:
        self._unread.append(entry)
        self._load_some()

    def _on_loaded(self, task: asyncio.Task[None]) -> None:
        self._loads.discard(task)
        if self._timer.closed:
            return
        self.resume()
        if self.has_room():
            self.window.wake()

    def _begin(self, row: Row, epoch: int, now_us: int) -> None:
        due_us = row.due_us if row.first_due_us is None else row.first_due_us
        occurrence: int | None = due_us
        following = None
        # Before the fire is in flight: a fire that no code ends would hold its partition for ever.
        try:
            if row.recurrence is not None:
                recurrence = recurrence_from(row.recurrence)
                if row.first_due_us is None:
                    occurrence = recurrence.to_fire(due_us, now_us)
                if occurrence is None:
                    following = recurrence.next_future(due_us, now_us)
                else:
                    following = recurrence.next_after(occurrence)
        except Exception as error:  # the row is damaged, or cronsim or the time zone is missing
            emit("aiowheel.durable_bad_recurrence", timer=row.name, error=repr(error))
            self.window.postpone(row, _PAUSE_OF_BAD_RECURRENCE)
            return
        fire = Fire(
            row, due_us if occurrence is None else occurrence, epoch, following, self._ack_in
        )
        self.unsettled[row.id, row.gen, row.name] = fire
        self._busy[row.part] = self._busy.get(row.part, 0) + 1
        self._idle.clear()
        if occurrence is None:
            self._settle(fire, due_us=following, is_skipped=True)
            return
        self._counts.fired += 1
        # A due time may be in the year 1; a histogram ends after 146 years.
        self._counts.lateness.record(min((now_us - row.due_us) * 1000, FOREVER))
        self._call(fire, self.handlers.get(row.handler, _UNKNOWN))

    def _call(self, fire: Fire, handler: Handler) -> None:
        try:
            if handler.is_async:  # its task copies the context
                outcome = handler.function(fire)
            else:
                outcome = copy_context().run(handler.function, fire)
        except (SystemExit, KeyboardInterrupt):
            self._drop(fire)
            raise
        except BaseException as error:  # also a cancellation, and what ends a test of pytest
            self._end(fire, handler, error)
        else:
            if handler.is_async or isawaitable(outcome):
                self._start(fire, handler, outcome)
            else:
                self._end(fire, handler, None)

    def _start(self, fire: Fire, handler: Handler, outcome: Any) -> None:
        task = asyncio.get_running_loop().create_task(self._await(fire, handler, outcome))
        if not task.done():  # a task factory may run tasks at once
            self._tasks[fire] = task

    async def _await(self, fire: Fire, handler: Handler, outcome: Awaitable[object]) -> None:
        try:
            await outcome
        except asyncio.CancelledError as error:
            if self.closing:  # another process, or this program after a restart, repeats the fire
                self._forget(fire)
                raise
            self._end(fire, handler, error)
        except (SystemExit, KeyboardInterrupt):
            self._drop(fire)
            raise
        except BaseException as error:
            if self.closing and _is_of_closing(error):
                self._forget(fire)
            else:
                self._end(fire, handler, error)
        else:
            self._end(fire, handler, None)
        finally:
            # Not by a callback of the task, which would cost a handle in the loop for each fire.
            self._tasks.pop(fire, None)

    # --- ending -------------------------------------------------------------------------------

    def _end(self, fire: Fire, handler: Handler, error: BaseException | None) -> None:
        if error is None:
            self._settle(fire, due_us=fire.following_us)
            return
        fire.failure = error
        if fire.attempt < handler.retry.attempts:
            pause_us = int(handler.retry.pause(fire.attempt) * 1e6)
            self._settle(fire, due_us=self._clock.now_us() + pause_us, retried=True)
        else:
            self._settle(fire, due_us=fire.following_us, error=error)

    def _settle(
        self,
        fire: Fire,
        *,
        due_us: int | None,
        retried: bool = False,
        is_skipped: bool = False,
        error: BaseException | None = None,
    ) -> None:
        row = fire.row
        held = self.window.held.get(row.part)
        if held is None:
            self._refuse(fire)
            return
        fields = (
            *(row.id, row.name, row.gen, row.part, held.epoch, due_us),
            row.gen if retried else row.gen + 1,
            row.attempt + 1 if retried else 0,
            fire.due_us if retried else None,
            None if error is None else _text_of(error),
            0 if is_skipped else row.attempt + 1,
            None if error is None else fire.due_us,  # of several missed occurrences it is the last
        )
        self._send(fire, made(Settle, fields))

    def _send(self, fire: Fire, settle: Settle) -> None:
        self._committer.send(settle, partial(self._on_settled, fire, settle))

    def _on_settled(self, fire: Fire, settle: Settle, result: Result) -> None:
        if result == "done":
            self._forget(fire)
            self._report(fire, settle)
            if settle.due_us is not None:
                self.window.put(settled_row(fire.row, settle, settle.due_us))
            return
        if result == "gone":
            self._give_up(fire)
            if fire.acknowledged:
                self._counts.acknowledged += 1
            return
        held = self.window.held.get(settle.part)
        if isinstance(result, BadRowError) and settle.error is not None:
            self._send(fire, settle._replace(error="the error has no storable text"))
        elif isinstance(result, StoreError) and not self._timer.closed:
            # The commit may have happened; the row then has another generation, and the result of
            # the repeated settlement is "gone".
            self._timer.call_later(_PAUSE_AFTER_ERROR, self._send_again, fire, settle)
        elif isinstance(result, StoreError | DurableTimersClosedError):
            self._give_up(fire)  # another process, or this program after a restart, repeats it
        elif result == "stale" and held is not None and held.epoch != settle.epoch:
            self._send(fire, settle._replace(epoch=held.epoch))  # lost and regained the partition
        elif result == "stale":
            self.renew_soon()
            self._refuse(fire)
        else:
            self._give_up(fire)

    def _send_again(self, fire: Fire, settle: Settle) -> None:
        held = self.window.held.get(settle.part)
        if held is None:
            self._refuse(fire)
        else:
            self._send(fire, settle._replace(epoch=held.epoch))

    def _report(self, fire: Fire, settle: Settle) -> None:
        """Count and log an outcome that the store has recorded."""
        if not settle.attempts:
            self._counts.skipped += 1
        elif settle.error is not None:
            self._counts.dead += 1
            _log_failure("aiowheel.durable_dead_letter", fire, attempts=settle.attempts)
        elif settle.next_attempt:
            self._counts.retried += 1
            _log_failure("aiowheel.durable_retry", fire, attempt=settle.attempts)
        else:
            self._counts.acknowledged += 1

    def _refuse(self, fire: Fire) -> None:
        self._counts.stale += 1
        emit("aiowheel.durable_stale_fire", timer=fire.name, fire=fire.id, epoch=fire.epoch)
        self._give_up(fire)

    def _give_up(self, fire: Fire) -> None:
        """End a fire whose settlement was not executed; log what its handler raised."""
        if fire.failure is not None:
            _log_failure("aiowheel.durable_handler_failed", fire, attempt=fire.attempt)
        self._forget(fire)

    def _forget(self, fire: Fire) -> None:
        self._drop(fire)
        self.resume()

    def _drop(self, fire: Fire) -> None:
        """End a fire without an outcome; after an exit of the program, no other fire begins."""
        row = fire.row
        if self.unsettled.pop((row.id, row.gen, row.name), None) is None:
            return
        left = self._busy[row.part] - 1
        if left:
            self._busy[row.part] = left
        else:
            del self._busy[row.part]
            held = self.window.held.get(row.part)
            if held is not None and held.draining:
                self.renew_soon()  # which gives up the partition
        if not self.unsettled:
            self._idle.set()

    async def _ack_in(self, fire: Fire, connection: Any) -> None:
        row = fire.row
        settle = Settle(
            *(row.id, row.name, row.gen, row.part, fire.epoch, fire.following_us),
            next_gen=row.gen + 1,
            attempts=fire.attempt,
        )
        result = await self._store.settle_in(connection, settle)
        if result != "done":
            raise StaleFireError(f"fire {fire.id} of {fire.name!r} has ended elsewhere: {result}")
        fire.acknowledged = True

    # --- state and closing --------------------------------------------------------------------

    def due(self) -> int:
        """Return the number of timers that are due and have not begun to fire; from any thread."""
        # Another thread must not iterate over a deque, which the loop changes.
        waiting = [*self.ready.copy(), *self._unread.copy(), *self._loaded.copy()]
        return sum(entry.row is not None for entry in waiting) + len(self._loads)

    def begun(self, row_id: int, gen: int, name: str) -> bool:
        """Return whether this fire has begun and is not settled."""
        return (row_id, gen, name) in self.unsettled

    def is_idle(self, part: int) -> bool:
        """Return whether no fire of this partition is in flight."""
        return part not in self._busy

    async def wait_idle(self) -> None:
        """Return when no fire is in flight."""
        await self._idle.wait()

    async def cancel(self) -> None:
        """Cancel the running handlers, and wait until they have ended."""
        tasks = [*self._tasks.values(), *self._loads]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _version(row: Row) -> tuple[int, int, int]:
    return row.id, row.gen, row.attempt


def _log_failure(event: str, fire: Fire, **attempts: int) -> None:
    error = fire.failure
    emit(event, error, timer=fire.name, fire=fire.id, **attempts, error=safe_repr(error))
    fire.failure = None  # the frames of its traceback refer to the fire


def _is_of_closing(error: BaseException) -> bool:
    """Return whether a handler has scheduled or cancelled a timer too late, also in a TaskGroup."""
    if isinstance(error, BaseExceptionGroup):
        group = cast("BaseExceptionGroup[BaseException]", error)
        return group.subgroup(DurableTimersClosedError) is not None
    return isinstance(error, DurableTimersClosedError)


def _text_of(error: BaseException) -> str:
    """Return an error as one line that every database can store."""
    try:
        text = f"{type(error).__name__}: {error}"
    except Exception:
        text = type(error).__name__
    line = " ".join(text.replace("\x00", "").split())
    return line[:_LONGEST_ERROR].encode("utf-8", "replace").decode("utf-8", "replace")
