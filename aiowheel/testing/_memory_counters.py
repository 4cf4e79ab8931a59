"""A store of shared counters in memory, with faults on demand. Rank 4."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Mapping
from typing import Self

from aiowheel._arguments import checked_int
from aiowheel.errors import StoreUnavailableError
from aiowheel.shared import CounterPage, HintListener
from aiowheel.shared._store import new_epoch, page_of


class MemoryCounters:
    """A `CounterStore` in the memory of this process, for tests without a server.

    Each object stands for one process; `beside` returns the object of another process with the same
    counters. Hints arrive in the next turn of the loop. The methods that cause faults take effect
    at once.

    Example:
        >>> here = MemoryCounters()
        >>> there = here.beside()
    """

    def __init__(self) -> None:
        self._server = _Server()
        self._listener: HintListener | None = None
        self._loses_hints = False

    def beside(self) -> Self:
        """Return a store of another process with the same counters."""
        other = type(self)()
        other._server = self._server
        return other

    # --- the store --------------------------------------------------------------------------

    async def open(self, listener: HintListener) -> None:
        """Subscribe; see `CounterStore`."""
        self._server.check()
        self._listener = listener
        self._server.accesses.append(self)

    async def raise_to(self, values: Mapping[str, int]) -> str:
        """Raise counters to values; see `CounterStore`."""
        server = self._server
        epoch = server.begin()
        raised = {key: value for key, value in values.items() if server.values.get(key, -1) < value}
        server.commit(raised)
        return epoch

    async def add_one(self, keys: Collection[str]) -> str:
        """Add one to counters; see `CounterStore`."""
        server = self._server
        epoch = server.begin()
        server.commit({key: server.values.get(key, 0) + 1 for key in keys})
        return epoch

    async def read(self, keys: Collection[str]) -> tuple[str, dict[str, int]]:
        """Read counters; see `CounterStore`."""
        server = self._server
        server.check()
        values = server.values
        return server.current_epoch(), {key: values[key] for key in keys if key in values}

    async def scan(self, prefix: str, after: str = "", limit: int = 1000) -> CounterPage:
        """List counters; see `CounterStore`."""
        server = self._server
        server.check()
        keys = sorted(key for key in server.values if key.startswith(prefix) and key > after)
        rows = [(key, server.values[key]) for key in keys[:limit]]
        return page_of(server.current_epoch(), rows, prefix, limit)

    async def compare_and_raise(
        self, changes: Mapping[str, tuple[int | None, int | None]]
    ) -> tuple[str, set[str]]:
        """Change the counters that have their expected values; see `CounterStore`."""
        server = self._server
        epoch = server.begin()
        accepted = {
            key: new for key, (old, new) in changes.items() if server.values.get(key) == old
        }
        server.commit(
            {key: new for key, new in accepted.items() if new is not None},
            removed=[key for key, new in accepted.items() if new is None],
        )
        return epoch, set(accepted)

    async def now_ms(self) -> int:
        """Return the loop's time, which may be virtual; see `CounterStore`."""
        self._server.check()
        return int(asyncio.get_running_loop().time() * 1000)

    async def forget(self, keys: Collection[str]) -> None:
        """Remove counters; see `CounterStore`."""
        self._server.begin()
        self._server.commit({}, removed=keys)

    async def aclose(self) -> None:
        """End the subscription; see `CounterStore`."""
        self._listener = None
        if self in self._server.accesses:
            self._server.accesses.remove(self)

    # --- faults -----------------------------------------------------------------------------

    def lose_hints(self) -> None:
        """Lose every later hint to this process, as a broken connection does."""
        self._loses_hints = True

    def subscribe_again(self) -> None:
        """Receive hints again, and report a gap."""
        self._loses_hints = False
        if self._listener is not None:
            self._listener.gap()

    def go_down(self) -> None:
        """Make every call of every process raise `StoreUnavailableError`, and lose all hints."""
        self._server.down = True

    def come_back(self) -> None:
        """Answer again after `go_down`, and report a gap to every process."""
        self._server.down = False
        for access in list(self._server.accesses):
            access.subscribe_again()

    def lose_history(self) -> None:
        """Lose all counters and the epoch, as a server without a disk does at a restart."""
        self._server.synced = ("", {})
        self._server.crash()

    def lose_answers(self, count: int) -> None:
        """Raise `StoreUnavailableError` for the next *count* writes, although they are made."""
        self._server.answers_to_lose = count

    def stop_syncing(self) -> None:
        """Stop syncing writes to the simulated disk: the next crash loses the later ones."""
        self._server.stop_syncing()

    def crash(self) -> None:
        """Crash and restart: the epoch and all writes before `stop_syncing` stay.

        Every process gets a gap.
        """
        self._server.crash()

    def crash_after(self, statements: int) -> None:
        """Crash at the end of the given statement, counted from 1 over all later writes.

        The call that executes this statement raises `StoreUnavailableError`. A write has three
        statements: it reads the epoch, changes the counters, and sends the hints.
        """
        self._server.statements_left = checked_int("statements", statements, 1, 1_000_000)

    @property
    def crashes(self) -> int:
        """The number of crashes so far."""
        return self._server.crashes

    def receive(self, epoch: str, values: Mapping[str, int]) -> None:
        """Deliver a hint to the listener of this process."""
        if self._listener is not None and not self._loses_hints and not self._server.down:
            self._listener.hint(epoch, values)


class _Server:
    """The state that all processes share."""

    def __init__(self) -> None:
        self.epoch = ""
        self.values: dict[str, int] = {}
        self.accesses: list[MemoryCounters] = []
        self.down = False
        self.answers_to_lose = 0
        self.synced: tuple[str, dict[str, int]] | None = None  # after a crash; None: the present
        self.statements_left = 0  # statements until the crash; 0: no crash is planned
        self.crashes = 0

    def check(self) -> None:
        if self.down:
            raise StoreUnavailableError("the store in memory is down")

    def current_epoch(self) -> str:
        self.epoch = self.epoch or new_epoch()
        return self.epoch

    def begin(self) -> str:
        """Begin a write, and return its epoch."""
        self.check()
        epoch = self.current_epoch()
        self._end_statement()
        return epoch

    def commit(self, values: Mapping[str, int], removed: Iterable[str] = ()) -> None:
        """Set and remove counters at once, then send the hints and the answer."""
        for key in removed:
            self.values.pop(key, None)
        self.values.update(values)
        self._end_statement()
        if values:
            loop = asyncio.get_running_loop()
            for access in self.accesses:
                loop.call_soon(access.receive, self.epoch, values)
        self._end_statement()
        if self.answers_to_lose:
            self.answers_to_lose -= 1
            raise StoreUnavailableError("the answer of the store in memory was lost")

    def _end_statement(self) -> None:
        if self.statements_left:
            self.statements_left -= 1
            if not self.statements_left:
                self.crash()
                raise StoreUnavailableError("the store in memory crashed")

    def stop_syncing(self) -> None:
        self.synced = (self.current_epoch(), dict(self.values))

    def crash(self) -> None:
        if self.synced is not None:
            (self.epoch, self.values), self.synced = self.synced, None
        self.crashes += 1
        for access in list(self.accesses):
            access.subscribe_again()
