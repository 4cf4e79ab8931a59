"""Shared counters on the store in memory, in virtual time: waits, publishes, faults, misuse."""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import Awaitable, Callable, Collection
from datetime import timedelta
from typing import Any

import pytest

from aiowheel import Purgatory, PurgatoryFullError
from aiowheel._background import end_task
from aiowheel.shared import (
    EpochChangedError,
    HintListener,
    SharedCounters,
    SharedCountersClosedError,
    SharedIdle,
    StoreUnavailableError,
)
from aiowheel.testing import MemoryCounters, VirtualClockEventLoop, VirtualDeadlockError

from .conftest import Process

pytestmark = [pytest.mark.virtual_time, pytest.mark.one_build]


# --- waits and publishes ------------------------------------------------------------------------


async def test_a_publish_completes_the_waits_of_every_process(process: Process) -> None:
    """The publisher's own wait has completed when `advance` returns."""
    here = MemoryCounters()
    async with process(here) as (_, publisher), process(here.beside()) as (_, other):
        near = publisher.wait_until({"doc": 19}, 30)
        far = other.wait_until({"doc": 19}, 30)

        token = await publisher.advance("doc", 19)

        assert near.done()
        assert token == f"{publisher.epoch}:19"
        assert await far


async def test_a_value_from_before_the_wait_counts(process: Process) -> None:
    """The process was started after the publish."""
    here = MemoryCounters()
    async with process(here) as (_, publisher):
        await publisher.advance("doc", 19)
        async with process(here.beside()) as (_, other):
            assert await other.wait_until({"doc": 19}, 30)
            assert await other.value("doc") == 19
            assert await other.value("other") is None


async def test_a_change_before_the_call_is_found_without_a_timeout(process: Process) -> None:
    """The read that finds it may take longer than the timeout."""
    here = MemoryCounters()
    async with process(here) as (_, publisher), process(here.beside()) as (_, other):
        token = await publisher.advance("doc", 1)
        await publisher.advance("doc", 2)

        assert await other.wait_past({"doc": token}, 0)


async def test_a_store_object_serves_one_shared_counters(process: Process) -> None:
    """The first one would miss hints."""
    store = MemoryCounters()
    async with process(store) as (purgatory, shared):
        with pytest.raises(RuntimeError, match="this MemoryCounters is in use: each SharedC"):
            await SharedCounters(purgatory, store).__aenter__()
        with pytest.raises(RuntimeError, match="this MemoryCounters is in use: each SharedI"):
            await SharedIdle(store, 30, print).__aenter__()
        await shared.advance("doc", 1)
    async with process(store) as (_, again):
        assert await again.value("doc") == 1


async def test_calls_in_another_loop_are_refused(process: Process) -> None:
    """They would wait for a loop that does not know of them, or change the store only."""
    async with process(MemoryCounters()) as (_, shared):
        token = await shared.advance("doc", 1)
        calls: list[Callable[[], Awaitable[object]]] = [
            *(lambda: shared.value("new"), lambda: shared.token("new")),
            *(lambda: shared.wait_past({"doc": token}, 1), lambda: shared.forget("doc")),
            *(lambda: shared.advance("doc", 2), lambda: shared.check_and_complete("c")),
        ]

        def call_all() -> list[str]:
            async def names() -> list[str]:
                found = await asyncio.gather(*(call() for call in calls), return_exceptions=True)
                return [type(each).__name__ for each in found]

            return asyncio.run(names())

        assert await asyncio.to_thread(call_all) == ["ForeignLoopError"] * 6
        assert await shared.value("doc") == 1


async def test_a_wait_times_out(process: Process) -> None:
    """A wait times out whether or not the store answers."""
    here = MemoryCounters()
    async with process(here) as (_, shared):
        assert not await shared.wait_until({"doc": 19}, timedelta(seconds=3))
        token = await shared.token("doc")
        assert not await shared.wait_past({"doc": token}, 3)
        here.go_down()
        assert not await shared.wait_until({"new": 19}, 3)
        assert not await shared.wait_past({"new": token}, 3)


async def test_all_and_any(process: Process) -> None:
    """A wait for several keys ends by the mode "all" or "any"."""
    here = MemoryCounters()
    async with process(here) as (_, publisher), process(here.beside()) as (_, other):
        both = other.wait_until({"a": 1, "b": 1}, 30)
        one = other.wait_until({"a": 1, "b": 1}, 30, mode="any")
        await publisher.advance("a", 1)
        assert await one
        assert not both.done()
        await publisher.advance("b", 1)
        assert await both


async def test_wait_past_a_token(process: Process) -> None:
    """A token is valid in every process, and a key without a value has a token as well."""
    here = MemoryCounters()
    async with process(here) as (_, publisher), process(here.beside()) as (_, other):
        nothing = await other.token("doc")
        assert nothing == f"{other.epoch}:"
        first = asyncio.create_task(other.wait_past({"doc": nothing}, 30))
        token = await publisher.advance("doc", 0)
        assert await first
        second = asyncio.create_task(other.wait_past({"doc": token}, 30))
        await asyncio.sleep(1)
        assert not second.done()
        await publisher.advance("doc", 1)
        assert await second


async def test_a_token_ahead_of_the_hints_is_looked_up(process: Process) -> None:
    """A client with a token from the publisher may arrive before the hint; a read decides."""
    here = MemoryCounters()
    there = here.beside()
    async with process(here) as (_, publisher), process(there) as (_, other):
        await publisher.advance("doc", 1)
        assert await other.value("doc") == 1
        there.lose_hints()
        token = await publisher.advance("doc", 2)

        waiting = asyncio.create_task(other.wait_past({"doc": token}, 30))
        await asyncio.sleep(1)
        assert not waiting.done()
        there.subscribe_again()
        await publisher.advance("doc", 3)
        assert await waiting


async def test_a_check_reaches_every_process(process: Process) -> None:
    """Operations with conditions are checked in all processes, including the publisher."""
    here = MemoryCounters()
    data: list[str] = []
    async with process(here) as (near, publisher), process(here.beside()) as (far, _):
        waiting = [
            purgatory.wait_for(lambda: bool(data), ["news"], 30) for purgatory in (near, far)
        ]
        await publisher.check_and_complete("news")
        data.append("rain")
        await publisher.check_and_complete("news")
        assert await asyncio.gather(*waiting) == [True, True]


async def test_publishes_at_the_same_time_share_a_write(process: Process) -> None:
    """The first publish is written at once, and the others together after it."""
    here = MemoryCounters()
    async with process(here) as (_, shared):
        tokens = await asyncio.gather(*(shared.advance(f"k{n % 10}", n) for n in range(1000)))
        assert shared.statistics().publishes == 1000
        assert shared.statistics().writes == 1
        assert tokens[7] == f"{shared.epoch}:7"
        assert await shared.value("k9") == 999


async def test_the_least_interval_between_writes(process: Process) -> None:
    """The first write is made at once."""
    here = MemoryCounters()
    loop = asyncio.get_running_loop()
    async with process(here, min_interval=5) as (_, shared):
        begun = loop.time()
        await shared.advance("doc", 1)
        first = loop.time() - begun
        await shared.advance("doc", 2)
        assert (first, loop.time() - begun) == (0, 5)


async def test_a_smaller_value_changes_nothing(process: Process) -> None:
    """This also holds within one write."""
    async with process(MemoryCounters()) as (_, shared):
        await asyncio.gather(shared.advance("doc", 9), shared.advance("doc", 3))
        await shared.advance("doc", 4)
        assert await shared.value("doc") == 9


# --- kept keys ----------------------------------------------------------------------------------


@pytest.mark.parametrize("seconds", [0, 5, 9.5, 14])
async def test_a_key_lingers_after_its_last_wait(process: Process, seconds: float) -> None:
    """For 10 seconds a new wait needs no read; before 20 the process drops the key."""
    async with process(MemoryCounters(), linger=10) as (purgatory, shared):
        await shared.advance("doc", 5)
        assert not await shared.wait_until({"doc": 6}, seconds)
        reads = shared.statistics().reads
        await asyncio.sleep(9.9)
        assert await shared.wait_until({"doc": 5}, 30)
        await asyncio.sleep(9.9)
        assert shared.statistics()[:2] == (1, 0)
        assert shared.statistics().reads == reads
        await asyncio.sleep(10.2)
        assert (shared.statistics().keys, purgatory.value("doc")) == (0, None)
        assert await shared.value("doc") == 5


async def test_the_end_of_a_wait_after_a_long_time_drops_its_key(process: Process) -> None:
    """While every key has a wait, no timer is armed; the end of a wait arms one."""
    async with process(MemoryCounters(), linger=10) as (_, shared):
        waits = [shared.wait_until({f"doc{number}": 5}, None) for number in range(2)]
        await asyncio.sleep(1000)
        waits[0].cancel()
        await asyncio.sleep(10.1)
        assert shared.statistics().keys == 2
        await asyncio.sleep(10)
        assert shared.statistics().keys == 1


@pytest.mark.parametrize("purge_interval", [None, 1000])
@pytest.mark.parametrize("ended", [False, True])
async def test_conditions_do_not_keep_the_value_of_a_forgotten_counter(
    purge_interval: int | None,
    ended: bool,  # noqa: FBT001
) -> None:
    """Neither pending ones, nor those that have ended and are not purged yet."""
    async with (
        Purgatory("shared", purge_interval=purge_interval) as purgatory,
        SharedCounters(purgatory, MemoryCounters()) as shared,
    ):
        await shared.advance("doc", 5)
        assert await shared.value("doc") == 5
        condition = purgatory.wait_for(lambda: False, ["doc"], 60)
        if ended:
            condition.cancel()
            await asyncio.sleep(0)

        await shared.forget("doc")

        assert shared.statistics()[:2] == (0, 0)
        assert not await shared.wait_until({"doc": 5}, 1)


async def test_a_value_that_is_read_for_long_is_not_dropped(process: Process) -> None:
    """Reads that take ten times the lingering time still answer."""

    class Slow(MemoryCounters):
        async def read(self, keys: Collection[str]) -> tuple[str, dict[str, int]]:
            await asyncio.sleep(10)
            return await super().read(keys)

    async with process(Slow(), linger=1) as (_, shared), asyncio.timeout(100):
        assert await shared.value("doc") is None


async def test_a_cancelled_close_ends_reads_and_drops_keys(process: Process) -> None:
    """Here the store delays the close, and the caller gives up."""

    class Stubborn(MemoryCounters):
        async def read(self, keys: Collection[str]) -> tuple[str, dict[str, int]]:
            if keys:
                try:
                    await asyncio.sleep(30)
                except asyncio.CancelledError:
                    await asyncio.sleep(5)
                    raise
            return await super().read(keys)

    async with process(Stubborn()) as (purgatory, shared):
        reading = asyncio.create_task(shared.value("doc"))
        await asyncio.sleep(1)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await shared.aclose()

        with pytest.raises(SharedCountersClosedError):
            await reading
        assert shared.statistics()[:2] == (0, 0)
        assert purgatory.statistics().keys == 0


def test_an_endless_wait_on_virtual_time_is_a_deadlock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Counters that only wait leave nothing that could move the clock."""
    # The loop waits a second for other threads, such as those that earlier tests have left.
    monkeypatch.setattr(threading, "active_count", lambda: 1)

    async def main() -> None:
        async with (
            Purgatory("shared") as purgatory,
            SharedCounters(purgatory, MemoryCounters()) as shared,
        ):
            await shared.wait_until({"doc": 1}, None)

    with (
        asyncio.Runner(loop_factory=VirtualClockEventLoop) as runner,
        pytest.raises(VirtualDeadlockError, match="wait_until"),
    ):
        runner.run(main())


async def test_a_key_is_kept_as_long_as_a_wait(process: Process) -> None:
    """A key with a pending wait is kept much longer than the lingering time."""
    here = MemoryCounters()
    async with process(here, linger=1) as (_, shared):
        long = shared.wait_until({"doc": 5}, None)
        assert not await shared.wait_until({"doc": 7}, 1)
        await asyncio.sleep(100)
        assert shared.statistics()[:2] == (1, 1)
        await here.beside().raise_to({"doc": 5})
        assert await long
        await asyncio.sleep(0)
        assert shared.statistics()[:2] == (1, 0)


async def test_thousands_of_keys_leave_nothing_behind(process: Process) -> None:
    """No key is left after waits that end by a publish, a timeout or a cancellation."""
    async with process(MemoryCounters(), linger=1) as (purgatory, shared):
        waits = [shared.wait_until({f"k{n}": 1, "all": 9}, 5, "any") for n in range(3000)]
        await asyncio.gather(*(shared.advance(f"k{n}", 1) for n in range(1000)))
        for waiting in waits[1000:2000]:
            waiting.cancel()
        done = await asyncio.gather(*waits[:1000], *waits[2000:])
        await asyncio.sleep(5)
        assert (done.count(True), done.count(False)) == (1000, 1000)
        assert shared.statistics()[:2] == (0, 0)
        assert purgatory.statistics().keys == 0
        assert purgatory._counters.by_key == {}


async def test_forget_removes_a_counter_and_refuses_its_tokens(process: Process) -> None:
    """A pending wait in another process continues."""
    here = MemoryCounters()
    async with process(here) as (_, shared), process(here.beside()) as (_, other):
        token = await shared.advance("doc", 5)
        waiting = other.wait_until({"doc": 6}, 30)
        await shared.forget("doc")
        assert await shared.value("doc") is None
        with pytest.raises(EpochChangedError, match="the counter is at no value"):
            await shared.wait_past({"doc": token}, 30)
        await shared.advance("doc", 6)
        assert await waiting


# --- faults -------------------------------------------------------------------------------------


async def test_lost_hints_are_made_up_for_after_the_gap(process: Process) -> None:
    """Values and checks are recovered; without the read after the gap, the waits would time out."""
    here = MemoryCounters()
    there = here.beside()
    data: list[str] = []
    async with process(here) as (_, publisher), process(there) as (far, other):
        waiting = [other.wait_until({f"k{n}": 1}, 30) for n in range(10)]
        checked = far.wait_for(lambda: bool(data), ["news"], 30)
        await asyncio.sleep(1)
        there.lose_hints()
        data.append("rain")
        await asyncio.gather(*(publisher.advance(f"k{n}", 1) for n in range(10)))
        await publisher.check_and_complete("news")
        await asyncio.sleep(1)
        assert [each.done() for each in (*waiting, checked)] == [False] * 11

        there.subscribe_again()

        assert await asyncio.gather(*waiting, checked) == [True] * 11
        assert other.statistics().gaps == 1


async def test_a_publish_is_repeated_until_the_store_answers(process: Process) -> None:
    """A publish is also repeated if it was written and the answer was lost."""
    here = MemoryCounters()
    async with process(here) as (_, shared):
        here.lose_answers(1)
        assert await shared.advance("doc", 1) == f"{shared.epoch}:1"
        here.go_down()
        late = asyncio.create_task(shared.advance("doc", 2))
        await asyncio.sleep(10)
        assert not late.done()
        here.come_back()
        assert await late == f"{shared.epoch}:2"
        assert shared.statistics().retries > 5


async def test_a_publish_fails_when_patience_ends(process: Process) -> None:
    """Later publishes have their own patience."""
    here = MemoryCounters()
    async with process(here, patience=3) as (_, shared):
        here.go_down()
        early = asyncio.create_task(shared.advance("doc", 1))
        await asyncio.sleep(2)
        late = asyncio.create_task(shared.advance("doc", 2))
        with pytest.raises(StoreUnavailableError):
            await early
        here.come_back()
        await late
        assert await shared.value("doc") == 2


async def test_a_permanent_error_is_raised_at_once(process: Process) -> None:
    """The next publish is written."""

    class Refusing(MemoryCounters):
        refuse = True

        async def raise_to(self, values: Any) -> str:
            if self.refuse:
                raise PermissionError("read only")
            return await super().raise_to(values)

    here = Refusing()
    async with process(here) as (_, shared):
        with pytest.raises(PermissionError):
            await shared.advance("doc", 1)
        here.refuse = False
        await shared.advance("doc", 1)


async def test_a_read_that_fails_is_repeated(process: Process) -> None:
    """A read is repeated after any exception, because the waits depend on it."""

    class Stumbling(MemoryCounters):
        stumbles = 0

        async def read(self, keys: Any) -> tuple[str, dict[str, int]]:
            if keys and self.stumbles < 3:
                self.stumbles += 1
                raise RuntimeError("no idea")
            return await super().read(keys)

    here = Stumbling()
    await here.raise_to({"doc": 1})
    async with process(here) as (_, shared):
        assert await shared.wait_until({"doc": 1}, 30)


async def test_a_lost_check_is_made_up_for_although_the_read_after_the_gap_fails(
    process: Process,
) -> None:
    """The next read also follows the gap, so that it checks all conditions again."""

    class Stumbling(MemoryCounters):
        stumbles = 0

        async def read(self, keys: Any) -> tuple[str, dict[str, int]]:
            if self.stumbles:
                self.stumbles -= 1
                raise StoreUnavailableError("away")
            return await super().read(keys)

    here = MemoryCounters()
    there = Stumbling()
    there._server = here._server
    data: list[str] = []
    async with process(here) as (_, publisher), process(there) as (far, other):
        waiting = far.wait_for(lambda: bool(data), ["news"], 30)
        there.lose_hints()
        data.append("rain")
        await publisher.check_and_complete("news")
        there.stumbles = 2
        there.subscribe_again()
        assert await waiting
        assert other.statistics().retries == 2


async def test_waits_of_a_lost_history_end_with_an_error(process: Process) -> None:
    """Waits for thresholds and tokens raise; conditions are checked again and stay pending."""
    here = MemoryCounters()
    there = here.beside()
    async with process(here) as (_, publisher), process(there) as (far, other):
        token = await publisher.advance("doc", 5)
        old = other.wait_until({"doc": 6}, 30)
        mixed = other.wait_until({"doc": 6, "b": 1}, 30, "any")
        past = asyncio.create_task(other.wait_past({"doc": token}, 30))
        condition = far.wait_for(lambda: False, ["doc"], 30)
        await asyncio.sleep(1)
        epoch = other.epoch

        here.lose_history()

        for waiting in (old, mixed, past):
            with pytest.raises(EpochChangedError):
                await waiting
        assert other.epoch != epoch
        assert other.statistics().epochs == 1
        assert not condition.done()
        for lost in (token, f"{epoch}:"):
            with pytest.raises(EpochChangedError, match=f"lost the history of token '{lost}' of"):
                await publisher.wait_past({"doc": lost}, 30)
        # Later waits work, also with low values.
        new = await publisher.advance("doc", 1)
        assert await other.wait_until({"doc": 1}, 30)
        again = asyncio.create_task(other.wait_past({"doc": new}, 30))
        await publisher.advance("doc", 2)
        assert await again


async def test_a_token_of_a_new_history_is_no_error_in_a_process_that_did_not_notice(
    process: Process,
) -> None:
    """The process reads the store before it raises."""
    here = MemoryCounters()
    there = here.beside()
    async with process(here) as (_, publisher), process(there) as (_, other):
        there.lose_hints()
        here._server.values.clear()
        here._server.epoch = ""
        token = await publisher.advance("doc", 5)
        waiting = asyncio.create_task(other.wait_past({"doc": token}, 30))
        await asyncio.sleep(1)
        there.subscribe_again()
        await publisher.advance("doc", 6)
        assert await waiting


async def test_a_server_that_lost_its_last_writes_gets_them_again(process: Process) -> None:
    """After a failover to a replica, the epoch is the same and the last writes are missing."""
    here = MemoryCounters()
    there = here.beside()
    async with process(here) as (_, publisher), process(there) as (_, other):
        waiting = other.wait_until({"doc": 5}, 30)
        there.lose_hints()
        await publisher.advance("doc", 5)
        here._server.values.clear()
        there.subscribe_again()
        await asyncio.sleep(1)
        assert not waiting.done()

        here.subscribe_again()  # the publisher notices the failover

        assert await waiting


async def test_a_value_that_its_publisher_cannot_write_again_is_written_by_a_reader(
    process: Process,
) -> None:
    """Otherwise the reader would miss the next changes, whose values it believes to have passed."""
    here = MemoryCounters()
    there = here.beside()
    async with process(there) as (_, reader):
        async with process(here) as (_, publisher):
            await publisher.advance("doc", 90)
            assert await reader.value("doc") == 90
            here.stop_syncing()
            token = await publisher.advance("doc", 100)
        assert await reader.value("doc") == 100

        there.crash()
        await asyncio.sleep(1)

        async with process(here.beside()) as (_, other):
            assert not await other.wait_past({"doc": token}, 1)
            waiting = asyncio.create_task(reader.wait_past({"doc": token}, 30))
            assert await other.token("doc") == token
            await other.advance("doc", 101)
            assert await waiting
        assert reader.statistics().writes == 1


class Reluctant(MemoryCounters):
    """A store that refuses some writes, as a new master of Redis does without its replicas."""

    def __init__(self) -> None:
        super().__init__()
        self.refusals: list[Exception] = []

    async def raise_to(self, values: Any) -> str:
        """Refuse the write, or make it."""
        if self.refusals:
            raise self.refusals.pop()
        return await super().raise_to(values)


async def test_lost_writes_are_written_again_once_the_server_accepts_writes(
    process: Process,
) -> None:
    """The server answers reads before that, so no second gap follows."""
    here = Reluctant()
    async with process(here) as (_, publisher), process(here.beside()) as (_, other):
        await publisher.advance("doc", 5)
        here._server.values.clear()
        here.refusals = [StoreUnavailableError("too few replicas")] * 3
        here.subscribe_again()
        assert await other.wait_until({"doc": 5}, 30)
        assert publisher.statistics().retries == 3


async def test_lost_writes_of_a_lost_history_are_not_written_again(process: Process) -> None:
    """The history ends while the server refuses the writes."""
    here = Reluctant()
    async with process(here) as (_, publisher):
        await publisher.advance("doc", 5)
        here._server.values.clear()
        here.refusals = [StoreUnavailableError("too few replicas")] * 3
        here.subscribe_again()
        await asyncio.sleep(0.001)
        assert len(here.refusals) < 3
        here.lose_history()
        await asyncio.sleep(30)
        assert await publisher.value("doc") is None


async def test_lost_writes_that_the_server_refuses_for_good_are_reported(
    process: Process, caplog: pytest.LogCaptureFixture
) -> None:
    """An event names the error, and no task ends with it."""
    here = Reluctant()
    async with process(here) as (_, publisher):
        await publisher.advance("doc", 5)
        here._server.values.clear()
        here.refusals = [PermissionError("read only")]
        here.subscribe_again()
        await asyncio.sleep(1)
    assert "aiowheel.shared_write_failed keys=1 error=" in caplog.text
    assert "never retrieved" not in caplog.text


class Recording(MemoryCounters):
    """A store that records how many counters each write has."""

    def __init__(self) -> None:
        super().__init__()
        self.written: list[int] = []

    async def raise_to(self, values: Any) -> str:
        """Record the write, and make it."""
        self.written.append(len(values))
        return await super().raise_to(values)


async def test_a_gap_writes_only_what_was_lost(process: Process) -> None:
    """Otherwise a process whose listener reconnects often would repeat its publishes for ever."""
    here = Recording()
    async with process(here, linger=5) as (_, publisher):
        await publisher.advance("doc", 5)
        await publisher.advance("other", 5)
        for _ in range(5):
            here.subscribe_again()
            await asyncio.sleep(3)
        del here._server.values["doc"]
        here.subscribe_again()
        await asyncio.sleep(1)
        assert here.written == [1, 1, 1]
        await asyncio.sleep(10)
        await publisher.advance("third", 5)
        await asyncio.sleep(10)
        await publisher.advance("third", 6)
        assert publisher._recent.keys(publisher.epoch) == ["third"]


async def test_many_lost_writes_are_written_in_parts(process: Process) -> None:
    """A single call with all of them would stop the server and the loop."""
    here = Recording()
    async with process(here) as (_, publisher):
        await asyncio.gather(*(publisher.advance(f"{number}", 1) for number in range(25_000)))
        here._server.values.clear()
        here.written.clear()
        here.subscribe_again()
        await asyncio.sleep(1)
        assert here.written == [10_000, 10_000, 5_000]
        assert len(here._server.values) == 25_000


async def test_reads_that_are_given_up_leave_nothing(process: Process) -> None:
    """While the store is away, callers with a timeout come and go."""
    here = MemoryCounters()
    async with process(here, linger=5) as (_, shared):
        here.go_down()
        for _ in range(100):
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(1):
                    await shared.value("doc")
        catch_up: Any = shared._catch_up
        assert not catch_up._read_waiters
        await asyncio.sleep(20)
        assert shared.statistics().keys == 0


# --- misuse -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda s: s.wait_until(3, 30), TypeError, "thresholds must be a mapping"),
        (lambda s: s.wait_until({}, 30), ValueError, "thresholds must name at least one key"),
        (lambda s: s.wait_until({3: 1}, 30), TypeError, "key must be a str, got 3"),
        (lambda s: s.wait_until({"": 1}, 30), ValueError, "key must be 1 to 1024 bytes"),
        (lambda s: s.wait_until({"\udc00": 1}, 30), ValueError, "key must be 1 to 1024 bytes"),
        (lambda s: s.wait_until({"k" * 1025: 1}, 30), ValueError, "key must be 1 to 1024 bytes"),
        (lambda s: s.wait_until({"a\0": 1}, 30), ValueError, "key must be 1 to 1024 bytes"),
        (lambda s: s.wait_until({"k": 1.5}, 30), TypeError, "threshold must be an int"),
        (lambda s: s.wait_until({"k": True}, 30), TypeError, "threshold must be an int"),
        (lambda s: s.wait_until({"k": -1}, 30), ValueError, "threshold must be from 0 to"),
        (lambda s: s.wait_until({"k": 2**63}, 30), ValueError, "threshold must be from 0 to"),
        (lambda s: s.wait_until({"k": 1}, "x"), TypeError, "timeout must be"),
        (lambda s: s.wait_until({"k": 1}, 1, "most"), ValueError, "mode must be one of"),
        (lambda s: s.wait_past("k", 1), TypeError, "tokens must be a mapping"),
        (lambda s: s.wait_past({"k": 3}, 1), TypeError, "token must be a str"),
        (lambda s: s.wait_past({"k": "3"}, 1), ValueError, 'token must be "epoch:value"'),
        (lambda s: s.wait_past({"k": ":3"}, 1), ValueError, 'token must be "epoch:value"'),
        (lambda s: s.wait_past({"k": "e:-3"}, 1), ValueError, 'token must be "epoch:value"'),
        (lambda s: s.wait_past({"k": "e:\u0663"}, 1), ValueError, 'token must be "epoch:value"'),
        (lambda s: s.wait_past({"k": "e:1"}, 1, "most"), ValueError, "mode must be one of"),
        (lambda s: s.advance("k", 1.0), TypeError, "value must be an int"),
        (lambda s: s.advance(b"k", 1), TypeError, "key must be a str"),
        (lambda s: s.check_and_complete(""), ValueError, "key must be 1 to 1024 bytes"),
        (lambda s: s.value(None), TypeError, "key must be a str"),
        (lambda s: s.forget(None), TypeError, "key must be a str"),
    ],
)
async def test_a_bad_argument_is_named(
    process: Process,
    call: Callable[[Any], Any],
    error: type[Exception],
    text: str,
) -> None:
    """The call changes nothing."""
    async with process(MemoryCounters()) as (purgatory, shared):
        with pytest.raises(error, match=text):
            await call(shared)
        assert (len(purgatory), shared.statistics()[:3]) == (0, (0, 0, 0))


@pytest.mark.parametrize("store", [3, "sqlite:///counters.db", None, MemoryCounters])
async def test_something_else_than_a_store_is_refused(store: Any) -> None:
    """The constructor raises, and not the first use of the store."""
    text = f"store must be a CounterStore, got {store!r}"
    async with Purgatory() as purgatory:
        with pytest.raises(TypeError, match=re.escape(text)):
            SharedCounters(purgatory, store)
        with pytest.raises(TypeError, match=re.escape(text)):
            SharedIdle(store, 1, print)


@pytest.mark.parametrize("name", ["linger", "min_interval", "patience"])
@pytest.mark.parametrize("value", [-1, float("inf"), float("nan"), "x", None])
async def test_a_bad_duration_is_refused(name: str, value: Any) -> None:
    """The constructor raises."""
    async with Purgatory() as purgatory:
        with pytest.raises((TypeError, ValueError), match=name):
            SharedCounters(purgatory, MemoryCounters(), **{name: value})


async def test_a_full_purgatory_leaves_no_trace() -> None:
    """The key of the refused wait is not kept."""
    async with (
        Purgatory(max_pending=1) as purgatory,
        SharedCounters(purgatory, MemoryCounters()) as shared,
    ):
        shared.wait_until({"a": 1}, 30)
        with pytest.raises(PurgatoryFullError):
            shared.wait_until({"b": 1}, 30)
        assert shared.statistics()[:2] == (1, 1)


async def test_calls_before_and_after_the_block_are_refused(process: Process) -> None:
    """All calls raise one clear error, and so do calls that are pending at closing."""
    here = MemoryCounters()
    async with Purgatory() as purgatory:
        shared = SharedCounters(purgatory, here)
        with pytest.raises(SharedCountersClosedError, match="not open"):
            await shared.advance("k", 1)
        async with shared:
            here.go_down()
            late = (
                asyncio.create_task(shared.advance("k", 1)),
                asyncio.create_task(shared.value("k")),
                asyncio.create_task(shared.wait_past({"k": "e:1"}, 30)),
            )
            await asyncio.sleep(1)
        for pending in late:
            with pytest.raises(SharedCountersClosedError, match="were closed"):
                await pending
        for call in (
            lambda: shared.wait_until({"k": 1}, 1),
            lambda: asyncio.ensure_future(shared.wait_past({"k": "e:1"}, 1)),
            lambda: asyncio.ensure_future(shared.value("k")),
        ):
            with pytest.raises(SharedCountersClosedError, match="closed"):
                await call()
        await shared.aclose()
        with pytest.raises(RuntimeError, match="opened once"):
            await shared.__aenter__()


async def test_counters_that_are_closed_while_they_are_opened_end_the_block() -> None:
    """The block raises, and leaves no task."""

    class Distant(MemoryCounters):
        async def open(self, listener: HintListener) -> None:
            await asyncio.sleep(1)
            await super().open(listener)

    async with Purgatory("p") as purgatory:
        before = asyncio.all_tasks()
        shared = SharedCounters(purgatory, Distant())
        entering = asyncio.create_task(shared.__aenter__())
        await asyncio.sleep(0)
        await shared.aclose()
        with pytest.raises(SharedCountersClosedError, match="the shared counters are closed"):
            await entering

        assert asyncio.all_tasks() == before


async def test_a_store_that_does_not_answer_is_reported_by_the_block() -> None:
    """The store is closed after the error."""
    here = MemoryCounters()
    here.go_down()
    async with Purgatory() as purgatory:
        with pytest.raises(StoreUnavailableError):
            await SharedCounters(purgatory, here).__aenter__()
    assert here._server.accesses == []


async def test_a_caller_that_goes_away_takes_nothing_back(process: Process) -> None:
    """The write of a cancelled caller is made, and later writes as well."""
    here = MemoryCounters()
    async with process(here) as (_, shared):
        gone = asyncio.create_task(shared.advance("k", 1))
        await asyncio.sleep(0)
        gone.cancel()
        await shared.advance("k", 2)
        assert await shared.value("k") == 2


async def test_a_task_that_swallows_a_cancellation_is_ended() -> None:
    """Closing must not hang on a client that treats the cancellation as a timeout."""
    swallowed = 0

    async def swallowing() -> None:
        nonlocal swallowed
        while swallowed < 3:
            try:
                await asyncio.sleep(3600)
            except asyncio.CancelledError:
                swallowed += 1
        raise RuntimeError("lost")

    task = asyncio.create_task(swallowing())
    await asyncio.sleep(0)
    await end_task(task)
    assert swallowed == 3


async def test_callers_of_one_key_share_reads(process: Process) -> None:
    """Calls that arrive during a read use its answer instead of another read."""

    class Slow(MemoryCounters):
        async def read(self, keys: Any) -> tuple[str, dict[str, int]]:
            await asyncio.sleep(1)
            return await super().read(keys)

    async with process(Slow()) as (_, shared):
        calls: list[asyncio.Task[int | None]] = []
        for number in range(20):
            calls += [asyncio.create_task(shared.value(key)) for key in ("a", "b", f"k{number}")]
            await asyncio.sleep(0.1)
        assert await asyncio.gather(*calls) == [None] * 60
        assert shared.statistics().reads < 8


async def test_a_refused_check_fails_no_other_publish(
    process: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A counter at the greatest value cannot grow; publishes of the same batch were written."""
    here = MemoryCounters()

    async def refuse(keys: Collection[str]) -> str:
        raise OverflowError(f"out of range: {keys!r}")

    async with process(here) as (_, publisher):
        first = asyncio.ensure_future(publisher.advance("first", 1))
        await asyncio.sleep(0)  # the other publishes share the next write
        monkeypatch.setattr(here, "add_one", refuse)
        results = await asyncio.gather(
            first,
            publisher.advance("key", 7),
            publisher.check_and_complete("full"),
            return_exceptions=True,
        )
        kept = await publisher.value("key")

    assert isinstance(results[2], OverflowError)
    assert (str(results[1]).rpartition(":")[2], kept) == ("7", 7)


async def test_a_counter_at_zero_has_a_value(process: Process) -> None:
    """Zero is a value like any other; None means that there is no counter."""
    here = MemoryCounters()
    async with process(here) as (_, publisher), process(here.beside()) as (_, other):
        token = await publisher.advance("doc", 0)

        assert token == await other.token("doc") == f"{publisher.epoch}:0"
        assert await publisher.value("doc") == 0
        assert await other.value("doc") == 0


async def test_a_forgotten_counter_is_not_written_again_after_a_gap(process: Process) -> None:
    """Neither a publish of a moment ago nor one of the last *linger* comes back."""
    here = MemoryCounters()
    async with process(here, linger=10) as (_, shared):
        await shared.advance("old", 5)
        await asyncio.sleep(11)
        await shared.advance("new", 5)  # the publish of "old" is now one of the time before
        for key in ("old", "new"):
            await shared.forget(key)
        here.subscribe_again()
        await asyncio.sleep(5)

        assert (await here.read(["old", "new"]))[1] == {}


async def test_a_token_that_this_process_knows_costs_no_read(process: Process) -> None:
    """Its counter is kept up to date, and is not behind the token."""
    async with process(MemoryCounters()) as (_, shared):
        await shared.value("doc")
        token = await shared.advance("doc", 5)
        reads = shared.statistics().reads
        assert not await shared.wait_past({"doc": token}, 3)

        assert (reads, shared.statistics().reads) == (2, 2)  # the epoch, and the first look


async def test_a_call_of_value_counts_as_a_use(process: Process) -> None:
    """The key is kept for at least *linger* after it."""
    async with process(MemoryCounters(), linger=10) as (_, shared):
        await shared.value("doc")
        for _ in range(10):
            await asyncio.sleep(9)
            await shared.value("doc")

        assert shared.statistics().reads == 2  # the epoch, and one of the key


async def test_lost_writes_are_not_written_into_another_history(process: Process) -> None:
    """The history is replaced between two tries, and no hint or gap tells of it."""
    here = Reluctant()
    async with process(here) as (_, publisher):
        await publisher.advance("doc", 5)
        here._server.values.clear()
        here.refusals = [StoreUnavailableError("too few replicas")]
        here.subscribe_again()
        await asyncio.sleep(0.001)
        assert here.refusals == []
        listener, here._listener = here._listener, None
        here.lose_history()
        await asyncio.sleep(30)

        assert here._server.values == {}
        here._listener = listener


async def test_a_key_that_is_first_used_while_a_history_is_found_lost(process: Process) -> None:
    """Its wait ends as well, and the task that reads goes on."""

    class Slow(MemoryCounters):
        pause = 0.0

        async def read(self, keys: Collection[str]) -> tuple[str, dict[str, int]]:
            await asyncio.sleep(self.pause)
            return await super().read(keys)

    here, errors = Slow(), list[object]()
    asyncio.get_running_loop().set_exception_handler(lambda _, context: errors.append(context))
    async with process(here) as (_, shared):
        await shared.advance("a", 1)
        here.pause = 1.0
        here._server.accesses.clear()  # no gap tells of the loss
        here.lose_history()
        first = shared.wait_until({"a": 9}, 30)
        await asyncio.sleep(0.5)
        second = shared.wait_until({"b": 9}, 30)
        for waiting in (first, second):
            with pytest.raises(EpochChangedError):
                await waiting
        assert await asyncio.wait_for(shared.value("c"), 30) is None
    assert errors == []


async def test_forgetting_a_counter_leaves_its_waits(process: Process) -> None:
    """They stay in all processes, and a later publish completes them."""
    here = MemoryCounters()
    async with process(here) as (_, one), process(here.beside()) as (_, two):
        await one.advance("doc", 1)
        waits = [each.wait_until({"doc": 2}, 30) for each in (one, two)]
        await asyncio.sleep(1)
        await one.forget("doc")
        await asyncio.sleep(1)
        assert not any(waiting.done() for waiting in waits)
        await two.advance("doc", 2)
        assert await asyncio.gather(*waits) == [True, True]


async def test_a_wait_past_a_token_that_cannot_be_read_times_out(process: Process) -> None:
    """The answer is False, as for every timeout."""
    here = MemoryCounters()
    async with process(here) as (_, shared):
        token = await shared.token("doc")
        here.go_down()
        assert await shared.wait_past({"other": token}, 3) is False


async def test_each_publish_is_given_up_after_its_own_patience(process: Process) -> None:
    """A publish that was given up is not tried any more, and does not delay the others."""
    here = MemoryCounters()
    async with process(here, patience=5) as (_, shared):
        here.go_down()
        loop = asyncio.get_running_loop()
        for _ in range(3):
            began = loop.time()
            with pytest.raises(StoreUnavailableError):
                await asyncio.wait_for(shared.advance("doc", 1), 20)
            assert 5 <= loop.time() - began < 8
        here.come_back()
        await asyncio.sleep(10)
        assert await shared.value("doc") is None
