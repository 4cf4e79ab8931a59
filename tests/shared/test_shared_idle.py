"""A shared key, which any process may touch, falls idle once, in the process that owns it."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from contextvars import ContextVar
from datetime import timedelta
from enum import Enum
from typing import Any

import pytest

from aiowheel import ForeignLoopError, Timer, TimerClosedError, current_timer
from aiowheel.errors import IdleDetectorClosedError, StoreUnavailableError
from aiowheel.shared import CounterPage, SharedIdle
from aiowheel.testing import MemoryCounters

pytestmark = [pytest.mark.one_build, pytest.mark.virtual_time]

TIMEOUT, SLACK = 8.0, 2.0


def now() -> float:
    """Return the virtual time."""
    return asyncio.get_running_loop().time()


class Idle:
    """The calls of `on_idle` in a test: the time, the number of the process, and the key."""

    def __init__(self) -> None:
        self.calls: list[tuple[float, int, str]] = []

    def of(self, process: int) -> Callable[[str], object]:
        """Return the function that records the calls of one process."""
        return lambda key: self.calls.append((now(), process, key))

    @property
    def keys(self) -> list[str]:
        """The keys in the order of their calls."""
        return [key for _, _, key in self.calls]

    def check(self, last_touches: dict[str, float]) -> None:
        """Assert one call for each key, within the slack after its timeout."""
        assert sorted(self.keys) == sorted(last_touches)
        for time, _, key in self.calls:
            assert last_touches[key] + TIMEOUT <= time < last_touches[key] + TIMEOUT + SLACK + 0.1


@asynccontextmanager
async def processes(
    count: int, idle: Idle, store: MemoryCounters | None = None
) -> AsyncGenerator[list[SharedIdle]]:
    """Open this number of processes on one store; the first one opens the store."""
    first = store or MemoryCounters()
    async with AsyncExitStack() as stack:
        yield [
            await stack.enter_async_context(
                SharedIdle(
                    first.beside() if place else first,
                    TIMEOUT,
                    idle.of(place),
                    slack=SLACK,
                    lease=3,
                )
            )
            for place in range(count)
        ]


def kill(process: SharedIdle, store: MemoryCounters) -> None:
    """End a process as by SIGKILL."""
    for task in process._tasks:
        task.cancel()
    process._touches = None
    process._closed = True
    store._listener = None


async def test_a_key_falls_idle_once_whichever_processes_touched_it() -> None:
    """Touches of all processes count, and one process calls `on_idle`."""
    idle = Idle()
    last: dict[str, float] = {}
    async with processes(3, idle) as workers:
        for number in range(200):
            for worker in random.Random(number).sample(workers, 2):
                worker.touch(f"k{number}")
            last[f"k{number}"] = now()
            await asyncio.sleep(0.01)
        await asyncio.sleep(60)
        idle.check(last)
        assert {process for _, process, _ in idle.calls} == {0, 1, 2}
        assert [worker.statistics().keys for worker in workers] == [0, 0, 0]
        assert sum(worker.statistics().idle for worker in workers) == 200
        assert await workers[0]._store.read([]) == (workers[0]._epoch, {})
        assert (await workers[0]._store.scan("idle:")).values == {}


async def test_a_member_of_an_enumeration_is_the_key_that_it_equals() -> None:
    """Its text as a `str` is another one."""

    class Host(str, Enum):  # noqa: UP042 - a StrEnum has its value as its text
        NEAR = "near"

    idle: list[str] = []
    async with SharedIdle(MemoryCounters(), 10, idle.append) as detector:
        detector.touch(Host.NEAR)
        await asyncio.sleep(9)
        detector.touch("near")
        await asyncio.sleep(20)

    assert [(type(key), key) for key in idle] == [(str, "near")]


async def test_touches_in_any_process_keep_a_key_alive() -> None:
    """Another process touches the key each time, shortly before the timeout."""
    idle = Idle()
    async with processes(3, idle) as workers:
        for turn in range(20):
            workers[turn % 3].touch("a")
            await asyncio.sleep(TIMEOUT - 0.1)
        assert idle.calls == []
        last = now() - TIMEOUT + 0.1
        await asyncio.sleep(20)
        idle.check({"a": last})


@pytest.mark.parametrize("seed", range(8))
async def test_no_key_is_early_and_none_is_lost(seed: int) -> None:
    """The rules hold for random touches and discards, while processes start and stop."""
    rng = random.Random(seed)
    idle = Idle()
    expected: list[tuple[str, float]] = []
    last: dict[str, float] = {}
    store = MemoryCounters()
    async with processes(2, idle, store) as steady, AsyncExitStack() as stack:
        workers = list(steady)
        for _ in range(rng.randrange(100, 300)):
            await asyncio.sleep(rng.choice([0.001, 0.1, 1.0]))
            key = f"k{rng.randrange(8)}"
            before = last.get(key)
            if before is not None and TIMEOUT < now() - before < TIMEOUT + SLACK + 0.1:
                continue  # a touch within the slack may be in time
            if before is not None and now() - before >= TIMEOUT + SLACK + 0.1:
                expected.append((key, last.pop(key)))
            worker = rng.choice(workers)
            if rng.random() < 0.15:
                worker.discard(key)
                last.pop(key, None)
            else:
                worker.touch(key)
                last[key] = now()
            if rng.random() < 0.03:
                process = SharedIdle(
                    store.beside(), TIMEOUT, idle.of(len(workers)), slack=SLACK, lease=3
                )
                workers.append(await stack.enter_async_context(process))
            elif rng.random() < 0.03 and len(workers) > 2:
                await workers.pop().aclose()
        await asyncio.sleep(60)
    expected += last.items()
    got = sorted((key, time) for time, _, key in idle.calls)
    assert len(got) == len(expected), (got, sorted(expected))
    for (key, time), (other, touched) in zip(got, sorted(expected), strict=True):
        assert key == other
        assert touched + TIMEOUT <= time < touched + TIMEOUT + SLACK + 0.1


async def test_a_first_touch_is_written_soon_however_long_the_timeout_is() -> None:
    """A touch is not lost if its process is killed shortly after it."""
    async with SharedIdle(MemoryCounters(), 7200, print) as idle:
        idle.touch("first")
        await asyncio.sleep(0.01)
        for number in range(1000):
            idle.touch(f"k{number}")
        assert idle.statistics().values == 1
        await asyncio.sleep(1.5)
        assert (idle.statistics().values, idle.statistics().writes) == (1001, 2)


async def test_touches_share_writes() -> None:
    """A key is written at most twice within the slack, and many keys share a write."""
    idle = Idle()
    async with processes(1, idle) as [worker]:
        for _ in range(1000):
            for number in range(10):
                worker.touch(f"k{number}")
            await asyncio.sleep(0.01)
        statistics = worker.statistics()
    assert statistics.touches == 10_000
    assert 50 <= statistics.values <= 10 * (10 / SLACK * 2 + 1)
    assert statistics.writes <= 10 / SLACK * 8 + 1


async def test_processes_share_the_partitions() -> None:
    """A new process gets its share, and a process that closes leaves its share to the others."""
    idle = Idle()
    async with processes(3, idle) as workers:
        await asyncio.sleep(1)
        assert sorted(each.statistics().partitions for each in workers) == [20, 22, 22]
        held = [part for each in workers for part in each._leases.held]
        assert len(held) == len(set(held)) == 64
        await workers[1].aclose()
        await asyncio.sleep(1)
        assert sorted(each.statistics().partitions for each in workers) == [0, 32, 32]


class Distant(MemoryCounters):
    """A store whose calls of `compare_and_raise` are delayed."""

    way = 0.1

    async def compare_and_raise(
        self, changes: Mapping[str, tuple[int | None, int | None]]
    ) -> tuple[str, set[str]]:
        """Change counters after the delay."""
        await asyncio.sleep(self.way)
        return await super().compare_and_raise(changes)


@asynccontextmanager
async def far_apart(count: int) -> AsyncGenerator[tuple[list[SharedIdle], list[Distant]]]:
    """Open processes that renew their leases every 100 seconds; yield them and their stores."""
    store = Distant()
    stores = [store.beside() for _ in range(count)]
    async with AsyncExitStack() as stack:
        workers = [SharedIdle(each, 1000, print, lease=300) for each in stores]
        for worker in workers[:-1]:
            await stack.enter_async_context(worker)
        await asyncio.sleep(10)
        stack.push_async_exit(workers[-1])
        yield workers, stores


def partitions(workers: list[SharedIdle]) -> list[int]:
    """Return the number of partitions of each process, sorted."""
    return sorted(worker.statistics().partitions for worker in workers)


async def test_two_processes_that_leave_at_once_leave_no_partition_without_an_owner() -> None:
    """Both read the same counter of news, and one writes a second after the other."""
    async with far_apart(4) as ([one, two, three, _], [_, slow, *_]):
        assert partitions([one, two, three]) == [20, 22, 22]
        slow.way = 1.0
        await asyncio.gather(one.aclose(), two.aclose())
        await asyncio.sleep(1)
        assert partitions([three]) == [64]


async def test_two_processes_that_release_at_once_leave_no_partition_without_an_owner() -> None:
    """A third process gets the partitions that two others release."""
    async with far_apart(3) as (workers, [_, slow, _]):
        assert partitions(workers) == [0, 32, 32]
        slow.way = 1.0
        await workers[2].__aenter__()
        await asyncio.sleep(5)
        assert partitions(workers) == [20, 22, 22]


async def test_partitions_released_by_a_write_whose_answer_is_lost_find_an_owner() -> None:
    """The process notifies the others when the store answers again."""
    async with far_apart(2) as (workers, [store, _]):
        write = store.compare_and_raise

        async def lose(changes: Any) -> Any:
            if any(new is None for _, new in changes.values()):
                store.lose_answers(1)
                store.compare_and_raise = write  # type: ignore[method-assign]
            return await write(changes)

        store.compare_and_raise = lose  # type: ignore[method-assign]
        await workers[1].__aenter__()
        await asyncio.sleep(10)
        assert workers[0].statistics().retries == 1
        assert partitions(workers) == [32, 32]


async def test_keys_go_with_their_partitions() -> None:
    """The new owner of a partition calls `on_idle` for keys that it never touched."""
    idle = Idle()
    async with processes(2, idle) as [one, two]:
        for number in range(100):
            one.touch(f"k{number}")
        touched = now()
        await asyncio.sleep(4)
        await one.aclose()
        await asyncio.sleep(20)
        assert two.statistics().idle == 100
        idle.check({f"k{number}": touched for number in range(100)})


async def test_keys_of_a_killed_process_are_taken_over() -> None:
    """The other process takes over after the leases have ended."""
    idle = Idle()
    store = MemoryCounters()
    async with processes(2, idle, store) as [one, two]:
        for number in range(100):
            one.touch(f"k{number}")
        await asyncio.sleep(1)
        assert one.statistics().keys > 0
        kill(one, store)
        await asyncio.sleep(6)
        assert two.statistics().partitions == 64
        await asyncio.sleep(20)
        assert two.statistics().idle == 100
        assert len(idle.keys) == 100


async def test_the_last_touches_of_a_process_that_closes_are_written() -> None:
    """This includes touches within the rest of a key."""
    idle = Idle()
    async with processes(2, idle) as [one, two]:
        one.touch("a")
        await asyncio.sleep(0.5)
        one.touch("a")
        one.touch("b")
        last = now()
        await one.aclose()
        await asyncio.sleep(20)
        idle.check({"a": last, "b": last})
        assert two.statistics().idle == 2


async def test_keys_stay_in_the_store_while_no_process_is_open() -> None:
    """The next process calls `on_idle` for the idle keys, and watches the others."""
    idle = Idle()
    store = MemoryCounters()
    async with processes(1, idle, store) as [worker]:
        worker.touch("a")
    await asyncio.sleep(100)
    async with processes(1, idle, store.beside()) as [worker]:
        await asyncio.sleep(0.1)
        assert idle.keys == ["a"]


async def test_a_discarded_key_is_not_idle() -> None:
    """Older touches of other processes, which are written later, do not make it idle either."""
    idle = Idle()
    store = MemoryCounters()
    async with processes(2, idle, store) as [one, two]:
        two.touch("a")
        await asyncio.sleep(0.1)
        two.touch("a")  # is written in a second
        await asyncio.sleep(0.1)
        one.discard("a")
        one.discard("never touched")
        assert await one.expires("a") is None
        await asyncio.sleep(40)
        assert idle.calls == []
        assert (await store.scan("idle:")).values == {}


@pytest.mark.parametrize("first", ["touch", "discard"])
async def test_the_last_call_within_a_millisecond_counts(first: str) -> None:
    """A touch and a discard in one process within a millisecond keep their order."""
    idle = Idle()
    async with processes(1, idle) as [worker]:
        for call in ("discard", "touch") * 3 if first == "touch" else ("touch", "discard") * 3:
            getattr(worker, call)("a")
        await asyncio.sleep(40)
    assert idle.keys == (["a"] if first == "touch" else [])


async def test_on_idle_may_touch_its_key() -> None:
    """The touch inside `on_idle` watches the key again."""
    keys: list[str] = []

    def on_idle(key: str) -> None:
        keys.append(key)
        if len(keys) < 3:
            idle.touch(key)

    async with SharedIdle(MemoryCounters(), TIMEOUT, on_idle, slack=SLACK) as idle:
        idle.touch("a")
        await asyncio.sleep(100)
    assert keys == ["a"] * 3


async def test_an_error_of_on_idle_goes_to_the_loop() -> None:
    """The other keys are not affected, and a coroutine function is refused."""
    errors: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: errors.append(context))

    async def later() -> None: ...

    def on_idle(key: str) -> object:
        if key == "b":
            return later()
        if key == "c":
            raise asyncio.CancelledError
        raise ValueError(key)

    async with SharedIdle(MemoryCounters(), TIMEOUT, on_idle, slack=SLACK) as idle:
        idle.touch("a")
        idle.touch("b")
        idle.touch("c")
        await asyncio.sleep(100)
        idle.touch("a")
        await asyncio.sleep(100)
        assert idle.statistics().idle == 4
    assert sorted(type(each["exception"]).__name__ for each in errors) == [
        "CancelledError",
        "TypeError",
        "ValueError",
        "ValueError",
    ]
    assert "on_idle failed for the key 'a'" in {each["message"] for each in errors}


async def test_on_idle_runs_in_the_context_of_the_making() -> None:
    """The context is not that of the last touch."""
    variable: ContextVar[str] = ContextVar("variable")
    variable.set("making")
    seen: list[str] = []
    idle = SharedIdle(MemoryCounters(), TIMEOUT, lambda _: seen.append(variable.get()), slack=SLACK)
    variable.set("touching")
    async with idle:
        idle.touch("a")
        await asyncio.sleep(100)
    assert seen == ["making"]


async def test_expires_returns_the_time() -> None:
    """The time is on the timer's clock, for touches of all processes and own unwritten ones."""
    async with processes(2, Idle()) as [one, two]:
        assert await one.expires("a") is None
        one.touch("a")
        assert await one.expires("a") == pytest.approx(now() + TIMEOUT, abs=0.01)
        await asyncio.sleep(1)
        assert await two.expires("a") == pytest.approx(now() - 1 + TIMEOUT, abs=0.01)
        two.touch("a")
        assert await two.expires("a") == pytest.approx(now() + TIMEOUT, abs=0.01)
        await asyncio.sleep(40)
        assert await one.expires("a") is None


# --- faults ---------------------------------------------------------------------------------------


async def test_a_store_that_is_away_makes_keys_late_and_loses_none() -> None:
    """Touches during the outage count."""
    idle = Idle()
    store = MemoryCounters()
    async with processes(2, idle, store) as workers:
        for number in range(20):
            workers[number % 2].touch(f"k{number}")
        await asyncio.sleep(4)
        store.go_down()
        await asyncio.sleep(3)
        workers[0].touch("k0")
        touched = now()
        await asyncio.sleep(6)
        assert idle.calls == []
        store.come_back()
        await asyncio.sleep(3.5)
        assert sorted(idle.keys) == sorted(f"k{number}" for number in range(1, 20))
        await asyncio.sleep(20)
        assert len(idle.keys) == 20
        assert idle.keys[-1] == "k0"
        assert idle.calls[-1][0] >= touched + TIMEOUT
        assert workers[0].statistics().retries > 0


@pytest.mark.parametrize("fault", ["failing calls", "gap", "lost history"])
async def test_touches_that_are_written_late_after_a_fault_count(fault: str) -> None:
    """One process touches all keys shortly before they fall idle, and writes this a second late."""
    idle = Idle()
    store = MemoryCounters()
    async with processes(2, idle, store) as [one, two]:
        write = two._store.raise_to

        async def write_late(values: Mapping[str, int]) -> str:
            await asyncio.sleep(1)
            return await write(values)

        for number in range(40):
            one.touch(f"k{number}")
        await asyncio.sleep(TIMEOUT)
        store.lose_hints()
        if fault == "failing calls":
            store._server.down = True
        elif fault == "gap":
            store.stop_syncing()
        await asyncio.sleep(SLACK - 0.5)
        for number in range(40):
            two.touch(f"k{number}")
        touched = now()
        await asyncio.sleep(0.4)
        two._store.raise_to = write_late  # type: ignore[method-assign]
        if fault == "failing calls":
            store._server.down = False
        elif fault == "gap":
            store.crash()
        else:
            store._server.epoch, store._server.values = "", {}
        await asyncio.sleep(40)
        idle.check({f"k{number}": touched for number in range(40)})


async def test_a_lost_history_loses_no_key() -> None:
    """Each process writes the keys again that it has touched or owned."""
    idle = Idle()
    store = MemoryCounters()
    async with processes(3, idle, store) as workers:
        last: dict[str, float] = {}
        for number in range(60):
            workers[number % 3].touch(f"k{number}")
            last[f"k{number}"] = now()
        await asyncio.sleep(3)
        await workers[2].aclose()
        await asyncio.sleep(1)
        store.lose_history()
        await asyncio.sleep(40)
        idle.check(last)
        assert [each.statistics().epochs for each in workers[:2]] == [1, 1]
        assert sum(each.statistics().partitions for each in workers) == 64


@pytest.mark.parametrize("pause", [0.05, 0.2, 1.0])
async def test_a_history_that_is_lost_again_and_again_loses_no_key(pause: float) -> None:
    """A store under pressure may evict its history until long after the timeout."""
    idle = Idle()
    store = MemoryCounters()
    async with processes(2, idle, store) as workers:
        for number in range(40):
            workers[number % 2].touch(f"k{number}")
        await asyncio.sleep(1)
        end = now() + 3 * TIMEOUT
        new = [f"n{number}" for number in range(20)]
        for place, key in enumerate(new):
            workers[place % 2].touch(key)
        while now() < end:
            store.lose_history()
            await asyncio.sleep(pause)
        await asyncio.sleep(TIMEOUT + SLACK + 5)
        assert sorted(idle.keys) == sorted([f"k{number}" for number in range(40)] + new)


async def test_keys_that_fell_idle_are_not_called_again_after_a_lost_history() -> None:
    """The values that a process carries into a new history end with the call."""
    idle = Idle()
    store = MemoryCounters()
    async with processes(2, idle, store) as workers:
        for number in range(40):
            workers[number % 2].touch(f"k{number}")
        await asyncio.sleep(TIMEOUT - 1)
        store.lose_history()
        await asyncio.sleep(2 * SLACK + 5)
        assert len(idle.keys) == 40
        store.lose_history()
        await asyncio.sleep(2 * TIMEOUT)
        assert len(idle.keys) == 40


async def test_a_key_that_is_called_during_a_long_listing_is_not_carried_further() -> None:
    """Keys fall idle between the pages of a listing."""
    idle = Idle()
    store = MemoryCounters()
    async with processes(1, idle, store) as [worker]:
        for number in range(3_000):
            worker.touch(f"k{number}")
        scan = store.scan

        async def slow_scan(prefix: str, after: str = "", limit: int = 1000) -> CounterPage:
            page = await scan(prefix, after, limit)
            await asyncio.sleep(3)
            return page

        await asyncio.sleep(TIMEOUT - 1)
        store.scan = slow_scan  # type: ignore[method-assign]
        store.lose_history()
        await asyncio.sleep(8)
        called = len(idle.keys)
        assert 0 < called < 3_000
        store.lose_history()
        await asyncio.sleep(3 * TIMEOUT)
        assert len(idle.keys) == len(set(idle.keys)) == 3_000


async def test_lost_hints_are_made_up_for_after_the_gap() -> None:
    """The owner lists the keys again."""
    idle = Idle()
    store = MemoryCounters()
    async with processes(2, idle, store) as [one, two]:
        store.lose_hints()
        for number in range(40):
            two.touch(f"k{number}")
        touched = now()
        await asyncio.sleep(1)
        assert one.statistics().keys == 0
        store.subscribe_again()
        await asyncio.sleep(40)
        assert one.statistics().idle > 0
        idle.check({f"k{number}": touched for number in range(40)})


async def test_answers_that_are_lost_cause_no_second_call() -> None:
    """If the answer to the removal is lost, the key is removed and was reported once."""
    idle = Idle()
    store = MemoryCounters()
    async with processes(1, idle, store) as [worker]:
        worker.touch("a")
        touched = now()
        await asyncio.sleep(TIMEOUT + SLACK - 0.5)

        remove = store.compare_and_raise

        async def lose(changes: Any) -> Any:
            if "idle:" in next(iter(changes)):
                store.lose_answers(1)
                store.compare_and_raise = remove  # type: ignore[method-assign]
            return await remove(changes)

        store.compare_and_raise = lose  # type: ignore[method-assign]
        await asyncio.sleep(20)
        idle.check({"a": touched})
        assert worker.statistics().retries == 1


async def test_a_removal_that_was_not_made_causes_no_second_call() -> None:
    """The process repeats the removal, but not the call of `on_idle`."""
    idle = Idle()
    store = MemoryCounters()
    async with processes(1, idle, store) as [worker]:
        worker.touch("a")
        touched = now()
        await asyncio.sleep(1)
        remove = store.compare_and_raise

        async def fail(changes: Any) -> Any:
            if "idle:" in next(iter(changes)):
                store.compare_and_raise = remove  # type: ignore[method-assign]
                raise StoreUnavailableError("away")
            return await remove(changes)

        store.compare_and_raise = fail  # type: ignore[method-assign]
        await asyncio.sleep(20)
        idle.check({"a": touched})
        assert (await store.scan("idle:")).values == {}


@pytest.mark.parametrize("call", ["compare_and_raise", "read"])
async def test_a_touch_whose_hint_overtakes_an_answer_is_watched(call: str) -> None:
    """The answer reports a removed counter, which the touch has created again."""
    idle = Idle()
    store = MemoryCounters()
    async with processes(2, idle, store) as workers:
        workers[0].touch("a")
        touched = now()
        await asyncio.sleep(1)
        [owner] = [worker for worker in workers if worker.statistics().keys]
        [other] = [worker for worker in workers if worker is not owner]
        answer = getattr(owner._store, call)

        async def overtake(counters: Any) -> Any:
            if "idle:" not in next(iter(counters), ""):
                return await answer(counters)
            setattr(owner._store, call, answer)
            if call == "read":
                await owner._store.forget(counters)
            result = await answer(counters)
            other.touch("a")
            await asyncio.sleep(1)
            return result

        setattr(owner._store, call, overtake)
        await asyncio.sleep(60)
        assert idle.keys == (["a", "a"] if call == "compare_and_raise" else ["a"])
        assert idle.calls[-1][0] >= touched + 2 * TIMEOUT
        assert (await store.scan("idle:")).values == {}


async def test_the_clock_is_that_of_the_store() -> None:
    """A process whose own clock is an hour behind calls `on_idle` at the right time."""

    class Skewed(MemoryCounters):
        async def now_ms(self) -> int:
            return await super().now_ms() + 3_600_000

    idle = Idle()
    async with processes(2, idle, Skewed()) as workers:
        workers[0].touch("a")
        workers[1].touch("b")
        await asyncio.sleep(40)
        idle.check(dict.fromkeys("ab", now() - 40))


async def test_a_clock_that_is_set_keeps_every_key() -> None:
    """If the store's clock is set by a minute, keys may be early or late, but none is lost."""

    class Jumping(MemoryCounters):
        ahead = 0

        async def now_ms(self) -> int:
            return await super().now_ms() + Jumping.ahead

    idle = Idle()
    async with processes(2, idle, Jumping()) as workers:
        for ahead, key in ((60_000, "a"), (0, "b")):
            workers[0].touch(key)
            await asyncio.sleep(0.5)
            Jumping.ahead = ahead
            await asyncio.sleep(20)
        await asyncio.sleep(120)
    assert idle.keys == ["a", "b"]


async def test_many_keys_of_one_moment() -> None:
    """Many keys touched at one moment in two processes take a few writes."""
    idle = Idle()
    async with processes(2, idle) as workers:
        for number in range(25_000):
            workers[number % 2].touch(f"k{number}")
        await asyncio.sleep(5)
        assert sum(worker.statistics().keys for worker in workers) == 25_000
        assert sum(worker.statistics().writes for worker in workers) == 4
        await asyncio.sleep(40)
    assert len(idle.calls) == len(set(idle.keys)) == 25_000


# --- opening, closing, misuse ---------------------------------------------------------------------


async def test_shared_idle_is_used_between_opening_and_closing() -> None:
    """It can be opened once, and a second close does nothing."""
    idle = SharedIdle(MemoryCounters(), TIMEOUT, print)
    with pytest.raises(IdleDetectorClosedError, match="the idle keys are not open"):
        idle.touch("a")
    async with idle:
        idle.touch("a")
    await idle.aclose()
    with pytest.raises(IdleDetectorClosedError, match="the idle keys are closed"):
        idle.discard("a")
    with pytest.raises(IdleDetectorClosedError):
        await idle.expires("a")
    with pytest.raises(RuntimeError, match="opened once"):
        await idle.__aenter__()
    assert idle.statistics().touches == 1
    assert len(current_timer()) == 0
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_a_store_that_does_not_answer_is_an_error_of_opening() -> None:
    """No task is left after the error."""
    store = MemoryCounters()
    store.go_down()
    with pytest.raises(StoreUnavailableError):
        await SharedIdle(store, TIMEOUT, print).__aenter__()
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_closing_that_is_cancelled_leaves_no_task() -> None:
    """The tasks for leases, keys and touches have ended."""
    before = asyncio.all_tasks()
    idle = SharedIdle(MemoryCounters(), TIMEOUT, len, slack=SLACK)
    await idle.__aenter__()
    idle.touch("a")
    await asyncio.sleep(0.01)
    idle.touch("b")  # during the pause of the writer
    await asyncio.sleep(0.01)
    assert len(asyncio.all_tasks() - before) == 3
    closing = asyncio.create_task(idle.aclose())
    await asyncio.sleep(0)
    closing.cancel()
    await asyncio.wait([closing])
    await asyncio.sleep(0.01)
    assert asyncio.all_tasks() == before


async def test_closing_while_the_store_is_away_ends() -> None:
    """Closing ends, and the other process takes over after the leases have ended."""
    idle = Idle()
    store = MemoryCounters()
    async with processes(2, idle, store) as [one, two]:
        one.touch("a")
        await asyncio.sleep(1)
        store.go_down()
        one.touch("a")
        await one.aclose()
        store.come_back()
        await asyncio.sleep(20)
        assert two.statistics().partitions == 64
        assert idle.keys == ["a"]


@pytest.mark.parametrize(
    ("arguments", "options", "text"),
    [
        ((0.05, print), {}, "timeout must be from 0.1 to 1e[+]09 seconds, got 0.05"),
        ((float("inf"), print), {}, "timeout must be from 0.1 to 1e[+]09 seconds, got inf"),
        ((8, print), {"slack": 0.01}, "slack must be from 0.08 to 8 seconds, got 0.01"),
        ((8, print), {"slack": 9}, "slack must be from 0.08 to 8 seconds, got 9"),
        ((8, print), {"lease": 0}, "lease must be from 0.5 to 1e[+]09 seconds, got 0"),
        ((8, print), {"name": "A"}, "name must be 1 to 40 lower-case"),
    ],
)
async def test_values_out_of_range_are_refused(
    arguments: tuple[Any, ...], options: dict[str, Any], text: str
) -> None:
    """The constructor raises an error with the legal range."""
    with pytest.raises(ValueError, match=text):
        SharedIdle(MemoryCounters(), *arguments, **options)


async def test_wrong_types_are_refused() -> None:
    """The constructor or the call raises."""

    async def on_idle(_: str) -> None: ...

    with pytest.raises(TypeError, match="on_idle must be a plain function"):
        SharedIdle(MemoryCounters(), TIMEOUT, on_idle)
    with pytest.raises(TypeError, match="timeout must be a number of seconds"):
        SharedIdle(MemoryCounters(), "8", print)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="timer must be a Timer"):
        SharedIdle(MemoryCounters(), TIMEOUT, print, timer=1)  # type: ignore[arg-type]
    async with SharedIdle(MemoryCounters(), timedelta(seconds=8), print) as idle:
        wrong: list[Any] = [None, 7, [], b"a"]
        for key in wrong:
            with pytest.raises(TypeError, match="key must be a str"):
                idle.touch(key)
        for text in ("", "a\0b", "x" * 1_017, "\ud800"):
            with pytest.raises(ValueError, match="key must be 1 to 1016 bytes of UTF-8"):
                idle.touch(text)
        idle.touch("x" * 1_016)


async def test_a_timer_of_the_caller() -> None:
    """A closed timer is refused, and so is a call from another thread."""
    async with Timer() as timer, SharedIdle(MemoryCounters(), 8, print, timer=timer) as idle:
        idle.touch("a")
        with pytest.raises(ForeignLoopError):
            await asyncio.to_thread(idle.touch, "a")
        assert len(timer) > 0
    with pytest.raises(TimerClosedError):
        await SharedIdle(MemoryCounters(), 8, print, timer=timer).__aenter__()


async def test_empty_pages_do_not_end_a_listing() -> None:
    """A store may return pages without keys, as Redis does."""

    class Sparse(MemoryCounters):
        async def scan(self, prefix: str, after: str = "", limit: int = 1000) -> CounterPage:
            if not after.startswith("+"):
                return CounterPage(self._server.current_epoch(), {}, f"+{after}")
            return await super().scan(prefix, after[1:], 7)

    idle = Idle()
    store = Sparse()
    async with processes(1, idle, store) as [worker]:
        for number in range(100):
            worker.touch(f"k{number}")
    async with processes(1, idle, store.beside()):
        await asyncio.sleep(40)
    assert len(idle.keys) == 100


async def test_keys_that_are_closed_while_they_are_opened_end_the_block() -> None:
    """The block raises, leaves no task, and the other process has all partitions soon."""
    idle, first = Idle(), Distant()
    async with processes(1, idle, first) as (other,):
        before = asyncio.all_tasks()
        closed = SharedIdle(first.beside(), TIMEOUT, idle.of(1), lease=3)
        entering = asyncio.create_task(closed.__aenter__())
        await asyncio.sleep(0)
        await closed.aclose()
        with pytest.raises(IdleDetectorClosedError, match="closed while they were opened"):
            await entering
        await asyncio.sleep(2)

        assert asyncio.all_tasks() == before
        assert other.statistics().partitions == 64


async def test_the_block_closes() -> None:
    """The end of the block stops the tasks, releases the partitions and closes the store."""
    store = MemoryCounters()
    async with SharedIdle(store, TIMEOUT, print) as idle:
        idle.touch("a")

    assert idle.closed
    assert idle.statistics().partitions == 0
    assert asyncio.all_tasks() == {asyncio.current_task()}
    assert store._listener is None


async def test_closing_writes_a_discard_during_the_rest_of_the_key() -> None:
    """Otherwise another process would call `on_idle` for a discarded key."""
    idle = Idle()
    async with processes(2, idle) as [one, two]:
        one.touch("a")
        await asyncio.sleep(0.5)
        assert two.statistics().keys + one.statistics().keys == 1  # it is written, and rests
        one.discard("a")
        await one.aclose()
        await asyncio.sleep(40)
        assert idle.calls == []


async def test_expires_in_another_loop_is_refused() -> None:
    """The store would be used from two loops."""
    async with SharedIdle(MemoryCounters(), TIMEOUT, print, slack=SLACK) as idle:
        with pytest.raises(ForeignLoopError):
            await asyncio.to_thread(lambda: asyncio.run(idle.expires("a")))


async def test_expires_counts_an_own_touch_that_is_not_written_yet() -> None:
    """The touch during the rest of the key is in no store."""
    async with SharedIdle(MemoryCounters(), TIMEOUT, print, slack=SLACK) as idle:
        idle.touch("a")
        await asyncio.sleep(0.5)
        writes = idle.statistics().writes
        idle.touch("a")
        expected = asyncio.get_running_loop().time() + TIMEOUT
        assert await idle.expires("a") == pytest.approx(expected, abs=0.01)
        assert idle.statistics().writes == writes
        idle.discard("a")
        assert await idle.expires("a") is None


async def test_a_clock_of_the_store_that_is_set_forward_ends_the_timeouts() -> None:
    """All times are those of the store's clock; the deadlines are computed again."""

    class Settable(MemoryCounters):
        step_ms = 0

        async def now_ms(self) -> int:
            return await super().now_ms() + self.step_ms

    idle, store = Idle(), Settable()
    async with processes(1, idle, store) as [one]:
        one.touch("a")
        await asyncio.sleep(1)
        store.step_ms = 3_600_000
        await asyncio.sleep(3)  # longer than to the next renewal of the leases
        assert idle.keys == ["a"]


@pytest.mark.parametrize("is_expected", [True, False])
async def test_an_unexpected_error_of_the_store_is_reported(
    is_expected: bool,  # noqa: FBT001
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A store that is away is only counted."""

    class Broken(MemoryCounters):
        error: Exception | None = None

        async def now_ms(self) -> int:
            if self.error is not None:
                raise self.error
            return await super().now_ms()

    store = Broken()
    async with processes(1, Idle(), store) as [one]:
        store.error = StoreUnavailableError("away") if is_expected else PermissionError("no")
        await asyncio.sleep(5)
        store.error = None
        assert one.statistics().retries > 0
    assert ("aiowheel.shared_idle_failed call='renew'" in caplog.text) != is_expected


async def test_processes_that_start_together_own_no_partition_twice() -> None:
    """Both find all partitions free; the store gives each to one of them."""

    class Slow(MemoryCounters):
        async def compare_and_raise(
            self, changes: Mapping[str, tuple[int | None, int | None]]
        ) -> tuple[str, set[str]]:
            await asyncio.sleep(0.01)
            return await super().compare_and_raise(changes)

    idle, store = Idle(), Slow()
    processes = [
        SharedIdle(each, TIMEOUT, idle.of(place), slack=SLACK, lease=3)
        for place, each in enumerate([store, store.beside()])
    ]
    await asyncio.gather(*(each.__aenter__() for each in processes))
    for _ in range(100):
        held = [each._leases.held for each in processes]
        assert held[0].isdisjoint(held[1])
        await asyncio.sleep(0.05)
    assert [each.statistics().partitions for each in processes] == [32, 32]
    for each in processes:
        await each.aclose()
