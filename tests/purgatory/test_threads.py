"""Calls from other threads: a burst costs one wake-up of the loop, and nothing is lost."""

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from contextvars import Context
from threading import Barrier, Thread
from typing import TypeVarTuple, cast

import pytest

from aiowheel import DelayedOperation, Purgatory, PurgatoryClosedError, Timer

Ts = TypeVarTuple("Ts")
Until = Callable[[Callable[[], object]], Awaitable[None]]

THREADS = 8
LONG = 3_600  # seconds, so that a busy machine expires nothing


class Gate(DelayedOperation[None]):
    """An operation that completes at the first check after it was watched."""

    def try_complete(self) -> bool:
        """Return True in a check."""
        return self.checks > 2


class CountingLoop(asyncio.SelectorEventLoop):
    """A loop that counts its wake-ups from other threads."""

    wakeups = 0

    def call_soon_threadsafe(
        self,
        callback: Callable[[*Ts], object],
        *args: *Ts,
        context: Context | None = None,
    ) -> asyncio.Handle:
        """Count the call and forward it."""
        self.wakeups += 1
        return super().call_soon_threadsafe(callback, *args, context=context)


def in_threads(work: Callable[[int], object]) -> None:
    """Run *work* in eight threads that start together, and wait for them."""
    barrier = Barrier(THREADS)

    def run(number: int) -> None:
        barrier.wait(30)
        work(number)

    threads = [Thread(target=run, args=(number,)) for number in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert not any(thread.is_alive() for thread in threads)


def test_a_burst_from_eight_threads_wakes_the_loop_once() -> None:
    """4,000 checks and 4,000 advances while the loop is busy cause one wake-up."""
    loop = CountingLoop()

    async def main() -> tuple[int, int]:
        async with Timer() as timer, Purgatory(timer=timer) as purgatory:
            for number in range(4_000):
                purgatory.try_complete_else_watch(Gate(LONG), [number])
                purgatory.wait_until({number: 1}, LONG)

            def work(thread: int) -> None:
                for number in range(thread, 4_000, THREADS):
                    purgatory.check_and_complete_threadsafe(number)
                    purgatory.advance_threadsafe(number, 1)

            before = loop.wakeups
            in_threads(work)  # in the loop's own thread, so that the loop cannot run meanwhile
            burst = loop.wakeups - before
            while len(purgatory):  # noqa: ASYNC110 - the threads set no event
                await asyncio.sleep(0)
            return burst, purgatory.statistics().completed

    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        assert runner.run(main()) == (1, 8_000)


@pytest.mark.both_loops
async def test_nothing_is_lost_while_the_loop_turns(running: Purgatory, until: Until) -> None:
    """Threads and loop work at the same time; every operation completes exactly once."""
    gates = [Gate(LONG) for _ in range(2_000)]
    for number, gate in enumerate(gates):
        running.try_complete_else_watch(gate, [number])

    def work(thread: int) -> None:
        for number in range(thread, 2_000, THREADS):
            running.check_and_complete_threadsafe(number)

    await asyncio.to_thread(in_threads, work)
    await until(lambda: not len(running))

    assert {gate.checks for gate in gates} == {3}
    assert running.statistics().completed == 2_000


@pytest.mark.both_loops
async def test_a_condition_met_by_a_thread_is_never_missed(
    running: Purgatory, until: Until
) -> None:
    """Eight threads, 100 operations each, 20 checks of each; only the last one completes."""
    met: set[tuple[int, int]] = set()

    def met_for(key: tuple[int, int]) -> Callable[[], bool]:
        return lambda: key in met

    keys = [(thread, number) for thread in range(THREADS) for number in range(100)]
    waiting = [running.wait_for(met_for(key), [key], LONG) for key in keys]

    def work(thread: int) -> None:
        for attempt in range(20):
            for number in range(100):
                if attempt == 19:
                    met.add((thread, number))
                running.check_and_complete_threadsafe((thread, number))

    await asyncio.to_thread(in_threads, work)

    assert all(await asyncio.gather(*waiting))
    await until(lambda: not len(running))


@pytest.mark.both_loops
async def test_calls_of_one_thread_keep_their_order(running: Purgatory, until: Until) -> None:
    """The counter ends at the last value; it would ignore a smaller one."""
    waiting = [running.wait_until({"k": number}, LONG) for number in range(500)]

    def work() -> None:
        for number in range(500):
            running.advance_threadsafe("k", number)

    await asyncio.to_thread(work)

    assert all(await asyncio.gather(*waiting))


@pytest.mark.both_loops
async def test_calls_made_before_the_closing_take_effect() -> None:
    """Such calls take effect before the rest expires; later calls raise."""
    async with Timer() as timer:
        purgatory = Purgatory(timer=timer)
        waiting = purgatory.wait_until({"k": 1}, LONG)
        late = purgatory.wait_until({"k": 2}, LONG)
        in_threads(lambda _: purgatory.advance_threadsafe("k", 1))

        await purgatory.aclose()

        assert (await waiting, await late) == (True, False)
        for call in (
            lambda: purgatory.check_and_complete_threadsafe("k"),
            lambda: purgatory.advance_threadsafe("k", 5),
        ):
            with pytest.raises(
                PurgatoryClosedError, match=r"'purgatory' is closed: .* was refused$"
            ):
                await asyncio.to_thread(call)


class Unprintable:
    """A key whose `repr` raises."""

    def __repr__(self) -> str:
        raise ValueError("repr")


async def test_a_call_after_closing_names_the_error_even_if_the_key_cannot_be_printed() -> None:
    """The error says that the purgatory is closed, not that `repr` raised."""
    purgatory = Purgatory("orders")
    await purgatory.aclose()

    with pytest.raises(PurgatoryClosedError, match=r"^the purgatory 'orders' is closed"):
        purgatory.check_and_complete_threadsafe(Unprintable())


def test_a_closed_loop_is_a_closed_purgatory() -> None:
    """The thread gets the purgatory's error instead of asyncio's."""

    async def main() -> Purgatory:
        return Purgatory()

    purgatory = asyncio.run(main())

    with pytest.raises(PurgatoryClosedError, match="loop is closed"):
        purgatory.check_and_complete_threadsafe("k")


@pytest.mark.both_loops
async def test_bad_values_are_refused_in_the_thread(running: Purgatory) -> None:
    """The call in the thread raises; later the caller would be unknown."""
    unhashable = cast(Hashable, ["k"])

    with pytest.raises(TypeError, match=r"^key must be hashable, got"):
        await asyncio.to_thread(running.check_and_complete_threadsafe, unhashable)
    with pytest.raises(TypeError, match=r"^key must be hashable, got"):
        await asyncio.to_thread(running.advance_threadsafe, unhashable, 1)
    with pytest.raises(ValueError, match="value must be a number other than NaN, got nan"):
        await asyncio.to_thread(running.advance_threadsafe, "k", float("nan"))


def test_a_manual_timer_has_no_loop_to_wake(purgatory: Purgatory) -> None:
    """The error names the missing loop."""
    with pytest.raises(
        ValueError, match="must have a loop for calls from threads, got a ManualTimer"
    ):
        purgatory.check_and_complete_threadsafe("k")
