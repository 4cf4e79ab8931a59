"""Shared counters: the waits of a purgatory, completed from any process. Rank 4."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from contextlib import AsyncExitStack
from typing import Self

from aiowheel._arguments import checked_choice, safe_repr
from aiowheel._events import emit
from aiowheel._printable import error_repr
from aiowheel._types import Delay, Mode
from aiowheel._units import FOREVER, checked_seconds, delay_to_ns, ns_to_seconds
from aiowheel.errors import EpochChangedError, SharedCountersClosedError, StoreUnavailableError
from aiowheel.purgatory import Purgatory
from aiowheel.shared._backoff import Backoff
from aiowheel.shared._catch_up import MOST_KEYS, CatchUp
from aiowheel.shared._group_commit import GroupCommit
from aiowheel.shared._recent import RecentPublishes
from aiowheel.shared._statistics import SharedCounts, SharedStatistics
from aiowheel.shared._store import (
    CounterStore,
    checked_key,
    checked_store,
    checked_value,
    claim_store,
)
from aiowheel.shared._tokens import parsed_token, token_of
from aiowheel.timer import timeout_at

_MODES = ("all", "any")
_LEAST_READ = 1.0  # seconds
_LONGEST = 1e9  # seconds


class SharedCounters:
    """Counters in a shared store, on which this process can wait; use it in `async with`.

    A wake-up may be late, but is never lost: a wait completes once its counters have reached their
    thresholds, whichever process raised them, and whichever connection broke meanwhile. If the
    store itself loses its history, the wait ends with `EpochChangedError`.

    Keys are strings of 1 to 1024 bytes of UTF-8, values integers from 0 to 2**63 - 1. While the
    counters are open, use their keys with `wait_until` and `advance` of this object only, not with
    those of the purgatory.

    Only `statistics` may be called outside the purgatory's event loop.

    Args:
        purgatory: Holds the waits; its timer runs their timeouts. Close it after the counters.
        store: A new store; it is opened and closed with the counters.
        linger: Seconds or timedelta, more than 0, for which a key is kept up to date after its last
            wait, so that the next wait for it needs no read of the store. It is dropped before
            twice that time. Each *linger* costs a look at every key that is kept. A publish is
            remembered at least as long.
        min_interval: Seconds or timedelta between two writes of this process. Default: publishes
            share a write only while an earlier write is under way, so an idle process adds no
            delay.
        patience: Seconds or timedelta for which a write is repeated while the store does not
            answer.

    Raises:
        TypeError: An argument has the wrong type.
        ValueError: A duration is out of range; the longest is 1e9 seconds.
    """

    def __init__(
        self,
        purgatory: Purgatory,
        store: CounterStore,
        *,
        linger: Delay = 30.0,
        min_interval: Delay = 0.0,
        patience: Delay = 30.0,
    ) -> None:
        _check_purgatory(purgatory)
        self._linger = checked_seconds("linger", linger, 1e-9, _LONGEST)
        self._min_interval = checked_seconds("min_interval", min_interval, 0, _LONGEST)
        self._patience = checked_seconds("patience", patience, 0, _LONGEST)
        self._purgatory = purgatory
        self._store = checked_store(store)
        self._counts = SharedCounts()
        self._recent = RecentPublishes(self._linger)
        self._catch_up: CatchUp | None = None
        self._writer: GroupCommit | None = None
        self._repairs: set[asyncio.Task[None]] = set()
        self._entered = False
        self._closed = False

    async def __aenter__(self) -> Self:
        """Open the store.

        Raises:
            StoreUnavailableError: The store does not answer.
            RuntimeError: The counters were opened before, or others use the store object.
            SharedCountersClosedError: Another task has closed the counters meanwhile.
        """
        if self._entered:
            raise RuntimeError("shared counters can be opened once")
        self._purgatory.check_caller()
        claim_store(self._store, self)
        self._entered = True
        catch_up = CatchUp(
            self._purgatory,
            self._store,
            self._counts,
            linger=self._linger,
            recovered=self._repair,
        )
        try:
            await self._store.open(catch_up)
            await catch_up.start()
            self._catch_up = catch_up
            self._open()  # raises if another task has closed the counters meanwhile
        except BaseException:
            self._closed = True
            await catch_up.aclose()
            await self._store.aclose()
            raise
        self._writer = GroupCommit(
            self._store,
            self._counts,
            self._committed,
            min_interval=self._min_interval,
            patience=self._patience,
        )
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.aclose()

    # --- waiting ----------------------------------------------------------------------------

    def wait_until(
        self, thresholds: Mapping[str, int], timeout: Delay | None, mode: Mode = "all"
    ) -> asyncio.Future[bool]:
        """Wait until counters reach thresholds, raised by any process; False on timeout.

        As `Purgatory.wait_until`: the wait is registered by the call, and the future may be awaited
        at once, later or never.

        Args:
            thresholds: The value that each key must reach.
            timeout: Seconds or a timedelta; None or `inf` for no timeout. A value that another
                process has written before the call may need a read of the store; a timeout shorter
                than that read gives False.
            mode: "all" keys, or "any" one of them.

        Returns:
            A future. It raises `EpochChangedError` when the store has lost its history.

        Raises:
            TypeError: An argument has the wrong type.
            ValueError: *thresholds* is empty, a key or threshold is out of range, or *mode* is
                unknown.
            PurgatoryFullError: The purgatory is full; nothing was registered.
            PurgatoryClosedError: The purgatory is closed.
            SharedCountersClosedError: The counters are not open.

        Cost: as `Purgatory.wait_until`; a key that is not kept up to date costs a share of a read.
        """
        _check_mapping("thresholds", "ints", thresholds)
        # A key that is kept up to date was checked before.
        kept: Collection[str] = () if self._catch_up is None else self._catch_up.kept
        checked = {
            key if type(key) is str and key in kept else checked_key(key): checked_value(
                "threshold", least
            )
            for key, least in thresholds.items()
        }
        return self._wait(checked, timeout, mode)

    async def wait_past(
        self,
        tokens: Mapping[str, str],
        timeout: Delay | None,  # noqa: ASYNC109 - as that of `wait_until`
        mode: Mode = "all",
    ) -> bool:
        """Wait until counters go beyond the values of tokens; False on timeout.

        A token is what `advance` or `token` returned, in any process and at any time. It may come
        from a client.

        Args:
            tokens: The token whose value each key must pass.
            timeout: As for `wait_until`. A read that the call needs may take up to a second longer,
                so that a short timeout finds a change that was made before the call.
            mode: As for `wait_until`.

        Raises:
            EpochChangedError: The store has lost the history of a token, or has forgotten its key,
                before or during the wait.
            TypeError: An argument has the wrong type.
            ValueError: A token is malformed; as for `wait_until`.

        Cost: as `wait_until`. A token of another epoch, or one ahead of the values that this
        process has, costs a share of a read.
        """
        _check_mapping("tokens", "tokens", tokens)
        parsed = {checked_key(key): parsed_token(token) for key, token in tokens.items()}
        checked_choice("mode", mode, _MODES)
        limit = FOREVER if timeout is None else delay_to_ns("timeout", timeout)
        catch_up = self._open_here()
        left: float | None = None
        if not self._agrees(catch_up, parsed):
            loop = asyncio.get_running_loop()
            end = loop.time() + ns_to_seconds(limit)
            try:
                async with timeout_at(max(end, loop.time() + _LEAST_READ)):
                    await self._verify(catch_up, parsed)
            except TimeoutError:
                return False
            left = max(0.0, end - loop.time())
        elif limit < FOREVER:
            left = ns_to_seconds(limit)
        return await self._wait({key: value + 1 for key, (_, value) in parsed.items()}, left, mode)

    def _agrees(self, catch_up: CatchUp, tokens: Mapping[str, tuple[str, int]]) -> bool:
        """Return whether the tokens are of the known epoch, and not ahead of the known values."""
        for key, (epoch, value) in tokens.items():
            entry = catch_up.kept.get(key)
            if epoch != catch_up.epoch or entry is None or not entry.fresh:
                return False
            if value > self._known(key):
                return False
        return True

    async def _verify(self, catch_up: CatchUp, tokens: Mapping[str, tuple[str, int]]) -> None:
        # The token may be newer than the values of this process, so a read decides.
        await catch_up.read(tokens, refresh=True)
        for key, (epoch, value) in tokens.items():
            if epoch != catch_up.epoch:
                token = token_of(epoch, None if value < 0 else value)
                raise EpochChangedError(
                    f"the store lost the history of token {token!r} of key "
                    f"{key!r}: its epoch is {catch_up.epoch}; read the data again"
                )
            if value > self._known(key):
                raise EpochChangedError(
                    f"the store lost the value of token {token_of(epoch, value)!r} of key "
                    f"{key!r}: the counter is at {_value_text(self._known(key))}; read the data "
                    "again"
                )

    def _known(self, key: str) -> int:
        value = self._purgatory.value(key)
        return -1 if value is None else int(value)

    def _wait(
        self, thresholds: dict[str, int], timeout: Delay | None, mode: Mode
    ) -> asyncio.Future[bool]:
        catch_up = self._open()
        waiting = self._purgatory.wait_until(thresholds, timeout, mode)
        for key in thresholds:
            catch_up.keep(key)
        return waiting

    async def value(self, key: str) -> int | None:
        """Return the value of a counter; None if it has none.

        The answer may be as old as the last hint. It costs a share of a read if the key is not kept
        up to date. The call waits until the store answers; `aiowheel.timeout` limits that time.

        Raises:
            TypeError, ValueError: *key* is not a legal key.
            SharedCountersClosedError: The counters are not open.
        """
        catch_up = self._open_here()
        # As in `wait_until`.
        if type(key) is not str or not catch_up.is_current(key):
            await catch_up.read([checked_key(key)])
        known = self._known(key)
        return None if known < 0 else known

    async def token(self, key: str) -> str:
        """Return the token of a counter, for `wait_past`; cost and errors are those of `value`."""
        value = await self.value(key)
        return token_of(self._open().epoch, value)

    # --- publishing -------------------------------------------------------------------------

    async def advance(self, key: str, value: int) -> str:
        """Raise a counter in the store to *value*; a value below the current one changes nothing.

        Returns when the write is made; other publishes of this process may share the write. Waits
        in this process have completed by then. Cancelling the call does not undo the write.

        Returns:
            The token of *value*.

        Raises:
            StoreUnavailableError: The store did not answer for `patience`. The write may have been
                made; the call may be repeated.
            TypeError, ValueError: *key* or *value* is out of range.
            SharedCountersClosedError: The counters are not open.
        """
        writer = self._open_writer()
        name, least = checked_key(key), checked_value("value", value)
        return token_of(await writer.raise_to(name, least), least)

    async def check_and_complete(self, key: str) -> None:
        """Have every process call `check_and_complete(key)` on its purgatory, this one included.

        This is for operations of `Purgatory.watch` and `wait_for`. Publish the data that their
        conditions read before this call. The call adds one to the counter of *key*, so use a key
        either for checks or for values. Errors are those of `advance`.
        """
        writer = self._open_writer()
        await writer.add_one(checked_key(key))

    async def forget(self, key: str) -> None:
        """Remove a counter from the store, so that it costs no space.

        Do this when no wait for the key will follow, or when its values continue from the old ones:
        a later wait for a value that was reached before waits for the next `advance`, and a wait
        for a token of the counter raises `EpochChangedError`. Pending waits stay, in all processes.

        Raises:
            StoreUnavailableError: The store does not answer.
            TypeError, ValueError: *key* is not a legal key.
            SharedCountersClosedError: The counters are not open.
        """
        catch_up = self._open_here()
        name = checked_key(key)
        await self._store.forget([name])
        self._recent.drop(name)
        catch_up.drop(name)

    def _committed(self, epoch: str, values: Mapping[str, int]) -> None:
        catch_up = self._open()
        self._recent.add(epoch, values, asyncio.get_running_loop().time())
        if epoch != catch_up.epoch:
            catch_up.gap()
            return
        for key, value in values.items():
            if key in catch_up.kept:
                self._purgatory.advance(key, value)

    def _repair(self, lost: Mapping[str, int]) -> None:
        """Repeat, after a gap, the publishes that a failover of the server may have lost.

        Args:
            lost: Values of other processes, which may have ended, that the store no longer has.
        """
        for earlier in self._repairs:
            earlier.cancel()
        loop, epoch = asyncio.get_running_loop(), self._open().epoch
        if lost:
            self._recent.add(epoch, lost, loop.time())
        task = loop.create_task(self._publish_again(epoch))
        self._repairs.add(task)
        task.add_done_callback(self._repairs.discard)

    async def _publish_again(self, epoch: str) -> None:
        """Write the publishes of *epoch* that the store has lost, until it accepts them."""
        backoff = Backoff()
        recent = self._recent
        left = recent.keys(epoch)
        while left:
            # One call with all keys would stop the server and the loop for long.
            keys = left[-MOST_KEYS:]
            try:
                current, kept = await self._store.read(keys)
                self._counts.reads += 1
                if current != epoch:
                    return  # the whole history is lost
                values = {key: recent.value(epoch, key) for key in keys}
                lost = {key: value for key, value in values.items() if value > kept.get(key, -1)}
                if lost:
                    now = asyncio.get_running_loop().time()
                    recent.add(epoch, lost, now)  # another crash may lose them again
                    await self._store.raise_to(lost)
                    self._counts.writes += 1
            except StoreUnavailableError:  # a new master may have too few replicas at first
                self._counts.retries += 1
                await asyncio.sleep(backoff.next())
            except Exception as error:
                emit("aiowheel.shared_write_failed", keys=len(keys), error=error_repr(error))
                return
            else:
                del left[-MOST_KEYS:]

    # --- state and closing ------------------------------------------------------------------

    @property
    def epoch(self) -> str:
        """The name of the store's history, as of the last answer of the store."""
        return self._open().epoch

    @property
    def name(self) -> str:
        """The name of the purgatory."""
        return self._purgatory.name

    @property
    def closed(self) -> bool:
        """Whether closing has begun."""
        return self._closed

    def statistics(self) -> SharedStatistics:
        """Return a snapshot of the counts; from any thread."""
        keys = 0 if self._catch_up is None else len(self._catch_up.kept)
        return self._counts.snapshot(keys, self._purgatory.counter_waiters())

    async def aclose(self) -> None:
        """Close the store; idempotent.

        Pending waits stay in the purgatory until it is closed or they time out. Publishes that are
        not written yet, and calls that wait for a read, raise `SharedCountersClosedError`.

        Raises:
            ForeignLoopError: Called from another loop or thread.
        """
        if self._closed or self._catch_up is None:
            self._closed = True
            return
        self._purgatory.check_caller()
        self._closed = True
        for task in self._repairs:
            task.cancel()
        async with AsyncExitStack() as steps:  # each runs even if this call is cancelled
            steps.push_async_callback(self._store.aclose)
            steps.push_async_callback(self._catch_up.aclose)
            if self._writer is not None:
                steps.push_async_callback(self._writer.aclose)

    def _open(self) -> CatchUp:
        if self._catch_up is None or self._closed:
            state = "closed" if self._closed else "not open: use them in `async with`"
            raise SharedCountersClosedError(f"the shared counters are {state}")
        return self._catch_up

    def _open_here(self) -> CatchUp:
        """Return the cache; raise if the caller is not in the purgatory's event loop."""
        catch_up = self._open()
        self._purgatory.check_caller()
        return catch_up

    def _open_writer(self) -> GroupCommit:
        self._open_here()
        assert self._writer is not None
        return self._writer


def _value_text(value: int) -> str:
    """Return a value for an error text; -1 stands for a counter without a value."""
    return "no value" if value < 0 else str(value)


def _check_purgatory(purgatory: object) -> None:
    if not isinstance(purgatory, Purgatory):
        raise TypeError(f"purgatory must be a Purgatory, got {safe_repr(purgatory)}")


def _check_mapping(name: str, what: str, value: object) -> None:
    if not isinstance(value, (dict, Mapping)):  # the check for dict alone is fast
        raise TypeError(f"{name} must be a mapping of keys to {what}, got {safe_repr(value)}")
