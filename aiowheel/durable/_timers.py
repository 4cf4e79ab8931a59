"""The public class: timers whose state is kept in a database. Rank 4."""

from __future__ import annotations

import asyncio
import os
import secrets
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import datetime
from functools import partial
from itertools import islice
from typing import Any, Literal, NamedTuple, Self, TypeAlias, TypeVar, cast

from aiowheel._arguments import checked_bool, checked_choice, checked_int, checked_str, safe_repr
from aiowheel._background import LastingTask, check_loop
from aiowheel._callbacks import called_or_awaited
from aiowheel._events import emit
from aiowheel._printable import is_unicode
from aiowheel._types import Count, Delay, Switch
from aiowheel._units import checked_seconds
from aiowheel.durable._committer import MOST_BYTES, MOST_OPERATIONS, Committer
from aiowheel.durable._instants import Due, due_to_us, to_datetime
from aiowheel.durable._lagging_clock import LaggingClock
from aiowheel.durable._leases import Leases
from aiowheel.durable._recurrence import Cron, MissedOccurrences, recurrence_of
from aiowheel.durable._retry import Retry
from aiowheel.durable._runner import Handler, HandlerFunction, Runner
from aiowheel.durable._statistics import Counts, DurableStatistics
from aiowheel.durable._store import Store
from aiowheel.durable._window import Window
from aiowheel.durable.operations import (
    LARGEST_PAYLOAD,
    LONGEST_NAME,
    Cancel,
    DeadLetter,
    IfExists,
    Move,
    Operation,
    Placed,
    Put,
    Redrive,
    Removed,
    Result,
    Row,
    Settle,
    Summary,
    made,
)
from aiowheel.errors import DurableTimersClosedError, StoreError, TimerClosedError
from aiowheel.timer import Timer, current_timer

F = TypeVar("F", bound=HandlerFunction)
_State: TypeAlias = Literal["new", "opening", "open", "closing", "closed"]

_IF_EXISTS = ("replace", "keep", "error")
_PAGE = 1000
_PAUSE_AFTER_FAILURE = 0.25  # seconds until a task is started again


class NewTimer(NamedTuple):
    """One timer for `DurableTimers.schedule_many`; the fields are arguments of `schedule`."""

    name: str
    handler: str
    due: Due
    payload: bytes = b""


class DurableTimers:
    """Timers that survive the process: a database keeps them, a wheel fires them.

    Use it in `async with`. After the block, or after an opening that has failed, it can be entered
    again, also in another event loop: the handlers stay, and the statistics go on.

    Only timers that are due within the window are in memory. Calls that change timers return after
    the change is committed; calls that wait at the same time share a commit.

    All calls but `handler`, `now` and `statistics` raise `ForeignLoopError` in another event loop
    or thread than that of `async with`.

    A timer fires at least once, never early, and calls the handler that it names. A repeat has the
    same `Fire.id`. Several processes on one store share its partitions. If a process ends or
    stalls, the other processes take its partitions after its lease has ended.

    Args:
        store: A `SQLiteStore`, a `PostgresStore` or a `MemoryStore`. The first two serve one
            `DurableTimers` at a time: `async with` raises `StoreError` for a store in use, and
            `RuntimeError` on a loop of virtual time, because these stores have real clocks.
        timer: Holds the deadlines; default: the running loop's shared timer. `async with` raises
            `TimerClosedError` if it is not open. Once it is closed, this process fires nothing.
        window: Seconds ahead for which timers are in memory, from 1 to a week; default: a minute,
            on a `MemoryStore` a day.
        lease: Seconds after which other processes take the partitions of a stopped process, from 1
            to a day; default: 10, on a `MemoryStore` a day. It is renewed every third of it.
        max_in_flight: The greatest number of fires that have begun and whose outcome is not
            committed, at least 1.
        fires: Whether this process fires timers. False for a process that only schedules and
            cancels them: it takes no partition and needs no handler.

    Raises:
        TypeError: An argument has the wrong type.
        ValueError: An argument is out of range.
    """

    def __init__(
        self,
        store: Store,
        *,
        timer: Timer | None = None,
        window: Delay | None = None,
        lease: Delay | None = None,
        max_in_flight: Count = 1000,
        fires: Switch = True,
    ) -> None:
        if not isinstance(store, Store):  # pyright: ignore[reportUnnecessaryIsInstance] - users pass anything
            raise TypeError(f"store must be a Store, got {safe_repr(store)}")
        if timer is not None and not isinstance(timer, Timer):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(f"timer must be a Timer or None, got {safe_repr(timer)}")
        self._store = store
        self._given_timer = timer
        window = store.default_window if window is None else window
        lease = store.default_lease if lease is None else lease
        self._window_seconds = checked_seconds("window", window, 1, 604_800)
        self._lease = checked_seconds("lease", lease, 1, 86_400)
        self._max_in_flight = checked_int("max_in_flight", max_in_flight, 1, 1_000_000)
        self._fires = checked_bool("fires", fires)
        self._owner = _new_owner()
        self._handlers: dict[str, Handler] = {}
        self._counts = Counts()
        self._state: _State = "new"
        self._entered = False  # until the store is closed again
        self._loop: asyncio.AbstractEventLoop
        self._tasks: list[LastingTask] = []
        self._closing: asyncio.Task[None] | None = None

    @property
    def owner(self) -> str:
        """The name under which this object owns partitions; each `async with` sets another."""
        return self._owner

    @property
    def closed(self) -> bool:
        """Whether this object is closed; False before it is entered."""
        return self._state == "closed"

    # --- life ---------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        if self._entered:
            check_loop("the durable timers belong", self._loop)
            raise RuntimeError("DurableTimers must be closed before they are entered again")
        loop = asyncio.get_running_loop()
        if self._store.needs_real_time and getattr(loop, "is_virtual", False):
            kind = type(self._store).__name__
            raise RuntimeError(
                f"a loop of virtual time needs a MemoryStore, got a {kind}, whose clock is real: "
                "use a MemoryStore, or a real event loop"
            )
        timer = current_timer() if self._given_timer is None else self._given_timer
        timer.open_driver()  # raises if it is not open
        self._loop = loop
        self._entered = True
        self._state = "opening"
        # Forked workers may share this object, and an earlier block may have kept its leases.
        self._owner = _new_owner()
        try:
            await self._open(timer)
        except BaseException:
            self._entered = False
            if not self.closed:
                self._state = "new"
            raise
        self._state = "open"
        tasks = {"commits": self._committer.run}
        if self._fires:
            self._store.subscribe(self._leases.hint)
            self._store.subscribe_to_losses(self._leases.suspect)
            tasks |= {"leases": self._leases.run, "window": self._window.run}
        elif self._store.clock_us() is None:
            tasks["clock"] = self._follow_clock
        self._tasks = [
            LastingTask(partial(self._keep_running, run), f"aiowheel durable {name}")
            for name, run in tasks.items()
        ]
        return self

    async def _open(self, timer: Timer) -> None:
        """Open the store and take partitions, or leave the store closed."""
        try:
            await self._store.open()
        except StoreError:  # another object may have opened the store
            raise
        except BaseException:
            await self._store.aclose()
            raise
        try:
            self._build(timer)
            await (self._leases.renew() if self._fires else self._read_clock())
        except BaseException:  # the store may have given partitions to this process
            await self._close_store()
            raise
        if self.closed:
            await self._close_store()
            raise DurableTimersClosedError("DurableTimers were closed while they were opened")

    def _build(self, timer: Timer) -> None:
        """Create the parts and connect them, from the store up."""
        store, counts = self._store, self._counts
        self._clock = LaggingClock(store, timer)
        self._timer = timer
        self._committer = Committer(store, self._owner, counts, self._apply, self._on_failure)
        self._runner = Runner(
            store, timer, self._clock, self._committer, counts, self._max_in_flight
        )
        window_us = int(self._window_seconds * 1e6)
        self._window = Window(
            store, timer, self._clock, window_us, counts, self._runner.add, self._runner.begun
        )
        self._leases = Leases(
            *(store, self._owner, timer, self._clock, self._window, self._committer, self._lease),
            window_us + int(self._lease * 1e6),
            counts,
            self._runner.resume,
            self._runner.is_idle,
        )
        self._runner.handlers = self._handlers
        self._runner.window = self._window
        self._runner.valid = self._window.may_read = self._leases.valid
        self._runner.renew_soon = self._leases.renew_soon
        self._window.has_room = self._runner.has_room

    async def _read_clock(self) -> None:
        sent = self._timer.time()
        now_us = await self._store.now_us()
        self._clock.observe(now_us, self._timer.time() - sent)

    async def _follow_clock(self) -> None:
        """Correct the estimate of the store's clock, which renewals do in a process that fires."""
        while True:
            await self._timer.sleep(self._lease / 3)
            try:
                await self._read_clock()
            except StoreError as error:
                self._counts.store_errors += 1
                emit("aiowheel.durable_store_error", call="clock", error=repr(error))

    @staticmethod
    async def _keep_running(run: Callable[[], Awaitable[None]]) -> None:
        while True:
            try:
                await run()
            except TimerClosedError:
                return  # without a timer, nothing can fire or wait
            except Exception as error:
                loop = asyncio.get_running_loop()
                text = "a task of DurableTimers failed and is started again"
                loop.call_exception_handler({"message": text, "exception": error})
                await asyncio.sleep(_PAUSE_AFTER_FAILURE)

    async def __aexit__(self, *exc_info: object) -> None:
        await self.aclose()

    async def aclose(self, *, drain: Delay = 30.0) -> None:
        """Stop firing, wait for the running handlers, and release the partitions.

        Idempotent, and safe to call from several tasks. The timers stay in the store. Later calls
        of other methods raise `DurableTimersClosedError`, and so does an `async with` that another
        task has begun and that is still opening the store. The fire of a handler that ends with
        this error, also inside of an `ExceptionGroup`, is repeated by another process, or after a
        restart.

        Args:
            drain: Seconds to wait for handlers and for the commits of their outcomes. Handlers that
                run longer are cancelled, and their fires are repeated.

        Raises:
            ValueError: *drain* is not from 0 to 1e9 seconds.
        """
        seconds = checked_seconds("drain", drain, 0, 1e9)
        if self._state in {"opening", "open", "closing"}:
            check_loop("the durable timers belong", self._loop)
        if self._state in {"new", "opening", "closed"}:
            self._state = "closed"
            return
        if self._closing is None:
            self._closing = asyncio.create_task(self._close(seconds))
        await asyncio.shield(self._closing)

    async def _close(self, drain: float) -> None:
        self._state = "closing"
        self._runner.closing = True
        self._store.unsubscribe(self._leases.hint)
        self._store.unsubscribe(self._leases.suspect)
        try:
            await self._at_most(drain, self._runner.wait_idle)
            await self._runner.cancel()
            await self._at_most(self._lease, self._committer.drained)
            for task in self._tasks:
                task.cancel()
            for task in self._tasks:
                await task.end()
        finally:  # also if `asyncio.run` cancels all tasks
            self._committer.close()
            self._window.lose(list(self._window.held))
            try:
                await self._close_store()
            finally:  # also if this call is cancelled again
                self._state = "closed"
                self._entered = False
                self._closing = None

    async def _close_store(self) -> None:
        try:
            await self._store.release(self._owner)
        except StoreError as error:  # without the release, the leases end later
            emit("aiowheel.durable_store_error", call="release", error=repr(error))
        finally:
            await self._store.aclose()

    async def _at_most(self, seconds: float, wait: Callable[[], Awaitable[object]]) -> None:
        with suppress(TimerClosedError):  # if the timer was closed first, waiting is impossible
            async with self._timer.move_on_after(seconds):
                await wait()

    def _check_open(self) -> None:
        if self._state != "open":
            raise DurableTimersClosedError(f"{self!r} is not open: use it inside `async with`")

    def _check_caller(self) -> None:
        """Check that this object is open and the caller runs in its loop."""
        self._check_open()
        check_loop("the durable timers belong", self._loop)

    # --- results of commits -------------------------------------------------------------------

    def _apply(self, operation: Operation, result: Result) -> None:
        """Apply a committed operation to the timers in memory; called in the order of commits."""
        if isinstance(result, Placed):
            self._window.put(result.row)
            if isinstance(operation, Move):
                self._counts.rescheduled += 1
            else:
                self._counts.scheduled += 1
        elif isinstance(result, Removed):
            self._window.drop(result.id)
            self._counts.cancelled += 1
        elif result == "done" or result == "gone":  # noqa: PLR1714 - typed as a union
            assert isinstance(operation, Settle)
            self._window.end(operation.id, operation.gen, is_gone=result == "gone")

    def _on_failure(self, error: StoreError) -> None:
        emit("aiowheel.durable_store_error", call="commit", error=repr(error))
        self._leases.suspect()

    # --- handlers -----------------------------------------------------------------------------

    def handler(self, name: str, *, retry: Retry | None = None) -> Callable[[F], F]:
        """Return a decorator that registers a function under *name*; timers store only the name.

        Register handlers before `async with`, or at its beginning: if the handler of a due timer is
        not registered, the attempt fails. A plain function runs in the event loop and must not
        block it.

        Args:
            name: From 1 to 500 characters.
            retry: The retries after the function has raised an Exception; default: `Retry()`.

        Raises:
            TypeError: *name* is not a string, or *retry* is not a `Retry`; by the decorator: the
                function is not callable, or is a generator function, of which a call
                runs nothing.
            ValueError: *name* is out of range, or has a handler already.
        """
        checked = _checked_name("name", name)
        if retry is not None and not isinstance(retry, Retry):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(f"retry must be a Retry or None, got {safe_repr(retry)}")
        if checked in self._handlers:
            raise ValueError(
                f"name must be new, got {safe_repr(name)}, which has a handler already"
            )

        def register(function: F) -> F:
            called_or_awaited("a handler", function)
            self._handlers[checked] = Handler(function, retry or Retry())
            return function

        return register

    # --- scheduling ---------------------------------------------------------------------------

    async def schedule(
        self,
        name: str,
        handler: str,
        *,
        due: Due,
        payload: bytes = b"",
        if_exists: IfExists = "replace",
    ) -> bool:
        """Write a timer; return after it is committed.

        Args:
            name: Identifies the timer among the pending ones, from 1 to 500 characters.
            handler: The name of the handler, which another process may have registered.
            due: When to fire: an aware datetime, or a timedelta from now on the store's clock. An
                instant in the past is due now.
            payload: Bytes for the handler, at most 16 MiB.
            if_exists: What to do if a timer of that name is pending: "replace" it, "keep" it and
                return False, or raise `TimerExistsError` for "error". A timer is pending until its
                fire has ended: a handler that schedules its own timer again must "replace" it.

        Returns:
            Whether the timer was written.

        Raises:
            TypeError, ValueError: An argument is wrong.
            TimerExistsError: *if_exists* is "error" and the timer exists.
            StoreError: The store cannot be used; the timer may have been written or not.
            DurableTimersClosedError: The durable timers are not open.
        """
        self._check_caller()
        put = self._put_of(name, handler, due, payload, if_exists)
        return await self._committer.submit((put,), _is_written)

    def _put_of(self, name: str, handler: str, due: Due, payload: bytes, if_exists: str) -> Put:
        if not isinstance(payload, bytes):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(f"payload must be bytes, got {safe_repr(payload)}")
        if len(payload) > LARGEST_PAYLOAD:
            raise ValueError(
                f"payload must have at most {LARGEST_PAYLOAD} bytes, got {len(payload)}"
            )
        checked_choice("if_exists", if_exists, _IF_EXISTS)
        due_us = due_to_us("due", due, self._clock.now_us)
        name, handler = _checked_name("name", name), _checked_name("handler", handler)
        return made(Put, (name, handler, due_us, payload, None, if_exists))

    async def schedule_many(
        self, timers: Iterable[NewTimer], *, if_exists: IfExists = "replace"
    ) -> int:
        """Write many timers in commits of 1,000 or of 32 MiB; return how many were written.

        This is much faster than one call of `schedule` for each timer. The iterable is read one
        commit ahead.

        Args:
            timers: `NewTimer` objects, or tuples of the same fields.
            if_exists: As in `schedule`.

        Raises:
            TypeError, ValueError: A timer has a wrong argument; the timers of earlier commits are
                written. The same holds for an error of the iterable.
            StoreError: The store cannot be used; some of the timers may be written.
            ExceptionGroup: Some timers were refused; the group has a `TimerExistsError`, a
                `BadRowError` or, for a timer that another transaction holds, a `StoreError` for
                each. All other timers are written.
        """
        self._check_caller()
        written = 0
        errors: list[Exception] = []
        try:
            source = iter(timers)
        except TypeError:
            raise TypeError(f"timers must be iterable, got {safe_repr(timers)}") from None
        upcoming: asyncio.Future[list[Result]] | None = None
        while True:
            try:
                puts = self._next_puts(source, if_exists)
            except Exception:
                if upcoming is not None:
                    await upcoming
                raise
            following = self._committer.submit(puts, list) if puts else None
            if upcoming is not None:
                try:
                    results = await upcoming
                except BaseException:
                    if following is not None:
                        following.cancel()  # asyncio would report its error as never retrieved
                    raise
                written += sum(isinstance(each, Placed) for each in results)
                errors += [each for each in results if isinstance(each, Exception)]
            upcoming = following
            if upcoming is None:
                break
        if errors:
            raise ExceptionGroup(f"{len(errors)} timers were not written", errors)
        return written

    def _next_puts(self, source: Iterator[NewTimer], if_exists: str) -> list[Put]:
        """Take timers for one commit."""
        puts: list[Put] = []
        size = 0
        for each in islice(source, MOST_OPERATIONS):
            fields = each if type(each) is NewTimer else _new_timer(each)
            put = self._put_of(*fields, if_exists)
            puts.append(put)
            size += len(put.payload)
            if size >= MOST_BYTES:
                break
        return puts

    async def schedule_in(
        self,
        connection: Any,
        name: str,
        handler: str,
        *,
        due: Due,
        payload: bytes = b"",
        if_exists: IfExists = "replace",
    ) -> bool:
        """Write a timer inside the user's own transaction: it exists if the transaction commits.

        Args:
            connection: A connection to the store's database, in a transaction: one of `sqlite3`,
                asyncpg, or psycopg.
            name: As in `schedule`.
            handler: As in `schedule`.
            due: As in `schedule`.
            payload: As in `schedule`.
            if_exists: As in `schedule`.

        Raises:
            TypeError, ValueError: An argument is wrong; *connection* is not a connection to the
                store's database, or is not in a transaction.
            TimerExistsError: *if_exists* is "error" and the timer exists.
            StoreError: SQLite cannot write the timer, or the database refuses a value
                (`BadRowError`). Roll the transaction back: PostgreSQL has aborted it.
            asyncpg.PostgresError, asyncpg.InterfaceError, psycopg.Error: Other errors of PostgreSQL
                and of the connection, for example a failed serialization.
            DurableTimersClosedError: The durable timers are not open.
        """
        self._check_caller()
        put = self._put_of(name, handler, due, payload, if_exists)
        is_written = _is_written([await self._store.put_in(connection, put)])
        self._counts.scheduled += is_written
        return is_written

    async def every(
        self,
        name: str,
        handler: str,
        rule: Cron | Delay,
        *,
        payload: bytes = b"",
        missed: MissedOccurrences = "latest",
        first: Due | None = None,
    ) -> bool:
        """Write a timer that recurs; call it at each start of the program.

        A timer of that name with the same handler, rule, *missed* and payload stays, with the
        occurrences that it has missed; a different timer is replaced. The next occurrence begins
        after the previous one has ended: occurrences of one timer never overlap. The recurrence
        ends with the year 9999, in UTC or in the time zone of its `Cron`, or if its `Cron` does not
        occur within 50 years.

        Args:
            name: As in `schedule`.
            handler: As in `schedule`.
            rule: A `Cron`, or the seconds between two occurrences, from 0.001 to 2.3e9, 73
                years.
            payload: As in `schedule`.
            missed: What happens to occurrences that came due while no process could fire them.
                "all": each of them fires, one after the other. "latest": the timer fires once for
                all of them, with the `due` of the last one. "skip": an occurrence that is more than
                a minute late, or later than the next occurrence, does not fire.
            first: The first occurrence; default: the next one of a `Cron`, or one period from now.

        Returns:
            Whether the timer was written.

        Raises:
            TypeError, ValueError: An argument is wrong.
            StoreError: The store cannot be used; the timer may have been written or not.
        """
        self._check_caller()
        recurrence = recurrence_of(rule, missed)
        now_us = self._clock.now_us
        first_us = (
            recurrence.rule.after(now_us()) if first is None else due_to_us("first", first, now_us)
        )
        if first_us is None:
            raise ValueError(
                f"rule must occur within 50 years and before the year 10000, got {safe_repr(rule)}"
            )
        put = self._put_of(name, handler, to_datetime(first_us), payload, "replace")
        put = put._replace(recurrence=recurrence.as_text(), if_exists="revise")
        return await self._committer.submit((put,), _is_written)

    async def cancel(self, name: str) -> bool:
        """Delete a timer.

        Returns:
            True only if the timer will not fire. False if there is no such timer, or if its fire
            has begun; that fire is then not retried, and the timer does not recur. Also False if
            another process owns the timer and may fire it before it reads the change. This is the
            case for timers that are due within the lease, or were changed a moment ago.

        Raises:
            StoreError: The store cannot be used; the timer may have been deleted or not.
        """
        self._check_caller()
        cancel = Cancel(_checked_name("name", name))
        return await self._committer.submit((cancel,), partial(self._is_cancelled, cancel))

    def _is_cancelled(self, cancel: Cancel, results: list[Result]) -> bool:
        (removed,) = results
        if isinstance(removed, Exception):
            raise removed
        return (
            isinstance(removed, Removed)
            and removed.is_final
            and not self._runner.begun(removed.id, removed.gen, cancel.name)
        )

    async def reschedule(self, name: str, due: Due) -> bool:
        """Move a pending timer; a recurring one continues from there.

        Returns:
            Whether there is such a timer. If its fire has begun, the timer fires again.

        Raises:
            TypeError, ValueError: *name* or *due* is wrong.
            StoreError: The store cannot be used; the timer may have been moved or not.
        """
        self._check_caller()
        move = Move(_checked_name("name", name), due_to_us("due", due, self._clock.now_us))
        return await self._committer.submit((move,), _is_written)

    # --- reading ------------------------------------------------------------------------------

    async def get(self, name: str) -> Row | None:
        """Return the pending timer of that name as it is in the store, or None."""
        self._check_caller()
        return await self._store.get(_checked_name("name", name))

    async def pending(self, prefix: str = "") -> AsyncIterator[Row]:
        """Iterate by name over the pending timers whose name begins with *prefix*.

        Raises:
            TypeError: *prefix* is not a string.
            ValueError: *prefix* has a NUL or a lone surrogate, which no name has.
        """
        self._check_caller()
        if "\x00" in checked_str("prefix", prefix) or not is_unicode(prefix):
            raise ValueError(
                f"prefix must be without NUL and lone surrogates, got {safe_repr(prefix[:60])}"
            )
        after = ""
        while rows := await self._store.rows(after=after, prefix=prefix, limit=_PAGE):
            for row in rows:
                yield row
            after = rows[-1].name
            self._check_caller()  # a closed store would open again to read the next page

    async def dead_letters(self) -> AsyncIterator[DeadLetter]:
        """Iterate over the fires whose attempts have all failed, oldest first.

        A fire that fails during the iteration is included: to redrive all, make a list first.
        """
        self._check_caller()
        after = 0
        while letters := await self._store.dead_letters(after=after, limit=_PAGE):
            for letter in letters:
                yield letter
            after = letters[-1].id
            self._check_caller()

    async def redrive(self, letter: DeadLetter) -> bool:
        """Fire a dead letter again at once, with new attempts; its fire id stays the same.

        If a timer has its name already, the new timer is named `name#fire_id`, with a shortened
        name if that is longer than 500 characters.

        Returns:
            Whether the dead letter still existed.

        Raises:
            TypeError: *letter* is not a `DeadLetter`.
            TimerExistsError: A timer has that name as well; the dead letter stays.
            StoreError: The store cannot be used; the letter may have been redriven or not.
        """
        self._check_caller()
        if not isinstance(letter, DeadLetter):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(f"letter must be a DeadLetter, got {safe_repr(letter)}")
        return await self._committer.submit((Redrive(letter.id),), _is_written)

    async def summary(self) -> Summary:
        """Return the counts of the store. O(pending)."""
        self._check_caller()
        return await self._store.summary()

    def now(self) -> datetime:
        """Return the store's time, in UTC.

        Raises:
            DurableTimersClosedError: The durable timers are not open.
        """
        self._check_open()
        return to_datetime(self._clock.now_us())

    def statistics(self) -> DurableStatistics:
        """Return a snapshot of the counts of this process, from any thread.

        Cost: O(size of the histograms + timers that are due).
        """
        if not hasattr(self, "_leases"):  # not entered yet
            return self._counts.snapshot()
        return self._counts.snapshot(
            resident=len(self._window.resident),
            ready=self._runner.due(),
            in_flight=len(self._runner.unsettled),
            partitions=len(self._window.held) if self._leases.hold() else 0,
        )

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._state} owner={self._owner!r}>"


def _new_timer(fields: Any) -> NewTimer:
    if isinstance(fields, tuple | list):
        with suppress(TypeError):  # too few fields or too many
            return NewTimer(*cast("Sequence[Any]", fields))
    raise TypeError(
        "timers must hold NewTimer objects or tuples of name, handler, due and payload, "
        f"got {safe_repr(cast(object, fields))}"
    )


def _new_owner() -> str:
    return f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(4)}"


def _is_written(results: Sequence[Result]) -> bool:
    (result,) = results
    if isinstance(result, Exception):
        raise result
    return isinstance(result, Placed)


def _checked_name(argument: str, name: object) -> str:
    text = checked_str(argument, name)
    # NUL and surrogates are not printable, so that one test is enough for most names.
    if 1 <= len(text) <= LONGEST_NAME and (
        text.isprintable() or ("\x00" not in text and is_unicode(text))
    ):
        return text
    raise ValueError(
        f"{argument} must be from 1 to {LONGEST_NAME} characters without NUL and lone surrogates, "
        f"got {safe_repr(text[:60])}"
    )
