"""The partitions that this process owns, and the task that renews its leases. Rank 4."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from contextlib import contextmanager

from aiowheel._events import emit, emit_info
from aiowheel.durable._committer import Committer
from aiowheel.durable._lagging_clock import LaggingClock
from aiowheel.durable._statistics import Counts
from aiowheel.durable._store import Store
from aiowheel.durable._window import Window
from aiowheel.durable.operations import Leased
from aiowheel.errors import StoreError
from aiowheel.timer import Timer

_BEHIND = 0.05  # seconds from the end of another owner's lease to the takeover
#: Leases for which a partition that stayed busy fires before it may be chosen for release again.
_KEPT_LEASES = 10


class Leases:
    """The leases of one process.

    Args:
        store: The store that holds the leases.
        owner: The name of this process.
        timer: Measures how long the leases last.
        clock: The store's clock; each answer corrects it.
        window: Reads and forgets partitions as they are gained and lost.
        committer: `alone` keeps answers and commits in order.
        lease: Seconds that a lease lasts.
        horizon_us: Microseconds from now that the window may reach before the next renewal but one.
        counts: Counts partitions gained and lost.
        resume: Called when firing may continue.
        is_idle: Returns whether no fire of a partition is in flight.
    """

    def __init__(
        self,
        store: Store,
        owner: str,
        timer: Timer,
        clock: LaggingClock,
        window: Window,
        committer: Committer,
        lease: float,
        horizon_us: int,
        counts: Counts,
        resume: Callable[[], None],
        is_idle: Callable[[int], bool],
    ) -> None:
        self._store = store
        self._owner = owner
        self._timer = timer
        self._clock = clock
        self._window = window
        self._committer = committer
        self._lease = lease
        self._horizon_us = horizon_us
        self._counts = counts
        self._resume = resume
        self._is_idle = is_idle
        self._valid_until = float("-inf")
        self._next_expiry: float | None = None  # on the timer's clock
        self._draining_since: dict[int, float] = {}
        self._kept_until: dict[int, float] = {}  # partitions that stayed busy too long
        self._hinted = False
        self._renewal_wanted = False
        self._wanted = asyncio.Event()
        self._reset_wanted = False
        self._asking = False  # an answer may bring changes, before which no timer must fire
        self._was_valid = False  # whether there are leases whose end was not reported

    def valid(self) -> bool:
        """Return whether firing is safe: the leases hold, and the timers in memory are current."""
        is_known = not self._reset_wanted and not self._asking
        return is_known and self.hold()

    def hold(self) -> bool:
        """Return whether the leases hold; no other process owns the partitions then."""
        return self._timer.time() < self._valid_until

    def suspect(self) -> None:
        """Have the window read again: the store may differ from the timers in memory.

        A commit without an answer may have happened, or a crash may have lost commits.
        """
        self._reset_wanted = True
        self.renew_soon()

    def hint(self) -> None:
        """Have the changes of other processes read soon."""
        self._hinted = True
        self._wanted.set()

    def renew_soon(self) -> None:
        """Have the leases renewed as soon as possible."""
        self._renewal_wanted = True
        self._wanted.set()

    # --- the task -----------------------------------------------------------------------------

    async def run(self) -> None:
        """Renew the leases until cancelled."""
        pause = self._pause()
        while True:
            handle = self._timer.call_later(pause, self._wanted.set)
            try:
                await self._wanted.wait()
            finally:
                handle.cancel()
            self._wanted.clear()
            try:
                is_hint, self._hinted = self._hinted, False
                # Only a renewal has the window read again, and until then no timer fires.
                is_urgent = self._renewal_wanted or self._reset_wanted or self._pause() <= 0
                if is_hint and not is_urgent:
                    await self.take_changes()
                else:
                    self._renewal_wanted = False
                    await self.renew()
                pause = self._pause()
            except StoreError as error:
                self._fail(error)
                pause = min(1.0, self._lease / 10)

    def _pause(self) -> float:
        """Return the seconds until the next renewal."""
        now = self._timer.time()
        due = self._valid_until - self._lease * 2 / 3
        if self._draining_since:
            due = min(due, self._valid_until - self._lease * 9 / 10)
        if self._next_expiry is not None:
            due = min(due, self._next_expiry + _BEHIND)
        return max(0.0, due - now)

    def _fail(self, error: StoreError) -> None:
        self._counts.store_errors += 1
        emit("aiowheel.durable_store_error", call="renew", error=repr(error))
        self._report_end()

    def _report_end(self) -> None:
        if self._was_valid and self._timer.time() >= self._valid_until:
            self._was_valid = False
            emit("aiowheel.durable_lease_ended", owner=self._owner)

    async def renew(self) -> None:
        """Renew the leases once, and apply the answer to the window.

        Raises:
            StoreError: The store cannot be used.
        """
        async with self._committer.alone():
            give_up = self._to_give_up()
            sent = self._timer.time()
            with self._holding_fires():
                leased = await self._store.renew(
                    self._owner,
                    lease_us=int(self._lease * 1e6),
                    horizon_us=self._horizon_us,
                    give_up=give_up,
                )
            answered = self._timer.time()
            self._report_end()  # the renewal may have waited for a commit or for a slow answer
            # Without a lease for a while, the process may have missed a crash of the store that
            # lost commits: the window has to be read again. After the clock was set, the window
            # may end beyond the horizon up to which other processes leave changes.
            had_ended = answered >= self._valid_until
            jumped = self._clock.observe(leased.now_us, answered - sent)
            # Changes first: a timer that another process cancelled must not fire under this lease.
            self._window.change(leased.changes)
            self._update_held(leased)
            self._valid_until = sent + self._lease
            self._was_valid = True
            self._note_expiry(leased, answered)
            if self._reset_wanted or had_ended or jumped:
                self._reset_wanted = False
                self._window.reset()
        self._choose_excess(leased.share)
        self._window.wake()
        self._resume()

    @contextmanager
    def _holding_fires(self) -> Generator[None]:
        """Prevent fires until the answer of the store, which may bring changes."""
        self._asking = True
        try:
            yield
        except BaseException:
            self._reset_wanted = True  # the lost answer may have had changes
            raise
        finally:
            self._asking = False

    def _note_expiry(self, leased: Leased, answered: float) -> None:
        if leased.next_expiry_us is None or len(leased.epochs) >= leased.share:
            self._next_expiry = None
        else:
            self._next_expiry = answered + (leased.next_expiry_us - leased.now_us) / 1e6

    def _update_held(self, leased: Leased) -> None:
        held = self._window.held
        lost = [part for part in held if leased.epochs.get(part) != held[part].epoch]
        if lost:
            self._window.lose(lost)
        for part in lost:
            self._draining_since.pop(part, None)
            self._kept_until.pop(part, None)
        gained = [part for part in leased.epochs if part not in held]
        for part in gained:
            self._window.gain(part, leased.epochs[part])
        if lost or gained:
            self._counts.lease_changes += len(lost) + len(gained)
            emit_info(
                "aiowheel.durable_leases_changed",
                owner=self._owner,
                gained=sorted(gained),
                lost=sorted(lost),
                partitions=len(held),
            )

    # --- releasing partitions -----------------------------------------------------------------

    def _choose_excess(self, share: int) -> None:
        """Stop firing from the partitions beyond the share, idle partitions first."""
        held = self._window.held
        excess = len(held) - len(self._draining_since) - share
        if excess > 0:
            now = self._timer.time()
            # A handler may run for hours, and the other timers of its partition must fire.
            kept = {part for part, until in self._kept_until.items() if now < until}
            busy_last = sorted(
                (
                    part
                    for part in held
                    if part not in self._draining_since
                    and (part not in kept or self._is_idle(part))
                ),
                key=lambda part: not self._is_idle(part),
            )
            chosen = busy_last[:excess]
            for part in chosen:
                held[part].draining = True
                self._draining_since[part] = now
            if any(map(self._is_idle, chosen)):
                self.renew_soon()  # their timers do not fire until they are given up

    def _to_give_up(self) -> list[int]:
        """Return the idle ones of the chosen partitions; keep those that stay busy too long."""
        now = self._timer.time()
        give_up = [part for part in self._draining_since if self._is_idle(part)]
        for part, since in list(self._draining_since.items()):
            if part not in give_up and now - since > self._lease:
                self._window.held[part].draining = False
                del self._draining_since[part]
                self._kept_until[part] = now + _KEPT_LEASES * self._lease
        return give_up

    async def take_changes(self) -> None:
        """Read the changes of other processes; renew the leases if a partition has no owner.

        Raises:
            StoreError: The store cannot be used.
        """
        async with self._committer.alone():
            with self._holding_fires():
                changes, is_free = await self._store.changes(self._owner)
            self._window.change(changes)
        self._window.wake()
        self._resume()
        if is_free:
            await self.renew()
