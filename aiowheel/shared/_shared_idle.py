"""Idle keys over processes: any process may touch a key, and one calls `on_idle`. Rank 4."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping
from typing import Self

from aiowheel._background import LastingTask, check_loop
from aiowheel._callbacks import START_A_TASK, plain_callback
from aiowheel._events import emit
from aiowheel._printable import error_repr
from aiowheel._types import Delay
from aiowheel._units import checked_seconds
from aiowheel.errors import IdleDetectorClosedError, StoreUnavailableError
from aiowheel.shared._idle_leases import IdleLeases
from aiowheel.shared._idle_names import IdleNames, is_discard, time_of
from aiowheel.shared._idle_statistics import IdleCounts, SharedIdleStatistics
from aiowheel.shared._idle_touches import Touches
from aiowheel.shared._idle_watch import IdleWatch
from aiowheel.shared._store import CounterStore, checked_name, checked_store, claim_store
from aiowheel.shared._store_clock import StoreClock
from aiowheel.timer import Timer
from aiowheel.timer._shared import chosen_timer

_SHORTEST_TIMEOUT, _SHORTEST_LEASE, _LONGEST = 0.1, 0.5, 10.0**9  # seconds
_LONGEST_PAUSE = 1.0  # seconds between two writes, however long the slack is


class SharedIdle:
    """An `IdleDetector` over processes: a set of keys that any process may touch.

    Use it in `async with`, one in each process, all with the same arguments. `on_idle(key)` is
    called in one of the processes once no process has touched the key for more than the timeout,
    and at most *slack* later; a touch within the slack may still be in time. An idle key is no
    longer watched; a later touch watches it again.

    Each key belongs to one of 64 partitions, and each partition to one process, which alone calls
    `on_idle` for its keys. The processes redistribute the partitions when one starts or stops. When
    a process is killed, the others take over its partitions after their leases have ended, with all
    keys that it owned or whose touches it had written. `on_idle` may be late then, but is never
    lost; it is called a second time for one silence only in three cases. The first owner was
    killed, or lost the store, between the call and the removal of the key from the store. Or a
    process that touched the key wrote the touch only after the key had fallen idle, because its
    loop was blocked or it could not reach the store; the key is then watched again. Or the store
    lost its history for the second time within a few seconds, just after the call. If the store
    loses its history, each process writes the keys again that it has touched or owned. While no
    process is open, keys stay in the store, and the next process calls `on_idle` for those that
    have fallen idle.

    All times are those of the store's clock, so the clocks of the machines need not agree. If one
    process alone cannot reach the store for longer than a third of the slack, its touches may come
    too late to keep a key alive. After an outage of the store, no key falls idle for the slack plus
    one second, so that all processes can write their touches.

    Call `touch` and `discard` in the timer's loop and thread; call `statistics` in any thread.

    Args:
        store: A new store; it is opened and closed with this object. This object owns the counters
            whose names begin with *name* and ":" or "!".
        timeout: Seconds or timedelta, 0.1 to 10**9.
        on_idle: A plain function. It runs in a copy of the context in which this object was made.
            If it raises, the loop's exception handler gets the error.
        slack: Seconds or timedelta by which a call may be late, a hundredth of *timeout* to
            *timeout*. A process writes a key at most twice within it. Default: a quarter of
            *timeout*.
        lease: Seconds or timedelta, 0.5 to 10**9, after which the partitions of a killed process
            have no owner. Each process renews its leases three times in that time.
        name: 1 to 40 lower-case letters, digits and underscores; two sets of keys in one store need
            two names.
        timer: Default: the running loop's shared timer.

    Raises:
        TypeError: An argument has the wrong type, or *on_idle* is a coroutine function, which would
            not be awaited.
        ValueError: A duration or *name* is out of range.
        TimerClosedError: The timer is not open.
    """

    def __init__(
        self,
        store: CounterStore,
        timeout: Delay,
        on_idle: Callable[[str], object],
        *,
        slack: Delay | None = None,
        lease: Delay = 10.0,
        name: str = "idle",
        timer: Timer | None = None,
    ) -> None:
        self._timeout = checked_seconds("timeout", timeout, _SHORTEST_TIMEOUT, _LONGEST)
        self._slack = self._timeout / 4
        if slack is not None:
            self._slack = checked_seconds("slack", slack, self._timeout / 100, self._timeout)
        #: Seconds after an outage of the store in which each process writes its delayed touches.
        self._patience = self._slack + 1.0
        self._lease = checked_seconds("lease", lease, _SHORTEST_LEASE, _LONGEST)
        self._names = IdleNames(checked_name(name))
        self._timer = chosen_timer(timer)
        self._store = checked_store(store)
        self._counts = IdleCounts()
        self._clock = StoreClock(self._timer)
        self._watch = IdleWatch(
            self._timer,
            store,
            self._names,
            self._clock,
            self._counts,
            wait_ms=round((self._timeout + self._slack) * 1000),
            on_idle=plain_callback("on_idle", on_idle, START_A_TASK),
            valid=self._valid,
            saw=self._saw,
            failed=self._failed,
        )
        self._leases = IdleLeases(
            self._timer,
            store,
            self._names,
            self._clock,
            self._lease,
            saw=self._saw,
            renewed=self._renewed,
            failed=self._failed,
            clock_was_set=self._watch.arm_again,
        )
        self._touches: Touches | None = None
        self._tasks: list[LastingTask] = []
        self._epoch = ""
        self._entered = False
        self._closed = False

    async def __aenter__(self) -> Self:
        """Open the store and take a share of the partitions.

        Raises:
            StoreUnavailableError: The store does not answer.
            RuntimeError: This object was opened before, or another uses the store object.
            IdleDetectorClosedError: Another task has closed this object meanwhile.
            TimerClosedError: The timer is not open.
        """
        if self._entered:
            raise RuntimeError("idle keys can be opened once")
        self._timer.open_driver()  # raises if it is not open here
        self._loop = asyncio.get_running_loop()
        claim_store(self._store, self)
        self._entered = True
        touches = Touches(
            self._timer,
            self._store,
            self._names,
            self._clock,
            self._counts,
            kept=self._timeout + self._slack,
            rest=self._slack / 2,
            pause=min(self._slack / 8, _LONGEST_PAUSE),
            wrote=self._saw,
            failed=self._failed,
        )
        try:
            await self._store.open(self)
            self._epoch, _ = await self._store.read(())
            await self._leases.join()
        except BaseException:
            self._closed = True
            await touches.aclose()
            await self._store.aclose()
            raise
        if self._closed:
            await self._close(touches)
            raise IdleDetectorClosedError("the idle keys were closed while they were opened")
        self._touches = touches
        self._tasks = [
            LastingTask(self._leases.run, "aiowheel idle leases"),
            LastingTask(self._watch.run, "aiowheel idle keys"),
        ]
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.aclose()

    # --- keys ---------------------------------------------------------------------------------

    def touch(self, key: str) -> None:
        """Restart the timeout of *key* for all processes, and watch it if it is new.

        The touch is recorded at once. It is written within a second if this process has not written
        the key for half the slack, else at the end of that time.

        Args:
            key: UTF-8 without NUL, 1 to 1020 bytes less the length of *name*.

        Raises:
            IdleDetectorClosedError: This object is not open.
            TypeError, ValueError: *key* is not a legal key.
            TimerClosedError: The timer has been closed.
            ForeignLoopError: Called from another loop or thread.

        Cost: O(1), without waiting for the store.
        """
        self._open().note(key, discard=False)

    def discard(self, key: str) -> None:
        """Stop watching *key* in all processes, without a call of `on_idle`.

        A touch after this call, in any process, watches the key again. Errors and cost are those of
        `touch`.
        """
        self._open().note(key, discard=True)

    async def expires(self, key: str) -> float | None:
        """Return the time at which *key* falls idle if no process touches it before.

        Touches that other processes have not written yet are not included. The call reads the
        store.

        Returns:
            Seconds on the scale of `timer.time()`; None for a key that is not watched.

        Raises:
            StoreUnavailableError: The store does not answer.
            IdleDetectorClosedError: This object is not open.
            TypeError, ValueError: *key* is not a legal key.
            ForeignLoopError: Called from another loop or thread.
        """
        touches = self._open()
        check_loop("the idle keys belong", self._loop)
        counter = self._names.counter(self._names.checked(key))
        _, values = await self._store.read([counter])
        value = max(values.get(counter, -1), touches.unwritten(key))
        if value < 0 or is_discard(value):
            return None
        return self._clock.on_timer(time_of(value)) + self._timeout

    @property
    def closed(self) -> bool:
        """Whether closing has begun."""
        return self._closed

    def statistics(self) -> SharedIdleStatistics:
        """Return a snapshot of the counts."""
        remembered = 0 if self._touches is None else len(self._touches)
        return self._counts.snapshot(len(self._leases.held), len(self._watch), remembered)

    async def aclose(self) -> None:
        """Write the last touches, release the partitions, and close the store.

        Idempotent. Keys stay in the store, and the other processes watch them.

        Raises:
            ForeignLoopError: Called from another loop or thread.
        """
        if self._touches is not None:
            check_loop("the idle keys belong", self._loop)
        touches, self._touches = self._touches, None
        if self._closed or touches is None:
            self._closed = True
            return
        self._closed = True
        for task in self._tasks:  # first, because this call may be cancelled while it waits
            task.cancel()
        await self._close(touches)

    async def _close(self, touches: Touches) -> None:
        try:
            await touches.aclose()
            for task in self._tasks:
                await task.end()
            await self._leases.leave()
        finally:
            self._watch.close()
            await self._store.aclose()

    def _open(self) -> Touches:
        if self._touches is None:
            state = "closed" if self._closed else "not open: use them in `async with`"
            raise IdleDetectorClosedError(f"the idle keys are {state}")
        return self._touches

    # --- what the store calls -----------------------------------------------------------------

    def hint(self, epoch: str, values: Mapping[str, int]) -> None:
        """Process hints about touches, leases and seats; see `HintListener`."""
        if epoch != self._epoch:
            # Only answers decide the epoch: a hint may arrive late, from a lost history.
            self._leases.renew_soon()
            return
        prefix, control = self._names.prefix, self._names.control
        for counter, value in values.items():
            if counter.startswith(prefix):
                self._watch.note(counter, value)
            elif counter.startswith(control):
                self._leases.hint(counter, value)

    def gap(self) -> None:
        """List all keys again, and repeat the writes that a failover may have lost."""
        self._write_again()
        self._watch.hold(self._patience)
        self._watch.list_again()
        self._leases.renew_soon()

    # --- what the parts call ------------------------------------------------------------------

    def _saw(self, epoch: str) -> bool:
        """Return whether *epoch* is the known one; otherwise start again in the new history."""
        if epoch == self._epoch:
            return True
        old, self._epoch = self._epoch, epoch
        self._counts.epochs += 1
        emit("aiowheel.shared_idle_epoch_changed", old=old, new=epoch, keys=len(self._watch))
        self._write_again()
        self._watch.hold(self._patience)
        self._leases.drop_all()
        return False

    def _write_again(self) -> None:
        """Write all keys that this process knows to the store, which may have lost them."""
        if self._touches is not None:
            self._touches.write_again(self._watch.carry(self._touches.values()))

    def _failed(self, call: str, error: Exception) -> None:
        """Count a failure of the store, which may delay the touches of other processes as well."""
        self._counts.retries += 1
        self._watch.hold(self._patience)
        if not isinstance(error, StoreUnavailableError):
            emit("aiowheel.shared_idle_failed", call=call, error=error_repr(error))

    def _valid(self) -> bool:
        return self._leases.valid()

    def _renewed(self, gained: Collection[str], lost: Collection[str]) -> None:
        self._watch.change(gained, lost)
        self._watch.wake()
