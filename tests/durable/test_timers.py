"""DurableTimers in virtual time: fires, due times, repeats, restarts and failures."""

from __future__ import annotations

import asyncio
import gc
import logging
import sys
import traceback
import weakref
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from contextvars import ContextVar
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from aiowheel import Timer, TimerClosedError
from aiowheel.durable import (
    BadRowError,
    DurableTimers,
    DurableTimersClosedError,
    Fire,
    MemoryStore,
    NewTimer,
    Retry,
    SQLiteStore,
    StaleFireError,
    Store,
    StoreError,
    TimerExistsError,
)
from aiowheel.durable._databases import distributed
from aiowheel.durable._recurrence import Recurrence
from aiowheel.durable._window import Entry
from aiowheel.durable.operations import (
    LARGE_PAYLOAD,
    UNREAD,
    Cancel,
    Change,
    Cursor,
    Leased,
    Operation,
    Put,
    Result,
    Row,
    part_of,
)
from aiowheel.durable.testing import make_fire
from aiowheel.testing import VirtualClockEventLoop

from .links import Cut, Link, Stalled, Transactional

pytestmark = [pytest.mark.one_build, pytest.mark.virtual_time]

SECOND = timedelta(seconds=1)
DAY = timedelta(days=1)
EAST = timezone(timedelta(hours=14))


def now() -> float:
    """Return the virtual time in seconds."""
    return asyncio.get_running_loop().time()


class Log:
    """A handler that records fires and their times."""

    def __init__(self) -> None:
        self.fires: list[Fire] = []
        self.times: list[float] = []

    def __call__(self, fire: Fire) -> None:
        """Record the fire."""
        self.fires.append(fire)
        self.times.append(now())

    @property
    def names(self) -> list[str]:
        """The names in the order of firing."""
        return [fire.name for fire in self.fires]


def timers_on(store: Store, handler: Any, **options: Any) -> DurableTimers:
    """Return timers with one handler "h"."""
    timers = DurableTimers(store, **options)
    timers.handler("h", retry=Retry(3, backoff=2, jitter=0))(handler)
    return timers


async def test_a_timer_fires_at_its_time_with_what_it_was_given() -> None:
    """A timer of a month fires within a tick, never early, with its arguments."""
    log = Log()
    start = datetime(2026, 1, 1, tzinfo=UTC)
    async with timers_on(MemoryStore(start=start), log) as timers:
        assert await timers.schedule("a", "h", due=start + 30 * DAY, payload=b"x")
        await asyncio.sleep(30 * 86_400 - 0.001)
        assert log.fires == []
        await asyncio.sleep(1)

        (fire,) = log.fires
        assert (fire.name, fire.handler, fire.payload, fire.attempt) == ("a", "h", b"x", 1)
        assert fire.due == start + 30 * DAY
        assert log.times == [30 * 86_400]
        assert await timers.get("a") is None
        assert timers.now() == start + 30 * DAY + timedelta(seconds=0.999)


async def test_every_instant_in_the_past_is_due_now() -> None:
    """The first instant that a datetime can show fires at once; the last one waits."""
    log = Log()
    first, last = datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)
    async with timers_on(MemoryStore(), log, max_in_flight=1) as timers:
        await timers.schedule("last", "h", due=last)
        for name in ("a", "b"):
            await timers.schedule(name, "h", due=first)
        await asyncio.sleep(1)

        assert [(fire.name, fire.due) for fire in log.fires] == [("a", first), ("b", first)]
        assert [row.due async for row in timers.pending()] == [last]


async def test_coroutine_functions_run_as_tasks_of_their_own() -> None:
    """Handlers overlap, each in its own context and with its own timeouts."""
    variable: ContextVar[str] = ContextVar("variable", default="")
    seen: list[str] = []

    async def handler(fire: Fire) -> None:
        seen.append(variable.get())
        variable.set(fire.name)
        async with asyncio.timeout(30):
            await asyncio.sleep(10)

    async with timers_on(MemoryStore(), handler) as timers:
        for name in "abc":
            await timers.schedule(name, "h", due=SECOND)
        await asyncio.sleep(5)
        assert timers.statistics().in_flight == 3
        await asyncio.sleep(10)

        assert seen == ["", "", ""]
        assert timers.statistics().in_flight == 0


async def test_what_is_due_fires_after_a_restart() -> None:
    """Timers that have not fired yet fire in the order of their due times."""
    store, log = MemoryStore(), Log()
    async with timers_on(store, log) as timers:
        for number in range(5):
            await timers.schedule(f"t{number}", "h", due=number * DAY)
        await asyncio.sleep(1)
    await asyncio.sleep(2.5 * 86_400)
    async with timers_on(store, log):
        await asyncio.sleep(10)
        assert log.names == ["t0", "t1", "t2"]
        await asyncio.sleep(3 * 86_400)

    assert log.names == ["t0", "t1", "t2", "t3", "t4"]
    assert await store.check() == []


async def test_a_name_is_a_key() -> None:
    """A known name is replaced, kept or refused; a new timer of an old name has another fire id."""
    log = Log()
    async with timers_on(MemoryStore(), log) as timers:
        await timers.schedule("a", "h", due=SECOND, payload=b"1")
        assert not await timers.schedule("a", "h", due=SECOND, payload=b"2", if_exists="keep")
        with pytest.raises(TimerExistsError, match="'a'"):
            await timers.schedule("a", "h", due=SECOND, payload=b"3", if_exists="error")
        assert await timers.schedule("a", "h", due=2 * SECOND, payload=b"4")
        await asyncio.sleep(3)
        await timers.schedule("a", "h", due=SECOND, payload=b"5")
        await asyncio.sleep(3)

        assert [fire.payload for fire in log.fires] == [b"4", b"5"]
        assert log.times == [2, 4]
        assert len({fire.id for fire in log.fires}) == 2


async def test_cancel_is_true_only_if_the_timer_does_not_fire() -> None:
    """The result is right for a pending, an ended, a running and an unknown timer."""
    log = Log()
    found: list[bool] = []

    async def handler(fire: Fire) -> None:
        log(fire)
        found.append(await timers.cancel(fire.name))
        raise ValueError

    async with timers_on(MemoryStore(), handler) as timers:
        await timers.schedule("a", "h", due=SECOND)
        await timers.schedule("b", "h", due=SECOND)
        assert await timers.cancel("a")
        assert not await timers.cancel("a")
        await asyncio.sleep(100)

        assert log.names == ["b"]  # it was cancelled while it ran, so it is not retried
        assert found == [False]
        assert not await timers.cancel("b")


async def test_reschedule_moves_a_timer() -> None:
    """A timer can be moved earlier and later; a missing one returns False."""
    log = Log()
    async with timers_on(MemoryStore(), log) as timers:
        await timers.schedule("a", "h", due=10 * SECOND)
        await timers.schedule("b", "h", due=DAY * 300)
        assert await timers.reschedule("a", 20 * SECOND)
        assert await timers.reschedule("b", SECOND)
        assert not await timers.reschedule("c", SECOND)
        await asyncio.sleep(30)

        assert (log.names, log.times) == (["b", "a"], [1, 20])


async def test_a_move_in_the_same_commit_as_a_failure_holds() -> None:
    """The retry after the failure does not replace the moved timer."""
    log = Log()

    async def handler(fire: Fire) -> None:
        log(fire)
        if len(log.fires) == 1:
            task = asyncio.create_task(timers.reschedule("a", 50 * SECOND))
            tasks.append(task)
            raise ValueError

    tasks: list[asyncio.Task[bool]] = []
    async with timers_on(MemoryStore(), handler) as timers:
        await timers.schedule("a", "h", due=SECOND)
        await asyncio.sleep(100)

        assert tasks[0].result()
        assert log.times == [1, 51]
        assert timers.statistics().commits <= 3


async def test_a_failing_handler_is_retried_and_then_a_dead_letter() -> None:
    """The attempts have backoff and one fire id; a redriven fire has all attempts again."""
    attempts: list[tuple[float, int, str]] = []
    works = False

    def handler(fire: Fire) -> None:
        attempts.append((now(), fire.attempt, fire.id))
        if not works:
            raise ValueError("no\x00t\nnow \ud800")

    async with timers_on(MemoryStore(), handler) as timers:
        await timers.schedule("a", "h", due=SECOND, payload=b"p")
        await asyncio.sleep(60)
        assert [attempt[:2] for attempt in attempts] == [(1, 1), (3, 2), (7, 3)]
        (letter,) = [each async for each in timers.dead_letters()]
        assert (letter.name, letter.attempts, letter.payload) == ("a", 3, b"p")
        assert letter.error == "ValueError: not now ?"
        assert timers.statistics().dead == 1

        works = True
        assert await timers.redrive(letter)
        assert not await timers.redrive(letter)
        await asyncio.sleep(1)

        assert attempts[-1][1] == 1
        assert len({attempt[2] for attempt in attempts}) == 1
        assert [each async for each in timers.dead_letters()] == []
        assert timers.statistics().retried == 2


class UnprintableError(Exception):
    """An error whose text cannot be read."""

    def __str__(self) -> str:
        raise ValueError("no text")

    __repr__ = __str__


async def without_argument() -> None:
    """Cannot be called with a fire."""


def cancels_itself(_fire: Fire) -> None:
    """Raise what a cancelled task raises, in a plain function."""
    raise asyncio.CancelledError


def fails_without_text(_fire: Fire) -> None:
    """Raise an error that has no repr."""
    raise UnprintableError


def fails_as_a_test(_fire: Fire) -> None:
    """Raise an error that is not an Exception."""
    pytest.fail("not expected")


async def fails_as_a_test_later(_fire: Fire) -> None:
    """Raise an error that is not an Exception, in a task."""
    await asyncio.sleep(0.1)
    pytest.fail("not expected")


@pytest.mark.parametrize(
    "handler",
    [
        *(without_argument, cancels_itself, fails_without_text),
        *(fails_as_a_test, fails_as_a_test_later),
    ],
)
async def test_anything_that_a_handler_raises_is_a_failure_of_its_fire_alone(handler: Any) -> None:
    """The fire is retried and then a dead letter; a timer that is due with it fires."""
    log = Log()
    timers = timers_on(MemoryStore(), handler, max_in_flight=1)
    timers.handler("log")(log)
    async with timers:
        await timers.schedule("a", "h", due=SECOND)
        await timers.schedule("b", "log", due=SECOND)
        await asyncio.sleep(60)

        assert log.names == ["b"]
        assert [(each.name, each.attempts) async for each in timers.dead_letters()] == [("a", 3)]
        assert timers.statistics().in_flight == 0


def exits(_fire: Fire) -> None:
    """End the program."""
    sys.exit(3)


async def exits_later(_fire: Fire) -> None:
    """End the program, in a task."""
    await asyncio.sleep(0)
    sys.exit(3)


@pytest.mark.parametrize("handler", [exits, exits_later])
def test_a_program_that_a_handler_ends_does_not_wait_for_that_handler(handler: Any) -> None:
    """The timers close at once, and the fire is repeated after a restart."""
    store, closed = MemoryStore(), list[float]()

    async def program() -> None:
        try:
            async with timers_on(store, handler) as timers:
                await timers.schedule("a", "h", due=SECOND)
                await asyncio.sleep(100)
        finally:
            closed.append(now())

    with (
        pytest.raises(SystemExit),
        asyncio.Runner(loop_factory=VirtualClockEventLoop) as runner,
    ):
        runner.run(program())
    gc.collect()  # asyncio reports the handler's task now, and not during another test

    assert closed == [1]


async def test_a_handler_that_is_not_registered_is_a_failure() -> None:
    """The dead letter can be redriven after the handler is registered."""
    async with DurableTimers(MemoryStore()) as timers:
        await timers.schedule("a", "missing", due=SECOND)
        await asyncio.sleep(600)
        (letter,) = [each async for each in timers.dead_letters()]

        assert "no handler named 'missing'" in letter.error


async def test_no_more_than_max_in_flight_run_at_once() -> None:
    """The other fires wait, in order."""
    running = 0
    most = 0
    order: list[str] = []

    async def handler(fire: Fire) -> None:
        nonlocal running, most
        order.append(fire.name)
        running += 1
        most = max(most, running)
        await asyncio.sleep(1)
        running -= 1

    async with timers_on(MemoryStore(partitions=1), handler, max_in_flight=3) as timers:
        names = [f"t{number:02}" for number in range(20)]
        await timers.schedule_many(NewTimer(name, "h", SECOND) for name in names)
        await asyncio.sleep(60)

        assert (most, order) == (3, names)


async def test_schedule_many_writes_in_commits_of_a_thousand() -> None:
    """It raises for the refused timers after all others were written."""
    log = Log()
    async with timers_on(MemoryStore(), log) as timers:
        await timers.schedule("t7", "h", due=DAY)
        with pytest.raises(ExceptionGroup) as caught:
            await timers.schedule_many(
                [NewTimer(f"t{number}", "h", SECOND) for number in range(2500)], if_exists="error"
            )
        (error,) = caught.value.exceptions
        assert isinstance(error, TimerExistsError)
        assert (await timers.summary()).pending == 2500
        assert timers.statistics().commits <= 4
        assert await timers.schedule_many([NewTimer("x", "h", SECOND)], if_exists="keep") == 1
        assert await timers.schedule_many([]) == 0
        await asyncio.sleep(5)

        assert len(log.fires) == 2500


@pytest.mark.parametrize("mode", ["before", "after"])
async def test_a_store_that_fails_during_schedule_many_is_one_error(
    mode: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The caller gets it; asyncio reports no error of the next commit as never retrieved."""
    store = Cut(MemoryStore())
    async with timers_on(store, Log()) as timers:
        store.mode = mode
        with pytest.raises(StoreError, match="cut off"):
            await timers.schedule_many(NewTimer(f"t{n}", "h", DAY) for n in range(2500))
        await asyncio.sleep(10)
        store.mode = ""
    gc.collect()

    assert "never retrieved" not in caplog.text


async def test_schedule_many_writes_the_commits_before_a_wrong_timer() -> None:
    """They are written when it raises, also for an error of the iterable itself."""

    def failing() -> Iterator[NewTimer]:
        for number in range(1500):
            yield NewTimer(f"t{number}", "h", DAY)
        raise KeyError("the source")

    async with timers_on(MemoryStore(), Log()) as timers:
        with pytest.raises(KeyError, match="the source"):
            await timers.schedule_many(failing())

        assert (await timers.summary()).pending == 1000


async def test_calls_at_the_same_time_share_a_commit() -> None:
    """A hundred concurrent calls take two commits at most."""
    async with timers_on(MemoryStore(), Log()) as timers:
        await asyncio.gather(*(timers.schedule(f"t{n}", "h", due=DAY) for n in range(100)))

        assert timers.statistics().commits <= 2


async def test_a_store_limits_the_operations_of_a_commit() -> None:
    """Waiting calls share commits of at most `most_operations`; all of them are executed."""
    store = MemoryStore()
    store.most_operations = 30
    async with DurableTimers(store) as timers:
        calls = [timers.schedule(f"{n}", "h", due=DAY) for n in range(100)]
        assert all(await asyncio.gather(*calls))
        assert timers.statistics().commits == 4
        assert (
            await timers.schedule_many(NewTimer(f"many {n}", "h", DAY) for n in range(100)) == 100
        )
        assert timers.statistics().commits == 5
    assert len(await store.rows()) == 200


@pytest.mark.parametrize(
    ("timers", "text"),
    [
        (5, "timers must be iterable, got 5"),
        ([5], "timers must hold NewTimer objects or tuples of name, .*, got 5"),
        ([("a",)], r"timers must hold NewTimer objects or tuples of name, .*, got \('a',\)"),
        ([("a", "h", DAY, b"", 1)], "timers must hold NewTimer objects or tuples of name"),
        ([("a", "h", 1)], "due must be an aware datetime or a timedelta, got 1"),
    ],
)
async def test_timers_of_another_kind_are_refused(timers: Any, text: str) -> None:
    """The error names the value; no timer is written."""
    store = MemoryStore()
    async with DurableTimers(store) as opened:
        with pytest.raises(TypeError, match=text):
            await opened.schedule_many(timers)
    assert await store.rows() == []


async def test_a_commit_is_limited_by_its_bytes() -> None:
    """PostgreSQL refuses a message of a gigabyte, so large payloads take several commits."""
    payload = bytes(10 * 2**20)
    async with DurableTimers(MemoryStore()) as timers:
        calls = [timers.schedule(f"{n}", "h", due=DAY, payload=payload) for n in range(8)]
        assert all(await asyncio.gather(*calls))
        assert timers.statistics().commits == 2
        large = (NewTimer(f"large {n}", "h", DAY, payload) for n in range(8))
        assert await timers.schedule_many(large) == 8
        assert timers.statistics().commits == 4
        small = (NewTimer(f"small {n}", "h", DAY) for n in range(8))
        assert await timers.schedule_many(small) == 8
        assert timers.statistics().commits == 5


class Slow(MemoryStore):
    """A store whose commits take a second each; "bad" as a name makes a commit fail."""

    most_operations = 1

    def __init__(self, began: Callable[[str], None]) -> None:
        super().__init__()
        self.began = began

    async def commit(self, owner: str, operations: Sequence[Operation]) -> list[Result]:
        """Commit after a second."""
        name = getattr(operations[0], "name", "")
        self.began(name)
        await asyncio.sleep(1)
        if name == "bad":
            raise StoreError("the connection was lost")
        return await super().commit(owner, operations)


async def test_results_are_applied_while_the_store_executes_the_next_commit() -> None:
    """The store does not wait for that; a commit that fails does not change the order."""
    log: list[tuple[str, int]] = []

    def began(name: str) -> None:
        log.append((f"begin {name}", timers.statistics().scheduled))

    async def schedule(name: str) -> None:
        try:
            await timers.schedule(name, "h", due=DAY)
        except StoreError:
            log.append((f"failed {name}", timers.statistics().scheduled))
        else:
            log.append((f"end {name}", timers.statistics().scheduled))

    async with timers_on(Slow(began), Log()) as timers:
        start = now()
        await asyncio.gather(*map(schedule, ("a", "b", "bad", "c")))
        assert now() - start == 4

    assert log == [
        ("begin a", 0),
        ("begin b", 0),
        ("end a", 1),
        ("begin bad", 1),
        ("end b", 2),
        ("begin c", 2),
        ("failed bad", 2),
        ("end c", 3),
    ]


async def test_leases_are_renewed_while_commits_never_pause() -> None:
    """A renewal waits for one commit at most, so that the process keeps its timers."""
    log = Log()
    done = asyncio.Event()

    async def schedule(place: int) -> None:
        number = 0
        while not done.is_set():
            number += 1
            await timers.schedule(f"{place} {number}", "h", due=DAY)

    async with timers_on(Slow(lambda _: None), log, lease=6) as timers:
        await timers.schedule("due", "h", due=60 * SECOND)
        start = now()
        load = [asyncio.create_task(schedule(place)) for place in range(3)]
        await asyncio.sleep(70)
        done.set()
        await asyncio.gather(*load)

        assert log.names == ["due"]
        assert log.times[0] - start < 60.01
        assert timers.statistics().commits > 65


async def test_only_the_window_is_in_memory() -> None:
    """Of 5,000 pending timers, only those of the window are in memory."""
    async with timers_on(MemoryStore(), Log(), window=60, lease=60) as timers:
        await timers.schedule_many(NewTimer(f"t{n}", "h", n * SECOND) for n in range(5000))
        await asyncio.sleep(31)  # the second page was read
        statistics = timers.statistics()

        assert 29 <= statistics.resident <= 61
        await asyncio.sleep(5000)
        assert timers.statistics().acknowledged == 5000
        assert timers.statistics().lateness.maximum == 0.0


async def test_a_handler_that_runs_for_hours_does_not_stop_the_timers_of_its_partition() -> None:
    """A second process joins and gets no partition, because every partition is busy."""
    store, log = MemoryStore(partitions=2), Log()
    names = list({part_of(name, 2): name for name in "abcd"}.values())

    async def linger(_fire: Fire) -> None:
        await asyncio.sleep(10_000)

    def opened() -> DurableTimers:
        timers = timers_on(store, log, lease=9, window=60)
        timers.handler("linger")(linger)
        return timers

    async with opened() as one:
        for name in names:
            await one.schedule(name, "linger", due=SECOND)
        await asyncio.sleep(2)
        assert one.statistics().in_flight == 2
        async with opened() as two:
            await asyncio.sleep(20)
            for number in range(20):
                await two.schedule(f"t{number}", "h", due=number * 10 * SECOND)
            await asyncio.sleep(300)

            assert two.statistics().partitions == 0
            assert len(log.fires) == 20
            assert one.statistics().lateness.maximum <= 12  # a lease, and the next renewal
            await one.aclose(drain=0)


async def test_the_timers_of_two_processes_are_shared_and_taken_over() -> None:
    """Each timer fires once, changes reach the other process, and one takes over from the other."""
    store, first, second = MemoryStore(partitions=8), Log(), Log()
    options = {"lease": 9, "window": 60}
    async with timers_on(store, first, **options) as one:
        await one.schedule_many(NewTimer(f"t{n}", "h", (1 + n) * SECOND) for n in range(200))
        await asyncio.sleep(20.5)
        async with timers_on(store, second, **options) as two:
            await asyncio.sleep(20)
            assert one.statistics().partitions == two.statistics().partitions == 4
            await two.schedule_many(NewTimer(f"u{n}", "h", SECOND) for n in range(20))
            assert await two.reschedule("t199", 2 * SECOND)
            await asyncio.sleep(3)
            names = first.names + second.names
            assert {f"u{n}" for n in range(20)} < set(names)
            assert "t199" in names
            assert second.fires
        await asyncio.sleep(300)

    fired = sorted(first.names + second.names)
    assert fired == sorted([f"t{n}" for n in range(200)] + [f"u{n}" for n in range(20)])
    assert max(one.statistics().lateness.maximum, two.statistics().lateness.maximum) < 4


async def test_a_partition_whose_fires_follow_each_other_is_handed_over() -> None:
    """The next fires wait, so that the partition becomes idle."""
    store = MemoryStore(partitions=2)

    async def slow(_fire: Fire) -> None:
        await asyncio.sleep(3)

    async with timers_on(store, slow, lease=9, window=60) as one:
        await one.schedule_many(NewTimer(f"t{n}", "h", n * SECOND / 2) for n in range(200))
        await asyncio.sleep(5)
        async with timers_on(store, slow, lease=9, window=60) as two:
            await asyncio.sleep(20)
            assert one.statistics().partitions == two.statistics().partitions == 1


async def test_timers_that_are_taken_over_fire_in_time_although_memory_is_full(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The timers of its own partitions, due in the next minutes, already fill the memory."""
    monkeypatch.setattr("aiowheel.durable._window.MOST_RESIDENT", 100)
    store, log = MemoryStore(partitions=8), Log()
    async with timers_on(store, log, lease=9) as one:
        async with timers_on(store, log, lease=9) as two:
            await asyncio.sleep(20)
            await one.schedule_many(NewTimer(f"t{n}", "h", 2 * n * SECOND) for n in range(400))
            await asyncio.sleep(30)
            assert min(each.statistics().resident for each in (one, two)) > 150
        await asyncio.sleep(1000)

    assert len(log.fires) == 400
    assert one.statistics().lateness.maximum < 1


async def test_the_timers_in_memory_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    """At most one page beyond the limit is read, although all timers are due within the window."""
    monkeypatch.setattr("aiowheel.durable._window.MOST_RESIDENT", 200)
    monkeypatch.setattr("aiowheel.durable._window.PAGE", 100)
    store, log = MemoryStore(partitions=4), Log()
    async with timers_on(store, log) as timers:
        await timers.schedule_many(
            NewTimer(f"t{n}", "h", (100 + n / 10) * SECOND) for n in range(1000)
        )
    async with timers_on(store, log) as timers:
        await asyncio.sleep(50)
        assert 200 <= timers.statistics().resident <= 300
        await asyncio.sleep(200)

    assert len(log.fires) == 1000
    assert timers.statistics().lateness.maximum < 1


def large(name: str) -> bytes:
    """Return a payload that stays in the store until its timer is due."""
    return name.encode() + bytes(LARGE_PAYLOAD)


async def test_large_payloads_are_not_in_memory_before_their_timers_are_due() -> None:
    """Whether this process has scheduled them, or another one, or they are read in a page."""
    store, log = MemoryStore(), Log()
    site = DurableTimers(store, fires=False)
    async with site:
        await site.schedule("page", "h", due=50 * SECOND, payload=large("page"))
        async with timers_on(store, log, lease=10) as timers:
            await timers.schedule("own", "h", due=51 * SECOND, payload=large("own"))
            await site.schedule("other", "h", due=52 * SECOND, payload=large("other"))
            await timers.every("again", "h", 53 * SECOND, payload=large("again"))
            await asyncio.sleep(40)
            held = [entry.row for entry in timers._window.resident.values()]
            assert [row.payload is UNREAD for row in held if row is not None] == [True] * 4
            await asyncio.sleep(30)
            await timers.cancel("again")

    assert {fire.name: fire.payload for fire in log.fires} == {
        name: large(name) for name in ("page", "own", "other", "again")
    }
    assert timers.statistics().lateness.maximum < 1


class Reluctant(Link):
    """A connection whose `get` takes a second, and fails in the mode "cut".

    In the mode "deaf", no changes of other processes arrive.
    """

    mode = ""
    reads = most_reads = 0

    async def get(self, name: str) -> Row | None:
        """Return the timer late."""
        self.reads += 1
        self.most_reads = max(self.reads, self.most_reads)
        await asyncio.sleep(1)
        self.reads -= 1
        if self.mode == "cut":
            raise StoreError("the store is cut off")
        return await super().get(name)

    async def changes(self, owner: str) -> tuple[list[Change], bool]:
        """Take the changes."""
        return ([], False) if self.mode == "deaf" else await super().changes(owner)


async def test_small_timers_do_not_wait_for_the_payloads_of_others() -> None:
    """Few payloads are read at a time, and no more than may be in flight."""
    base, log = MemoryStore(partitions=1), Log()
    link = Reluctant(base)
    async with timers_on(link, log) as timers:
        for number in range(20):
            name = f"large{number}"
            await timers.schedule(name, "h", due=SECOND, payload=large(name))
        await timers.schedule("small", "h", due=1.5 * SECOND)
        await asyncio.sleep(1.6)
        assert log.names == ["small"]
        assert timers.statistics().ready == 20
        await asyncio.sleep(10)

    assert link.most_reads == 4
    assert sorted(fire.payload for fire in log.fires[1:]) == sorted(
        large(f"large{number}") for number in range(20)
    )


async def test_a_payload_is_read_again_after_an_error() -> None:
    """The timer fires once the store answers."""
    link, log = Reluctant(MemoryStore()), Log()
    async with timers_on(link, log) as timers:
        await timers.schedule("a", "h", due=SECOND, payload=large("a"))
        link.mode = "cut"
        await asyncio.sleep(10)
        assert log.names == []
        link.mode = ""
        await asyncio.sleep(3)

        assert log.names == ["a"]
        assert timers.statistics().store_errors > 3


class Partial(Link):
    """A connection on which `get` fails for names that begin with "bad"."""

    async def get(self, name: str) -> Row | None:
        """Return the timer."""
        if name.startswith("bad"):
            raise StoreError("too large for this connection")
        return await super().get(name)


async def test_payloads_that_cannot_be_read_delay_no_others() -> None:
    """Between two attempts, other payloads are read."""
    log = Log()
    async with timers_on(Partial(MemoryStore()), log) as timers:
        for name in ("bad1", "bad2", "bad3", "bad4", "bad5", "good"):
            await timers.schedule(name, "h", due=SECOND, payload=large(name))
        await asyncio.sleep(2)

        assert log.names == ["good"]
        assert timers.statistics().ready == 5


async def test_cancelled_timers_with_large_payloads_make_room_for_a_page() -> None:
    """They were due, but were never read: nothing else would have the next page read."""
    store, log, may_end = MemoryStore(partitions=1), Log(), asyncio.Event()

    async def handle(fire: Fire) -> None:
        log(fire)
        await may_end.wait()

    names = [f"t{number:04}" for number in range(1010)]
    async with DurableTimers(store, fires=False) as site:
        await site.schedule_many(NewTimer(name, "h", SECOND, large(name)) for name in names)
        await asyncio.sleep(5)
    async with timers_on(store, handle, lease=3000, max_in_flight=10) as timers:
        await asyncio.sleep(1)
        for name in names[:1000]:
            await timers.cancel(name)
        may_end.set()
        await asyncio.sleep(10)

        assert log.names[10:] == names[1000:]


async def test_a_read_that_was_cancelled_is_repeated() -> None:
    """`asyncio.run` cancels all tasks at its end, and handlers may still run for a while."""
    log = Log()
    async with timers_on(Reluctant(MemoryStore()), log) as timers:
        await timers.schedule("a", "h", due=SECOND, payload=large("a"))
        await asyncio.sleep(1.5)
        (read,) = (task for task in asyncio.all_tasks() if "Runner._load" in repr(task))
        read.cancel()
        await asyncio.sleep(2)

        assert log.names == ["a"]


@pytest.mark.parametrize("change", ["cancel", "reschedule", "replace", "keep"])
@pytest.mark.parametrize("by", ["itself", "another process"])
async def test_a_timer_may_change_while_its_payload_is_read(change: str, by: str) -> None:
    """Its fire has not begun: `cancel` is certain, and a later version fires at its own time."""
    base, log = MemoryStore(), Log()
    site = DurableTimers(base, fires=False)
    async with site, timers_on(Reluctant(base), log, lease=10) as timers:
        await timers.schedule("a", "h", due=SECOND, payload=large("a"))
        await asyncio.sleep(1.5)
        caller = timers if by == "itself" else site
        match change:
            case "cancel":
                assert await caller.cancel("a") is (by == "itself")
            case "reschedule":
                assert await caller.reschedule("a", due=5 * SECOND)
            case "replace":
                await caller.schedule("a", "h", due=5 * SECOND, payload=large("b"))
            case _:
                assert not await caller.schedule("a", "h", due=SECOND, if_exists="keep")
        await asyncio.sleep(4)
        assert log.names == (["a"] if change == "keep" else [])
        await asyncio.sleep(10)

    wanted = {"cancel": [], "replace": [large("b")]}.get(change, [large("a")])
    assert [fire.payload for fire in log.fires] == wanted


@pytest.mark.parametrize("change", ["cancel", "replace"])
async def test_a_payload_of_another_version_is_not_used(change: str) -> None:
    """The note of another process may arrive after the payload."""
    base, log = MemoryStore(), Log()
    link, site = Reluctant(base), DurableTimers(base, fires=False)
    async with site, timers_on(link, log, lease=30) as timers:
        await timers.schedule("a", "h", due=SECOND, payload=large("a"))
        await asyncio.sleep(0.5)
        link.mode = "deaf"
        if change == "cancel":
            assert not await site.cancel("a")
        else:
            await site.schedule("a", "h", due=40 * SECOND, payload=large("b"))
        await asyncio.sleep(5)
        assert log.names == []
        assert timers.statistics().resident == 0
        link.mode = ""
        await asyncio.sleep(50)

    assert [fire.payload for fire in log.fires] == ([] if change == "cancel" else [large("b")])


async def test_a_process_that_closes_leaves_timers_whose_payloads_it_reads() -> None:
    """They fire after a restart; closing does not wait for the store."""
    base, log = MemoryStore(), Log()
    async with timers_on(Reluctant(base), log) as timers:
        await timers.schedule("a", "h", due=SECOND, payload=large("a"))
        await asyncio.sleep(1.5)
        began = now()
    assert now() - began < 0.1
    assert not any("Runner._load" in repr(task) for task in asyncio.all_tasks())
    async with timers_on(base, log):
        await asyncio.sleep(1)

    assert log.names == ["a"]


async def test_a_process_that_fires_nothing_schedules_and_cancels_timers() -> None:
    """Its partitions wait for a process that fires, which finds what changed before and after."""
    store, log = MemoryStore(), Log()
    unused = Log()
    async with timers_on(store, unused, fires=False) as site:
        await site.schedule("a", "h", due=SECOND)
        await site.schedule("b", "h", due=50 * SECOND)
        await asyncio.sleep(10)
        assert site.statistics().partitions == 0
        assert (await store.summary()).owners == {"": store.partitions}
        async with timers_on(store, log, lease=10) as worker:
            await asyncio.sleep(1)
            assert log.names == ["a"]
            await site.schedule("c", "h", due=SECOND)
            assert await site.cancel("b")
            await site.every("d", "h", 20 * SECOND)
            await asyncio.sleep(30)

            assert log.names == ["a", "c", "d"]
            assert worker.statistics().partitions == store.partitions
    assert unused.names == []


async def test_a_process_that_fires_nothing_follows_the_clock_of_the_store() -> None:
    """A delay counts from the store's time, also after the store's clock was set."""
    base = SteppedStore()
    link = RemoteStore(base)
    async with DurableTimers(link, fires=False, lease=10) as site:
        for step_us in (0, 3_600_000_000, -3_600_000_000):
            base.step_us = step_us
            await asyncio.sleep(5)
            await site.schedule("a", "h", due=SECOND)
            row = await site.get("a")
            assert row is not None
            assert row.due_us - base.clock_us() == pytest.approx(1_000_000, abs=5_000)
        link.mode = "before"
        await asyncio.sleep(5)
        link.mode = ""

        assert site.statistics().store_errors == 1


class SteppedStore(MemoryStore):
    """A store whose clock is ahead by `step_us`."""

    step_us = 0

    def clock_us(self) -> int:
        """Return the time with the step."""
        return super().clock_us() + self.step_us


class RemoteStore(Cut):
    """A connection to a store whose clock is known only from answers."""

    def clock_us(self) -> Any:
        """Return None, as a database on a server does."""
        return None


@pytest.mark.parametrize("clock", ["local", "remote"])
@pytest.mark.parametrize("hours", [1, -1])
async def test_a_clock_that_is_set_moves_what_is_due(hours: int, clock: str) -> None:
    """After a step of an hour either way, no timer is lost or early on the store's clock."""
    base, log = SteppedStore(), Log()
    store: Store = base if clock == "local" else RemoteStore(base)
    names = ("30", "90", "150")
    async with timers_on(store, log, window=7200, lease=600) as timers:
        start_us = base.clock_us()
        for name in names:
            await timers.schedule(name, "h", due=timedelta(minutes=int(name)))
        await asyncio.sleep(60)
        base.step_us = hours * 3_600_000_000
        for _ in range(44):
            await asyncio.sleep(300)
            passed = (base.clock_us() - start_us) / 60e6
            assert all(int(name) <= passed for name in log.names)
            # The step is noticed at the renewal of the leases, after a third of their length.
            assert {name for name in names if int(name) < passed - 4} <= set(log.names)
    assert tuple(log.names) == names


@pytest.mark.parametrize("clock", ["local", "remote"])
async def test_after_a_clock_was_set_back_an_owner_gets_the_changes_of_others(clock: str) -> None:
    """It reads its timers again: others leave it no changes of timers as late as it had read."""
    base, log = SteppedStore(), Log()
    store: Store = base if clock == "local" else RemoteStore(base)
    async with timers_on(store, log, window=60, lease=10) as owner:
        await owner.schedule("kept", "h", due=timedelta(minutes=3))
        await owner.schedule("cancelled", "h", due=timedelta(seconds=90))
        await asyncio.sleep(40)
        base.step_us = -3_600_000_000
        await asyncio.sleep(10)
        async with timers_on(base, log, window=60, lease=10) as other:
            await other.schedule("new", "h", due=timedelta(minutes=5))
            assert await other.cancel("cancelled")
            assert other.statistics().partitions == 0
        await asyncio.sleep(4000)

    assert log.names == ["new", "kept"]
    assert log.times == [pytest.approx(350, abs=0.01), 3780]


async def test_a_foreign_cancel_is_true_only_outside_of_the_lease() -> None:
    """A timer that is due within the lease may fire before its owner reads the change."""
    store, log = MemoryStore(), Log()
    async with timers_on(store, log, lease=10) as owner:
        async with timers_on(store, Log(), lease=10) as other:
            assert other.statistics().partitions == 0
            await owner.schedule("near", "h", due=5 * SECOND)
            await owner.schedule("far", "h", due=50 * SECOND)

            assert not await other.cancel("near")
            assert await other.cancel("far")
            assert not await other.cancel("far")
        await asyncio.sleep(100)

    assert log.names == []  # the hint was also in time for the near timer


@pytest.mark.parametrize("mode", ["before", "after"])
async def test_a_store_that_fails_stops_nothing_for_good(mode: str) -> None:
    """Calls raise; after the failure every timer fires, and those of failed calls may fire."""
    store, log = Cut(MemoryStore()), Log()
    async with timers_on(store, log, lease=9) as timers:
        await timers.schedule_many(NewTimer(f"t{n}", "h", n * SECOND) for n in range(100))
        await asyncio.sleep(10)
        store.mode = mode
        with pytest.raises(StoreError, match="cut off"):
            await timers.schedule("lost", "h", due=50 * SECOND)
        with pytest.raises(StoreError):
            await timers.cancel("t90")
        await asyncio.sleep(30)
        while_cut = len(log.fires)
        assert while_cut <= 30  # without a lease, no timer fires
        store.mode = ""
        await asyncio.sleep(100)

        fired = set(log.names)
        missing = {f"t{n}" for n in range(100)} - fired
        assert missing == (set() if mode == "before" else {"t90"})
        assert ("lost" in fired) == (mode == "after")
        assert (await timers.summary()).pending == 0
        assert timers.statistics().store_errors > 0
        by_name: dict[str, set[str]] = {}
        for fire in log.fires:
            by_name.setdefault(fire.name, set()).add(fire.id)
        assert all(len(ids) == 1 for ids in by_name.values())


async def test_partitions_are_counted_while_their_lease_lasts() -> None:
    """Each partition has one owner in the counts of all processes, also if one is cut off."""
    base = MemoryStore()
    store = Cut(base)
    async with timers_on(store, Log(), lease=9) as cut:
        for _ in range(90):  # also during the calls of the store
            assert cut.statistics().partitions == base.partitions
            await asyncio.sleep(0.1)
        store.mode = "before"
        async with timers_on(base, Log(), lease=9) as other:
            await asyncio.sleep(20)
            assert cut.statistics().partitions == 0
            assert other.statistics().partitions == base.partitions
            store.mode = ""
            await asyncio.sleep(20)
            assert cut.statistics().partitions == base.partitions / 2
            assert other.statistics().partitions == base.partitions / 2


async def test_a_timer_whose_commit_fails_after_the_write_fires_in_time() -> None:
    """The caller gets an error, but the store has the timer: its window is read again."""
    store, log = Cut(MemoryStore()), Log()
    async with timers_on(store, log, lease=9) as timers:
        await asyncio.sleep(1)
        due = now() + 3
        store.mode = "after"
        with pytest.raises(StoreError, match="cut off"):
            await timers.schedule("lost", "h", due=3 * SECOND)
        store.mode = ""
        await asyncio.sleep(10)

    assert log.names == ["lost"]
    assert log.times[0] == pytest.approx(due, abs=0.5)


@pytest.mark.parametrize("call", ["changes", "renew"])
@pytest.mark.parametrize("change", ["cancel", "schedule"])
async def test_changes_in_an_answer_that_is_lost_are_read_again(change: str, call: str) -> None:
    """The store hands a change out once, so the owner reads its whole window again."""
    base, log = MemoryStore(partitions=1), Log()
    store = Cut(base)
    async with (
        timers_on(store, log, lease=9, window=60) as owner,
        timers_on(base, Log(), lease=9, window=60) as other,
    ):
        await owner.schedule("a", "h", due=40 * SECOND)
        if call == "renew":
            base.unsubscribe(store.hint)
        store.mode = "after"
        if change == "cancel":
            assert await other.cancel("a")
        else:
            await other.schedule("b", "h", due=20 * SECOND)
        await asyncio.sleep(0.5 if call == "changes" else 4)
        assert owner.statistics().store_errors > 0
        store.mode = ""
        await asyncio.sleep(60)

    assert log.names == ([] if change == "cancel" else ["b", "a"])


async def test_a_hint_after_a_failed_reading_of_changes_does_not_stop_firing() -> None:
    """The next timer fires in time, not after the renewal, which is a third of the lease away."""
    store, log = Cut(MemoryStore()), Log()
    async with timers_on(store, log, lease=9000, window=60) as timers:
        await timers.schedule("a", "h", due=10 * SECOND)
        store.mode = "before"
        store.hint()
        await asyncio.sleep(1)
        store.mode = ""
        store.hint()
        await asyncio.sleep(20)

    assert log.times == [10]


async def test_a_page_that_is_too_large_for_the_store_is_read_in_parts() -> None:
    """For example because of large payloads; before, no timer of its partitions fired."""

    class Narrow(MemoryStore):
        async def page(
            self, cursors: Sequence[Cursor], until_us: int, limit: int
        ) -> list[list[Row]]:
            pages = await super().page(cursors, until_us, limit)
            if sum(map(len, pages)) > 10:
                raise StoreError("too much for one answer")
            return pages

    store, log = Narrow(), Log()
    async with timers_on(store, log) as timers:
        await timers.schedule_many(NewTimer(f"{n}", "h", SECOND) for n in range(500))
    async with timers_on(store, log) as timers:
        await asyncio.sleep(600)

        assert len(log.fires) == len(set(log.names)) == 500


async def test_a_stalled_owner_does_no_harm() -> None:
    """The store refuses the outcomes of an owner that has not noticed the end of its lease."""
    base = MemoryStore(partitions=1)
    store, first, second = Cut(base), Log(), Log()
    ended = asyncio.Event()

    async def slow(fire: Fire) -> None:
        first(fire)
        await ended.wait()

    async with timers_on(store, slow, lease=9) as stalled:
        await stalled.schedule("a", "h", due=SECOND)
        await asyncio.sleep(2)
        store.mode = "before"
        async with timers_on(base, second, lease=9) as heir:
            await asyncio.sleep(20)
            assert second.names == ["a"]
            assert heir.statistics().lease_changes == 1
            await heir.schedule("a", "h", due=100 * SECOND)
            store.mode = ""
            ended.set()
            await asyncio.sleep(1)
            assert first.fires[0].id == second.fires[0].id
            assert second.fires[0].epoch == first.fires[0].epoch + 1
            assert (await heir.get("a")) is not None
            assert stalled.statistics().acknowledged == 0
            with pytest.raises(TypeError, match="no transactions"):
                await first.fires[0].ack_in(None)


async def test_an_owner_whose_commit_waits_stops_firing_at_the_end_of_its_lease(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The renewal waits for the commit, and another process may own the timers by then."""
    store, log = Stalled(MemoryStore()), Log()
    async with timers_on(store, log, lease=9) as timers:
        await timers.schedule("near", "h", due=5 * SECOND)
        await timers.schedule("far", "h", due=15 * SECOND)
        store.stalled_until = now() + 20
        waiting = asyncio.create_task(timers.schedule("later", "h", due=DAY))
        await asyncio.sleep(19)
        assert log.names == ["near"]

        await asyncio.sleep(2)
        assert log.names == ["near", "far"]
        assert await waiting
        assert caplog.text.count("aiowheel.durable_lease_ended") == 1


async def test_an_outcome_is_written_again_after_an_error_of_the_store() -> None:
    """The fire is not repeated."""
    store, log = Cut(MemoryStore()), Log()
    async with timers_on(store, log, lease=9) as timers:
        await timers.schedule("a", "h", due=SECOND)
        store.mode = "before"
        await asyncio.sleep(2)
        assert log.names == ["a"]
        store.mode = ""
        await asyncio.sleep(20)

        assert log.names == ["a"]
        assert (await timers.summary()).pending == 0


async def test_after_the_end_of_its_lease_an_owner_reads_its_timers_again() -> None:
    """The store may have lost a commit meanwhile, although the owner's calls only had to wait."""
    base, log = MemoryStore(partitions=1), Log()
    store = Stalled(base)
    async with timers_on(store, log, lease=9) as timers:
        await timers.schedule("a", "h", due=SECOND)
        base.stop_syncing()
        await asyncio.sleep(2)
        assert log.names == ["a"]
        store.stalled_until = now() + 20
        base.crash()  # the timer is pending again
        await asyncio.sleep(30)

        assert log.names == ["a", "a"]
        assert log.fires[0].id == log.fires[1].id
        assert (await timers.summary()).pending == 0
        assert timers.statistics().store_errors == 0


async def test_after_a_crash_between_two_calls_an_owner_reads_its_timers_again() -> None:
    """No call fails and no lease ends, but the store may have lost commits."""
    base, log = MemoryStore(partitions=1), Log()
    async with timers_on(base, log, lease=9000, window=60) as timers:
        await timers.every("tick", "h", 4 * SECOND)
        await timers.schedule("a", "h", due=5 * SECOND)
        base.stop_syncing()
        await asyncio.sleep(6)
        assert log.names == ["tick", "a"]
        base.crash()  # both are pending again
        await asyncio.sleep(3)

        assert sorted(log.names[2:]) == ["a", "tick", "tick"]
        first, again, second = (fire for fire in log.fires if fire.name == "tick")
        assert first.id == again.id != second.id
        assert len({fire.id for fire in log.fires if fire.name == "a"}) == 1
        assert timers.statistics().store_errors == 0


async def test_a_timer_that_gets_the_id_of_a_lost_one_fires_beside_it() -> None:
    """After a failover to a replica that lags, the numbers of the ids continue from an old one."""
    store, log, ended = MemoryStore(partitions=1), Log(), asyncio.Event()

    async def slow(fire: Fire) -> None:
        log(fire)
        if fire.name == "lost":
            await ended.wait()

    async with timers_on(store, slow, lease=9000) as timers:
        store.stop_syncing()
        await timers.schedule("lost", "h", due=timedelta(0))
        await asyncio.sleep(1)
        store.crash()
        store._last_id = 0
        await asyncio.sleep(1)
        await timers.schedule("a", "h", due=SECOND)
        await asyncio.sleep(2)
        assert log.names == ["lost", "a"]
        assert log.fires[0].id == log.fires[1].id
        store._last_id = 0
        await timers.schedule("b", "h", due=3 * SECOND)
        ended.set()  # the settlement of the lost fire must not end this timer
        await asyncio.sleep(5)

        assert log.names == ["lost", "a", "b"]
        assert timers.statistics().in_flight == 0
        assert (await timers.summary()).pending == 0


async def test_a_timer_that_a_crash_has_restored_fires_although_a_newer_one_has_fired() -> None:
    """The newer one ends while the restored one is read, which looks like an outdated page."""
    read, released, ended = asyncio.Event(), asyncio.Event(), asyncio.Event()

    class Held(Cut):
        async def page(
            self, cursors: Sequence[Cursor], until_us: int, limit: int
        ) -> list[list[Row]]:
            pages = await super().page(cursors, until_us, limit)
            if any(row.payload == b"old" for rows in pages for row in rows):
                read.set()
                await released.wait()
            return pages

    base, log = MemoryStore(partitions=1), Log()

    async def slow(fire: Fire) -> None:
        log(fire)
        await ended.wait()

    store = Held(base)
    async with timers_on(store, slow, lease=9, window=60) as timers:
        await timers.schedule("a", "h", due=50 * SECOND, payload=b"old")
        base.stop_syncing()
        await timers.schedule("a", "h", due=SECOND, payload=b"new")
        await asyncio.sleep(2)
        base.crash()
        store.mode = "before"
        with pytest.raises(StoreError):
            await timers.cancel("b")  # the timers are read again
        store.mode = ""
        await read.wait()
        ended.set()
        await asyncio.sleep(1)
        released.set()
        await asyncio.sleep(60)

        assert [fire.payload for fire in log.fires] == [b"new", b"old"]


async def test_one_bad_row_fails_alone() -> None:
    """The other rows of the same commit are written."""

    class Picky(MemoryStore):
        async def commit(self, owner: str, operations: Sequence[Operation]) -> list[Result]:
            if any(getattr(each, "payload", b"") == b"bad" for each in operations):
                raise BadRowError("refused")
            return await super().commit(owner, operations)

    async with timers_on(Picky(), Log()) as timers:
        results = await asyncio.gather(
            *(
                timers.schedule(f"t{n}", "h", due=DAY, payload=b"bad" if n % 7 == 3 else b"good")
                for n in range(50)
            ),
            return_exceptions=True,
        )

        for number, result in enumerate(results):
            assert isinstance(result, BadRowError) if number % 7 == 3 else result is True


async def test_an_error_whose_text_the_database_cannot_store_is_a_dead_letter() -> None:
    """A database may have another encoding than UTF-8; the dead letter has a text of its own."""

    class Ascii(MemoryStore):
        async def commit(self, owner: str, operations: Sequence[Operation]) -> list[Result]:
            if not all((getattr(each, "error", None) or "").isascii() for each in operations):
                raise BadRowError("no such character")
            return await super().commit(owner, operations)

    timers = DurableTimers(Ascii())

    @timers.handler("h", retry=Retry(1))
    def fail(_fire: Fire) -> None:
        raise ValueError("\u2603")

    async with timers:
        await timers.schedule("a", "h", due=SECOND)
        await asyncio.sleep(2)

        errors = [letter.error async for letter in timers.dead_letters()]
        assert errors == ["the error has no storable text"]
        assert timers.statistics().in_flight == 0


@pytest.mark.parametrize("due", [300 * SECOND, None])
async def test_a_recurrence_that_this_machine_cannot_compute_can_be_replaced(
    due: timedelta | None, caplog: pytest.LogCaptureFixture
) -> None:
    """The new timer fires, and a cancelled one is not computed again."""
    store, log = MemoryStore(), Log()
    await store.open()
    rule = '{"cron": "0 3 * * *", "missed": "all", "tz": "Mars/Olympus"}'
    await store.commit("", [Put("a", "h", 0, b"", rule)])
    async with timers_on(store, log) as timers:
        await asyncio.sleep(61)
        assert caplog.text.count("durable_bad_recurrence") == 2
        if due:
            await timers.schedule("a", "h", due=due)
        else:
            await timers.cancel("a")
        await asyncio.sleep(400)

        assert log.times == ([361] if due else [])
        assert caplog.text.count("durable_bad_recurrence") == 2


@pytest.mark.parametrize("computation", ["to_fire", "next_after"])
async def test_a_recurrence_that_cannot_be_computed_holds_nothing(
    computation: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No fire is in flight, the other timers fire, and closing does not wait."""

    def fail(*_: object) -> None:
        raise OverflowError("year 0")

    monkeypatch.setattr(Recurrence, computation, fail)
    store, log = MemoryStore(), Log()
    async with timers_on(store, log) as timers:
        await timers.every("bad", "h", 3600, first=SECOND)
        await timers.schedule("good", "h", due=SECOND)
        await asyncio.sleep(2)

        assert log.names == ["good"]
        assert timers.statistics().in_flight == 0
        await timers.aclose()
        assert now() == 2


async def test_closing_waits_for_handlers_and_then_cancels_them() -> None:
    """A fire whose handler was cancelled is repeated with the same id."""
    store, ids, ended = MemoryStore(), list[str](), list[str]()

    async def handler(fire: Fire) -> None:
        ids.append(fire.id)
        await asyncio.sleep(5 if fire.name == "short" else 500)
        ended.append(fire.name)

    async with timers_on(store, handler) as timers:
        await timers.schedule("short", "h", due=SECOND)
        await timers.schedule("long", "h", due=SECOND)
        await asyncio.sleep(2)
        await asyncio.gather(timers.aclose(drain=20), timers.aclose())
        assert ended == ["short"]
        assert now() == 22
    with pytest.raises(DurableTimersClosedError):
        await timers.schedule("x", "h", due=SECOND)
    async with timers_on(store, handler):
        await asyncio.sleep(600)

    assert ended == ["short", "long"]
    assert ids[1] == ids[2]
    assert timers.closed


async def test_closing_does_not_wait_for_a_commit_that_hangs() -> None:
    """It ends after the time for handlers and the lease; the call that waits raises."""

    class Hanging(MemoryStore):
        async def commit(self, owner: str, operations: Sequence[Operation]) -> list[Result]:
            await asyncio.Event().wait()
            raise AssertionError

    async with timers_on(Hanging(), Log(), lease=9) as timers:
        waiting = asyncio.create_task(timers.schedule("a", "h", due=SECOND))
        await asyncio.sleep(1)
        await timers.aclose(drain=5)
        with pytest.raises(DurableTimersClosedError):
            await waiting

    assert now() <= 1 + 5 + 9


async def test_timers_that_are_cancelled_while_they_open_give_up_their_partitions() -> None:
    """Otherwise no process fires the timers until the lease ends."""

    class Slow(MemoryStore):
        """A store whose renewals are answered late."""

        async def renew(self, *arguments: Any, **options: Any) -> Leased:
            leased = await super().renew(*arguments, **options)
            await asyncio.sleep(10)
            return leased

    store = Slow()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(5), timers_on(store, Log()):
            pass

    async with timers_on(store, Log()) as timers:
        assert timers.statistics().partitions == store.partitions


async def test_closed_timers_can_be_entered_again() -> None:
    """The handlers stay, the statistics go on, and the partitions have another owner."""
    store, log, owners = MemoryStore(), Log(), set[str]()
    timers = timers_on(store, log)
    for name in ("a", "b"):
        async with timers:
            owners.add(timers.owner)
            assert not timers.closed
            with pytest.raises(RuntimeError, match="must be closed before"):
                await timers.__aenter__()
            await timers.schedule(name, "h", due=SECOND)
            await asyncio.sleep(2)
        assert timers.closed
        with pytest.raises(DurableTimersClosedError):
            await timers.schedule("x", "h", due=SECOND)

    assert log.names == ["a", "b"]
    assert timers.statistics().fired == 2
    assert len(owners) == 2
    assert (await store.summary()).owners == {"": store.partitions}


@pytest.mark.parametrize("mode", ["before", "after"])
async def test_timers_whose_opening_has_failed_can_be_entered_again(mode: str) -> None:
    """A program waits for its database without registering its handlers again."""
    store, log = Cut(MemoryStore()), Log()
    timers = timers_on(store, log, lease=9)
    store.mode = mode
    for _ in range(2):
        with pytest.raises(StoreError, match="cut off"):
            await timers.__aenter__()
        assert not timers.closed
    store.mode = ""
    async with timers:
        await timers.schedule("a", "h", due=SECOND)
        await asyncio.sleep(20)

    assert log.names == ["a"]


async def test_timers_that_are_interrupted_while_they_release_can_be_entered_again() -> None:
    """As by Ctrl-C, at which `asyncio.run` cancels all tasks."""

    class Slow(MemoryStore):
        is_slow = True

        async def release(self, owner: str) -> None:
            if self.is_slow:
                await asyncio.sleep(3600)
            await super().release(owner)

    store = Slow()
    timers = DurableTimers(store)

    async def enter_and_leave() -> None:
        async with timers:
            pass

    leaving = asyncio.create_task(enter_and_leave())
    await asyncio.sleep(1)
    for task in asyncio.all_tasks() - {asyncio.current_task()}:
        task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await leaving
    store.is_slow = False

    await enter_and_leave()
    await timers.aclose()


async def test_timers_that_are_closed_while_they_open_can_be_entered_again() -> None:
    """They can be entered once the first opening has ended."""
    store = Stalled(MemoryStore())
    store.stalled_until = now() + 10
    timers = timers_on(store, Log())
    entering = asyncio.create_task(timers.__aenter__())
    await asyncio.sleep(1)
    for _ in range(2):
        with pytest.raises(RuntimeError, match="must be closed before"):
            await timers.__aenter__()
        await timers.aclose()
    with pytest.raises(DurableTimersClosedError, match="while they were opened"):
        await entering
    assert timers.closed

    async with timers:
        assert timers.statistics().partitions == store.partitions


@pytest.mark.parametrize("grouped", [False, True])
async def test_a_handler_that_calls_closed_timers_is_repeated_after_a_restart(
    *, grouped: bool
) -> None:
    """Its fire is neither a failed attempt nor a dead letter."""
    store, fires = MemoryStore(), list[Fire]()

    async def handler(fire: Fire) -> None:
        fires.append(fire)
        await asyncio.sleep(5)
        following = timers.schedule("next", "next", due=SECOND)
        if grouped:
            async with asyncio.TaskGroup() as group:
                group.create_task(following)
        else:
            await following

    def opened() -> DurableTimers:
        timers = DurableTimers(store)
        timers.handler("h", retry=Retry(1))(handler)
        timers.handler("next")(Log())
        return timers

    async with opened() as timers:
        await timers.schedule("first", "h", due=SECOND)
        await asyncio.sleep(2)
    async with opened() as timers:
        await asyncio.sleep(60)
        assert timers.statistics().acknowledged == 2

    assert [(fire.name, fire.attempt) for fire in fires] == [("first", 1)] * 2
    assert fires[0].id == fires[1].id
    assert (await store.summary()).dead == 0


async def test_a_list_that_is_read_while_the_timers_are_closed_ends_with_an_error() -> None:
    """Another page would open the store again."""
    async with timers_on(MemoryStore(), Log()) as timers:
        await timers.schedule_many(NewTimer(f"{n}", "h", DAY) for n in range(1001))
        pending = timers.pending()
        assert (await anext(pending)).name == "0"
    with pytest.raises(DurableTimersClosedError):
        assert len([row async for row in pending]) < 1000


async def test_a_timer_of_the_caller_fires_and_stays_open() -> None:
    """The timer stays open after the durable timers are closed."""
    log = Log()
    async with Timer(tick=0.5) as timer:
        async with timers_on(MemoryStore(), log, timer=timer) as timers:
            await timers.schedule("a", "h", due=timedelta(seconds=1.1))
            await asyncio.sleep(3)
        assert log.times == [1.5]
        assert not timer.closed


async def test_durable_timers_can_be_closed_after_their_timer() -> None:
    """Pending timers stay in the store; a running handler is cancelled and its fire repeated."""
    store, log = MemoryStore(), Log()
    begun = asyncio.Event()

    async def linger(fire: Fire) -> None:
        begun.set()
        await asyncio.sleep(3600)

    timer = await Timer().__aenter__()
    timers = timers_on(store, linger, timer=timer)
    async with timers:
        await timers.schedule("now", "h", due=timedelta(0))
        await timers.schedule("later", "h", due=SECOND)
        await begun.wait()
        await timer.aclose()
    assert timers.closed

    async with timers_on(store, log):
        await asyncio.sleep(2)
    assert sorted(log.names) == ["later", "now"]


async def test_after_its_timer_was_closed_a_process_fires_nothing() -> None:
    """Not even a timer that is due at once; all of them fire after a restart."""
    store, log = MemoryStore(), Log()
    timer = await Timer().__aenter__()
    async with timers_on(store, log, timer=timer) as timers:
        await timer.aclose()
        for name, seconds in (("past", -5), ("now", 0), ("soon", 1)):
            assert await timers.schedule(name, "h", due=timedelta(seconds=seconds))
        await asyncio.sleep(5)
        assert log.names == []

    async with timers_on(store, log):
        await asyncio.sleep(1)
    assert log.names == ["past", "now", "soon"]


async def test_a_timer_that_is_not_open_is_refused() -> None:
    """Overdue timers would fire, although their handlers cannot be retried or limited in time."""
    store, log = MemoryStore(), Log()
    closed = await Timer().__aenter__()
    await closed.aclose()

    for timer in (closed, Timer()):
        with pytest.raises(TimerClosedError):
            await timers_on(store, log, timer=timer).__aenter__()


async def test_calls_still_end_after_the_timer_was_closed() -> None:
    """They change the store, also after a settlement has failed; a restart fires the timers."""
    store, log = Cut(MemoryStore()), Log()
    gate = asyncio.Event()

    async def wait(_fire: Fire) -> None:
        await gate.wait()

    timer = await Timer().__aenter__()
    async with timers_on(store, wait, timer=timer) as timers:
        await timers.schedule("a", "h", due=timedelta(0))
        await timers.schedule("b", "h", due=SECOND)
        await asyncio.sleep(0.1)
        await timer.aclose()
        store.mode = "before"
        gate.set()
        await asyncio.sleep(1)
        store.mode = ""
        async with asyncio.timeout(10):
            assert await timers.schedule("c", "h", due=SECOND)
            assert await timers.cancel("b")

    async with timers_on(store, log):
        await asyncio.sleep(2)
    assert sorted(log.names) == ["a", "c"]


async def test_an_acknowledged_fire_is_stale_the_second_time() -> None:
    """The second call of `ack_in` raises; the store of the test settles at once."""
    raised: list[str] = []

    async def handler(fire: Fire) -> None:
        await fire.ack_in(None)
        try:
            await fire.ack_in(None)
        except StaleFireError as error:
            raised.append(str(error))

    async with timers_on(Transactional(MemoryStore()), handler) as timers:
        await timers.schedule("a", "h", due=SECOND)
        await asyncio.sleep(5)

        assert len(raised) == 1
        assert timers.statistics().acknowledged == 1


@pytest.mark.parametrize("attempts", [1, 2])
@pytest.mark.parametrize("end", ["acknowledged", "cancelled", "replaced"])
async def test_an_error_after_the_end_of_a_fire_is_logged_by_an_event_of_its_own(
    end: str, attempts: int, caplog: pytest.LogCaptureFixture
) -> None:
    """The fire gets neither a retry nor a dead letter, so no event says that it does."""
    timers = DurableTimers(Transactional(MemoryStore()))

    @timers.handler("h", retry=Retry(attempts, backoff=2))
    async def handler(fire: Fire) -> None:
        if end == "acknowledged":
            await fire.ack_in(None)
        elif end == "cancelled":
            assert not await timers.cancel("a")
        else:
            await timers.schedule("a", "h", due=DAY)
        raise ValueError("too late")

    async with timers:
        await timers.schedule("a", "h", due=SECOND)
        await asyncio.sleep(60)
        statistics = timers.statistics()

    assert (statistics.fired, statistics.retried, statistics.dead) == (1, 0, 0)
    assert statistics.acknowledged == (end == "acknowledged")
    (text,) = [record.getMessage() for record in caplog.records]
    fields = "timer='a' fire='1.1' attempt=1 error=\"ValueError('too late')\""
    assert text == f"aiowheel.durable_handler_failed {fields}"


async def test_an_error_after_a_takeover_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    """The other process repeats the fire; the error of this process is no retry."""
    base, log = MemoryStore(partitions=1), Log()
    store = Stalled(base)

    async def slow(_fire: Fire) -> None:
        await asyncio.sleep(30)
        raise ValueError("too late")

    async with timers_on(store, slow, lease=9) as stalled:
        await stalled.schedule("a", "h", due=SECOND)
        await asyncio.sleep(2)
        store.stalled_until = now() + 30
        async with timers_on(base, log, lease=9):
            await asyncio.sleep(60)
            assert log.names == ["a"]
            assert stalled.statistics().retried == 0

    text = "\n".join(caplog.messages)
    assert text.count("aiowheel.durable_handler_failed") == text.count("too late") == 1
    assert "aiowheel.durable_retry" not in text


async def test_an_attempt_that_a_dead_store_cannot_count_is_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The event of a retry or a dead letter comes with the commit of it."""
    store = Cut(MemoryStore())

    def fail(_fire: Fire) -> None:
        raise ValueError("no")

    async with timers_on(store, fail, lease=9) as timers:
        await timers.schedule("a", "h", due=SECOND)
        store.mode = "before"
        await asyncio.sleep(2)
        assert timers.statistics().fired == 1
        assert "ValueError" not in caplog.text
        store.mode = ""
        await asyncio.sleep(60)

    assert caplog.text.count("aiowheel.durable_retry") == timers.statistics().retried == 2
    assert caplog.text.count("aiowheel.durable_dead_letter") == timers.statistics().dead == 1
    assert "\n".join(caplog.messages).count("ValueError") == 3


def broken(_fire: Fire) -> None:
    """Fail, as a handler."""
    raise ValueError("no")


async def awaits_broken(fire: Fire) -> None:
    """Fail after a while, as a handler."""
    await asyncio.sleep(1)
    broken(fire)


@pytest.mark.parametrize("handler", [broken, awaits_broken])
async def test_the_log_has_the_traceback_of_a_handler(
    handler: Callable[[Fire], object], caplog: pytest.LogCaptureFixture
) -> None:
    """The `repr` of an error does not say which line raised it."""
    async with timers_on(MemoryStore(), handler) as timers:
        await timers.schedule("a", "h", due=SECOND)
        await asyncio.sleep(60)

    events = [record.getMessage().split()[0] for record in caplog.records]
    assert events == ["aiowheel.durable_retry"] * 2 + ["aiowheel.durable_dead_letter"]
    for record in caplog.records:
        assert record.exc_info is not None
        assert traceback.extract_tb(record.exc_info[2])[-1].name == "broken"


async def test_a_failed_fire_is_freed_without_the_collector(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A traceback refers to the fire, so the fire must not keep the error after the log."""

    class OwnedError(Exception):
        """An error that can be observed."""

    caplog.set_level(logging.CRITICAL, "aiowheel")  # records keep their errors
    errors: list[weakref.ref[OwnedError]] = []

    async def handler(_fire: Fire) -> None:
        error = OwnedError()
        errors.append(weakref.ref(error))
        try:
            raise error
        finally:
            del error

    async with timers_on(MemoryStore(), handler) as timers:
        await timers.schedule("a", "h", due=SECOND)
        gc.disable()
        try:
            await asyncio.sleep(60)
            assert [error() for error in errors] == [None] * 3
        finally:
            gc.enable()


async def test_the_operation_of_a_cancelled_caller_is_not_executed() -> None:
    """The operation is not executed if its commit has not begun; other calls are not affected."""
    async with timers_on(MemoryStore(), Log()) as timers:
        tasks = [asyncio.create_task(timers.schedule(f"t{n}", "h", due=DAY)) for n in range(3)]
        await asyncio.sleep(0)
        tasks[1].cancel()
        results = await asyncio.gather(*tasks, return_exceptions=True)

        assert results[0] is results[2] is True
        assert isinstance(results[1], asyncio.CancelledError)
        assert [row.name async for row in timers.pending()] == ["t0", "t2"]


WRONG: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"name": ""}, ValueError, "name must be from 1 to 500 characters"),
    ({"name": "a\x00"}, ValueError, "name must be"),
    ({"name": "\ud800"}, ValueError, "name must be"),
    ({"name": "x" * 501}, ValueError, "name must be"),
    ({"name": 3}, TypeError, "name must be a str, got 3"),
    ({"handler": None}, TypeError, "handler must be a str, got None"),
    ({"due": 5}, TypeError, "due must be an aware datetime or a timedelta, got 5"),
    ({"due": datetime(2026, 1, 1)}, ValueError, "with a time zone"),  # noqa: DTZ001
    ({"due": timedelta.max}, ValueError, "due must be from year 1 to 9999"),
    ({"due": datetime.min.replace(tzinfo=EAST)}, ValueError, "due must be from year 1 to 9999"),
    ({"payload": "text"}, TypeError, "payload must be bytes, got 'text'"),
    ({"payload": bytes(2**24 + 1)}, ValueError, "payload must have at most 16777216 bytes"),
    ({"if_exists": "revise"}, ValueError, "if_exists must be one of"),
]


@pytest.mark.parametrize(("wrong", "error", "text"), WRONG)
async def test_a_wrong_argument_is_refused_at_the_call(
    wrong: dict[str, Any], error: type[Exception], text: str
) -> None:
    """The error has the legal range, and no timer is written."""
    right: dict[str, Any] = {"name": "a", "handler": "h", "due": SECOND}
    async with timers_on(MemoryStore(), Log()) as timers:
        with pytest.raises(error, match=text):
            await timers.schedule(**(right | wrong))
        assert (await timers.summary()).pending == 0


async def test_a_wrong_letter_or_prefix_is_named() -> None:
    """The number of a dead letter is no dead letter."""
    wrong: Any = 3
    async with timers_on(MemoryStore(), Log()) as timers:
        with pytest.raises(TypeError, match="letter must be a DeadLetter, got 3"):
            await timers.redrive(wrong)
        with pytest.raises(TypeError, match="prefix must be a str, got 3"):
            await anext(timers.pending(wrong))
        for prefix in ("a\x00", "\ud800"):
            with pytest.raises(ValueError, match="prefix must be without NUL and lone surrogates"):
                await anext(timers.pending(prefix))


async def test_wrong_options_are_refused() -> None:
    """The constructors and the decorator refuse wrong options."""
    made: Any = DurableTimers
    for options, error in (
        ({"store": None}, TypeError),
        ({"timer": 3}, TypeError),
        ({"window": 0}, ValueError),
        ({"lease": -1}, ValueError),
        ({"max_in_flight": 0}, ValueError),
    ):
        with pytest.raises(error, match=next(iter(options))):
            made(**({"store": MemoryStore()} | options))
    timers = timers_on(MemoryStore(), Log())
    with pytest.raises(ValueError, match="'h', which has a handler"):
        timers.handler("h")
    for function in (3, timers.pending):  # `pending` is an asynchronous generator function
        bad_handler: Any = function
        with pytest.raises(TypeError, match="a handler must be"):
            timers.handler("new")(bad_handler)
    with pytest.raises(DurableTimersClosedError):
        await timers.schedule("a", "h", due=SECOND)
    retry: Any = Retry
    for bad in ({"attempts": 0}, {"backoff": -1}, {"jitter": 2}, {"longest": float("inf")}):
        with pytest.raises(ValueError, match=next(iter(bad))):
            retry(**bad)
    with pytest.raises(
        ValueError, match=r"backoff must be from 0 to 2e\+09 seconds, got 2100000000"
    ):
        retry(backoff=2_100_000_000)


def cancelled_but(*calls: asyncio.Task[Any]) -> set[asyncio.Task[Any]]:
    """Cancel all other tasks, and return them, as `asyncio.run` does at its end."""
    others = asyncio.all_tasks() - {asyncio.current_task(), *calls}
    for task in others:
        task.cancel()
    return others


async def test_tasks_that_clean_up_at_the_end_of_a_program_can_use_the_timers() -> None:
    """The tasks of the durable timers start again."""
    log = Log()
    async with timers_on(MemoryStore(), log) as timers:
        await asyncio.wait(cancelled_but())

        await timers.schedule("soon", "h", due=SECOND)
        await timers.schedule("far", "h", due=300 * SECOND)
        await asyncio.sleep(400)
        assert log.names == ["soon", "far"]


async def test_a_commit_that_is_cancelled_with_all_tasks_is_an_error_of_its_call() -> None:
    """The commit may have been made, so the call is not repeated."""
    store = Stalled(MemoryStore())
    async with timers_on(store, Log()) as timers:
        store.stalled_until = now() + 5
        call = asyncio.create_task(timers.schedule("a", "h", due=SECOND))
        await asyncio.sleep(1)
        await asyncio.wait(cancelled_but(call))
        with pytest.raises(StoreError, match="cancelled during the commit"):
            await call
        assert await timers.schedule("b", "h", due=300 * SECOND)


@pytest.mark.parametrize("commit", ["of the timer", "of a fire"])
async def test_a_timer_fires_after_its_commit_was_cancelled_with_all_tasks(commit: str) -> None:
    """The commit was made without an answer, so the timers are read again."""

    class LateAnswers(Link):
        answers_at = 0.0

        async def commit(self, owner: str, operations: Sequence[Operation]) -> list[Result]:
            results = await super().commit(owner, operations)
            await asyncio.sleep(max(0.0, self.answers_at - now()))
            return results

    store, log = LateAnswers(MemoryStore()), Log()
    fires = commit == "of a fire"
    async with timers_on(store, log) as timers:
        if fires:
            await timers.every("a", "h", 10 * SECOND)
            await asyncio.sleep(9.5)
        store.answers_at = now() + 5
        calls = [] if fires else [asyncio.create_task(timers.schedule("a", "h", due=60 * SECOND))]
        await asyncio.sleep(1)
        assert log.names == ["a"] * fires
        await asyncio.wait(cancelled_but(*calls))
        await asyncio.gather(*calls, return_exceptions=True)
        await asyncio.sleep(65)

        assert log.names == ["a"] * (7 if fires else 1)
        assert timers.statistics().store_errors == 1


async def test_statistics_can_be_read_while_timers_become_due() -> None:
    """Another thread may read them, so the loop may run between any two steps of the call."""

    class Interrupted(Entry):
        def __getattribute__(self, name: str) -> Any:
            ready.append(Entry(pending))
            return super().__getattribute__(name)

    async with timers_on(MemoryStore(), Log()) as timers:
        await timers.schedule("a", "h", due=DAY)
        (pending,) = [row async for row in timers.pending()]
        ready = timers._runner.ready
        ready.extend([Interrupted(pending), Entry(pending)])

        assert timers.statistics().ready == 2
        assert len(ready) == 3
        ready.clear()


@pytest.mark.parametrize("count", [2, 3, 5])
async def test_processes_that_have_their_shares_keep_them(count: int) -> None:
    """Shares are rounded up, so some processes own a partition less, which is no reason to move."""
    store = MemoryStore(partitions=16)
    async with AsyncExitStack() as stack:
        processes = [
            await stack.enter_async_context(timers_on(store, Log(), lease=30)) for _ in range(count)
        ]
        await asyncio.sleep(300)
        before = [each.statistics().lease_changes for each in processes]
        await asyncio.sleep(300)

        assert [each.statistics().lease_changes for each in processes] == before
        held = [each.statistics().partitions for each in processes]
        assert (sum(held), max(held)) == (16, -(-16 // count))
        assert not any(part.draining for each in processes for part in each._window.held.values())


async def test_a_cancel_that_the_store_refuses_is_an_error() -> None:
    """PostgreSQL does so for a timer that another transaction holds; False would say it is gone."""

    class Refusing(MemoryStore):
        async def commit(self, owner: str, operations: Sequence[Operation]) -> list[Result]:
            if any(isinstance(each, Cancel) for each in operations):
                return [StoreError("another transaction holds the timer")] * len(operations)
            return await super().commit(owner, operations)

    async with timers_on(Refusing(), Log()) as timers:
        await timers.schedule("a", "h", due=9 * SECOND)
        with pytest.raises(StoreError, match="another transaction holds the timer"):
            await timers.cancel("a")
        assert await timers.get("a") is not None


async def test_hundreds_of_slow_handlers_begin_at_once() -> None:
    """Each slice of fires is followed by the next one, although no fire has ended."""

    async def handler(fire: Fire) -> None:
        await asyncio.sleep(50)

    async with timers_on(MemoryStore(), handler, max_in_flight=1000) as timers:
        await timers.schedule_many(NewTimer(f"{number}", "h", SECOND) for number in range(350))
        await asyncio.sleep(1.1)
        assert timers.statistics().in_flight == 350


@pytest.mark.parametrize("kind", ["plain", "coroutine"])
async def test_handlers_that_block_the_loop_begin_in_slices_of_five_milliseconds(kind: str) -> None:
    """The first slice of coroutine functions has ten: until they run, their time is unknown."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualClockEventLoop)
    turns = [0]  # the fires of each turn of the loop

    def turn() -> None:
        if sum(turns) < 200:
            turns.append(0)
            loop.call_soon(turn)

    def block(_fire: Fire) -> None:
        if not any(turns):
            loop.call_soon(turn)
        turns[-1] += 1
        loop._jump(loop._now_ns + 3_000_000)  # the handler takes 3 ms

    async def block_in_task(fire: Fire) -> None:
        block(fire)

    handler = block if kind == "plain" else block_in_task
    async with timers_on(MemoryStore(), handler) as timers:
        await timers.schedule_many(NewTimer(f"{number}", "h", SECOND) for number in range(200))
        await asyncio.sleep(3)

        turns.sort()
        assert (sum(turns), turns[-1], turns[-2]) == (200, 2 if kind == "plain" else 10, 2)


async def test_the_lateness_of_a_fire_after_an_outage_is_recorded() -> None:
    """No process ran from the due time on for ten seconds."""
    store, log = MemoryStore(), Log()
    async with timers_on(store, log) as timers:
        await timers.schedule("a", "h", due=SECOND)
    await asyncio.sleep(11)
    async with timers_on(store, log) as timers:
        await asyncio.sleep(1)
        assert log.names == ["a"]
        assert timers.statistics().lateness.maximum == pytest.approx(10, rel=0.05)


@pytest.mark.parametrize("kind", ["SQLiteStore", "PostgresStore"])
async def test_a_store_with_a_real_clock_is_refused_in_virtual_time(
    kind: str, tmp_path: Path
) -> None:
    """No timer would fire in time, and the loop would wait for a thread or a server each time."""
    path = tmp_path / "app.db"
    if kind == "SQLiteStore":
        store: Store = SQLiteStore(path)
    else:
        from aiowheel.durable import PostgresStore

        store = PostgresStore("postgresql://nobody@127.0.0.1:1/none")
    timers = DurableTimers(store)
    text = f"a loop of virtual time needs a MemoryStore, got a {kind}"
    for _ in range(2):
        with pytest.raises(RuntimeError, match=text):
            await timers.__aenter__()

    assert not timers.closed
    assert not path.exists()


async def test_reading_needs_open_timers() -> None:
    """A closed store would open again."""
    timers = timers_on(MemoryStore(), Log())
    async with timers:
        assert await timers.get("a") is None
    with pytest.raises(DurableTimersClosedError):
        await timers.get("a")
    with pytest.raises(DurableTimersClosedError):
        await timers.summary()


def test_the_next_expiry_is_the_earliest_of_other_owners() -> None:
    """At that time a process asks again, to take over the partitions of one that was killed."""
    parts = [(0, "me", 1, 900), (1, "a", 1, 500), (2, "b", 1, 700), (3, "", 1, 0)]

    assert distributed(parts, 3, "me", 100, ()) == ({0: 1, 3: 2}, 2, 500, [3])


class Counting(MemoryStore):
    """A store that counts renewals."""

    renewals = 0

    async def renew(
        self, owner: str, *, lease_us: int, horizon_us: int, give_up: Sequence[int] = ()
    ) -> Leased:
        """Count the call."""
        self.renewals += 1
        return await super().renew(owner, lease_us=lease_us, horizon_us=horizon_us, give_up=give_up)


@asynccontextmanager
async def always_busy(store: Store, seconds: float) -> AsyncGenerator[DurableTimers]:
    """Open a process whose handler takes this time, and in whose partitions it always runs."""

    async def handler(fire: Fire) -> None:
        await asyncio.sleep(seconds)

    async with timers_on(store, handler, lease=30) as timers:
        for number in range(400):
            await timers.schedule(f"{number}", "h", due=number * SECOND)
        await asyncio.sleep(30)
        yield timers


async def test_a_partition_whose_fires_are_shorter_than_a_lease_is_released() -> None:
    """It begins no more fires and waits for their end, so that a second process gets its share."""
    store = MemoryStore(partitions=4)
    async with always_busy(store, 15) as first, timers_on(store, Log(), lease=30) as second:
        await asyncio.sleep(60)
        assert [each.statistics().partitions for each in (first, second)] == [2, 2]


async def test_a_process_that_joins_delays_no_timer_of_an_idle_partition() -> None:
    """Idle partitions are released as soon as they are chosen."""
    store, log = MemoryStore(partitions=4), Log()
    async with timers_on(store, log, lease=30) as first:
        await first.schedule_many(NewTimer(f"{n}", "h", n * SECOND / 20) for n in range(1200))
        await asyncio.sleep(5)
        async with timers_on(store, log, lease=30) as second:
            await asyncio.sleep(60)
            assert [each.statistics().partitions for each in (first, second)] == [2, 2]
            assert len(log.fires) == 1200
            late = [each.statistics().lateness.maximum for each in (first, second)]
            assert max(late) < 0.05


async def test_a_busy_partition_is_released_as_soon_as_it_is_idle() -> None:
    """Its other timers wait for the running handler only; each release takes one renewal."""
    store, log = Counting(partitions=2), Log()
    names = list({part_of(name, 2): name for name in "abcd"}.values())
    ends: list[float] = []

    async def linger(_fire: Fire) -> None:
        await asyncio.sleep(21.3)
        ends.append(now())

    async with timers_on(store, log, lease=30) as first:
        first.handler("linger")(linger)
        await first.schedule_many(NewTimer(name, "linger", SECOND) for name in names)
        await first.schedule_many(NewTimer(f"t{n}", "h", 15 * SECOND) for n in range(20))
        await asyncio.sleep(2)
        async with timers_on(store, log, lease=30):
            renewals = store.renewals
            await asyncio.sleep(25)

            assert len(log.fires) == 20
            assert first.statistics().partitions == 1
            (end,) = set(ends)
            assert max(log.times) < end + 0.05
            assert store.renewals - renewals < 20


async def test_only_the_partitions_beyond_the_share_are_released() -> None:
    """Also at renewals while the chosen ones are still busy."""
    store = MemoryStore(partitions=4)
    async with always_busy(store, 25) as first, timers_on(store, Log(), lease=30):
        for _ in range(600):
            await asyncio.sleep(0.1)
            assert sum(held.draining for held in first._window.held.values()) <= 2
            assert first.statistics().partitions >= 2


async def test_a_fire_that_ends_while_a_page_is_read_is_not_repeated() -> None:
    """The page is older than the outcome, and still has the timer."""

    class SlowPages(MemoryStore):
        pause = 0.0

        async def page(
            self, cursors: Sequence[Cursor], until_us: int, limit: int
        ) -> list[list[Row]]:
            pages = await super().page(cursors, until_us, limit)
            await asyncio.sleep(self.pause)
            return pages

    store, log = SlowPages(), Log()

    async def handler(fire: Fire) -> None:
        log(fire)
        await asyncio.sleep(2)

    async with timers_on(store, handler) as timers:
        await timers.schedule("a", "h", due=SECOND)
        await asyncio.sleep(2)  # the handler runs
        store.pause = 2.0
        timers._leases.suspect()  # the timers are read again
        await asyncio.sleep(10)

        assert log.times == [1]
        assert timers.statistics().acknowledged == 1


# --- unit tests of handlers ------------------------------------------------------------------


async def test_a_handler_can_be_called_with_a_made_fire() -> None:
    """Each attribute has the given value, and `ack_in` needs no database."""
    due = datetime(2031, 5, 1, 12, tzinfo=UTC)
    fire = make_fire("order:7", "remind", payload=b"pay", due=due, attempt=3, id="5.2")

    assert (fire.name, fire.handler, fire.payload) == ("order:7", "remind", b"pay")
    assert (fire.due, fire.attempt, fire.id, fire.acknowledged) == (due, 3, "5.2", False)
    assert (fire.partition, fire.epoch) == (0, 1)
    await fire.ack_in(None)
    assert fire.acknowledged


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ({"due": 5}, TypeError, "due must be an aware datetime, got 5"),
        ({"due": datetime(2031, 5, 1)}, ValueError, "due must be a datetime with a time zone"),  # noqa: DTZ001 - the mistake
        ({"attempt": 0}, ValueError, "attempt must be from 1 to 10000, got 0"),
        ({"payload": "text"}, TypeError, "payload must be bytes, got 'text'"),
        ({"name": 3}, TypeError, "name must be a str, got 3"),
        ({"handler": None}, TypeError, "handler must be a str, got None"),
    ],
)
def test_a_made_fire_with_a_wrong_argument(
    arguments: dict[str, Any], error: type[Exception], text: str
) -> None:
    """The error names the argument."""
    with pytest.raises(error, match=text):
        make_fire(**arguments)
