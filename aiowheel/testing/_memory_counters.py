"""A store of shared counters in memory, with faults on demand. Rank 4."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from typing import Self

from aiowheel.errors import StoreUnavailableError
from aiowheel.shared import CounterPage, HintListener
from aiowheel.shared._store import new_epoch, page_of


class MemoryCounters:
    """A `CounterStore` in the memory of this process, for tests without a server.

    One object stands for the access of one process; `beside` makes that of another process to the
    same counters. Hints arrive on the next turn of the loop. The methods that cause faults take
    effect at once:

    Example:
        >>> here = MemoryCounters()
        >>> there = here.beside()
    """

    def __init__(self) -> None:
        self._server = _Server()
        self._listener: HintListener | None = None
        self._deaf = False

    def beside(self) -> Self:
        """Return the access of another process to the same counters."""
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
        server.check()
        epoch = server.current_epoch()
        raised = {key: value for key, value in values.items() if server.values.get(key, -1) < value}
        server.values.update(raised)
        server.send(epoch, raised)
        server.lose_answer()
        return epoch

    async def add_one(self, keys: Collection[str]) -> str:
        """Add one to counters; see `CounterStore`."""
        server = self._server
        server.check()
        epoch = server.current_epoch()
        raised = {key: server.values.get(key, 0) + 1 for key in keys}
        server.values.update(raised)
        server.send(epoch, raised)
        server.lose_answer()
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
        """Change counters that stand where they are expected; see `CounterStore`."""
        server = self._server
        server.check()
        epoch, values = server.current_epoch(), server.values
        changed = {key for key, (old, _) in changes.items() if values.get(key) == old}
        raised: dict[str, int] = {}
        for key in changed:
            new = changes[key][1]
            if new is None:
                del values[key]
            else:
                raised[key] = new
        values.update(raised)
        server.send(epoch, raised)
        server.lose_answer()
        return epoch, changed

    async def now_ms(self) -> int:
        """Return the loop's time, which may be virtual; see `CounterStore`."""
        self._server.check()
        return int(asyncio.get_running_loop().time() * 1000)

    async def forget(self, keys: Collection[str]) -> None:
        """Remove counters; see `CounterStore`."""
        self._server.check()
        for key in keys:
            self._server.values.pop(key, None)

    async def aclose(self) -> None:
        """End the subscription; see `CounterStore`."""
        self._listener = None
        if self in self._server.accesses:
            self._server.accesses.remove(self)

    # --- faults -----------------------------------------------------------------------------

    def lose_hints(self) -> None:
        """Lose every hint to this process from now on, as a broken connection does."""
        self._deaf = True

    def subscribe_again(self) -> None:
        """Receive hints again, and report the gap."""
        self._deaf = False
        if self._listener is not None:
            self._listener.gap()

    def go_down(self) -> None:
        """Have every call of every process raise `StoreUnavailableError`, and lose all hints."""
        self._server.down = True

    def come_back(self) -> None:
        """Answer again, after `go_down`; every process has had a gap."""
        self._server.down = False
        for access in list(self._server.accesses):
            access.subscribe_again()

    def lose_history(self) -> None:
        """Lose all counters and the epoch, as a server without a disk does when it restarts."""
        self._server.values.clear()
        self._server.epoch = ""
        for access in list(self._server.accesses):
            access.subscribe_again()

    def lose_answers(self, count: int) -> None:
        """Make the next *count* writes and raise `StoreUnavailableError` all the same."""
        self._server.answers_to_lose = count

    def receive(self, epoch: str, values: Mapping[str, int]) -> None:
        """Deliver a hint to the listener of this process."""
        if self._listener is not None and not self._deaf and not self._server.down:
            self._listener.hint(epoch, values)


class _Server:
    """What the processes share."""

    def __init__(self) -> None:
        self.epoch = ""
        self.values: dict[str, int] = {}
        self.accesses: list[MemoryCounters] = []
        self.down = False
        self.answers_to_lose = 0

    def check(self) -> None:
        if self.down:
            raise StoreUnavailableError("the store in memory is down")

    def current_epoch(self) -> str:
        self.epoch = self.epoch or new_epoch()
        return self.epoch

    def send(self, epoch: str, values: Mapping[str, int]) -> None:
        if values:
            loop = asyncio.get_running_loop()
            for access in self.accesses:
                loop.call_soon(access.receive, epoch, values)

    def lose_answer(self) -> None:
        if self.answers_to_lose:
            self.answers_to_lose -= 1
            raise StoreUnavailableError("the answer of the store in memory was lost")
