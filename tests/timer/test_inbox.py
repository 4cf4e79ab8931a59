"""The inbox: items in order, one wake-up a burst, no loss."""

import asyncio
from collections.abc import Awaitable, Callable
from contextvars import Context
from threading import Thread
from typing import Any, TypeVarTuple

import pytest

from aiowheel.errors import TimerClosedError
from aiowheel.timer._threads import Inbox

Until = Callable[[Callable[[], object]], Awaitable[None]]
Ts = TypeVarTuple("Ts")

THREADS = 8
PUTS = 500


class CountingLoop(asyncio.SelectorEventLoop):
    """A loop that counts how often another thread wakes it."""

    def __init__(self) -> None:
        super().__init__()
        self.wakeups = 0

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
    """Run *work* in several threads and wait for them."""
    threads = [Thread(target=work, args=(number,)) for number in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert not any(thread.is_alive() for thread in threads)


def test_a_burst_shares_one_wakeup() -> None:
    """Any number of puts while the loop is busy wakes the loop once."""
    loop = CountingLoop()
    received: list[tuple[int, int]] = []
    inbox = Inbox(loop, received.append, TimerClosedError, "the owner")

    def work(number: int) -> None:
        for each in range(PUTS):
            inbox.put((number, each))

    in_threads(work)
    assert loop.wakeups == 1
    loop.run_until_complete(asyncio.sleep(0))
    loop.close()

    assert len(received) == THREADS * PUTS
    for number in range(THREADS):
        assert [each for thread, each in received if thread == number] == list(range(PUTS))


@pytest.mark.both_loops
async def test_nothing_is_lost_when_puts_race_with_the_drain(until: Until) -> None:
    """A put during the drain of the inbox is received."""
    received: list[int] = []
    inbox = Inbox(asyncio.get_running_loop(), received.append, TimerClosedError, "the owner")

    def work(number: int) -> None:
        for each in range(PUTS):
            inbox.put(number * PUTS + each)

    await asyncio.gather(*(asyncio.to_thread(work, number) for number in range(THREADS)))
    await until(lambda: not len(inbox))

    assert sorted(received) == list(range(THREADS * PUTS))


async def test_a_put_is_received_or_returned_by_close_or_refused(until: Until) -> None:
    """Every put has exactly one of the three ends, at whatever moment the inbox is closed."""
    received: list[int] = []
    accepted: list[int] = []
    inbox = Inbox(asyncio.get_running_loop(), received.append, TimerClosedError, "the owner")

    def work(number: int) -> None:
        for each in range(PUTS):
            item = number * PUTS + each
            try:
                inbox.put(item)
            except TimerClosedError:
                return
            accepted.append(item)

    workers = [asyncio.to_thread(work, number) for number in range(THREADS)]
    running = asyncio.gather(*workers)
    await until(lambda: len(received) >= THREADS * PUTS // 4)
    left = inbox.close()
    await running

    assert sorted(received + left) == sorted(accepted)
    assert inbox.close() == []
    with pytest.raises(TimerClosedError, match=r"^the owner is closed: 0 was refused$"):
        inbox.put(0)


def test_a_put_to_a_closed_loop_is_refused() -> None:
    """Such an item would never be received."""
    loop = asyncio.new_event_loop()
    inbox: Inbox = Inbox(loop, print, TimerClosedError, "the owner")
    loop.close()

    with pytest.raises(TimerClosedError, match=r"^the event loop is closed: 'late' was refused$"):
        inbox.put("late")
    assert len(inbox) == 0


async def test_a_bad_item_does_not_hold_up_the_others(until: Until) -> None:
    """An exception of the receiver goes to the loop's exception handler."""
    loop = asyncio.get_running_loop()
    reports: list[dict[str, Any]] = []
    loop.set_exception_handler(lambda _, context: reports.append(context))
    received: list[int] = []

    def receive(item: int) -> None:
        received.append(10 // item)

    inbox = Inbox(loop, receive, TimerClosedError, "the owner")

    for item in (5, 0, 2):
        inbox.put(item)
    await until(lambda: len(received) == 2)  # on a busy machine a drain ends before its last item

    assert received == [2, 5]
    assert [type(report["exception"]) for report in reports] == [ZeroDivisionError]


async def test_a_long_drain_lets_the_loop_turn(until: Until) -> None:
    """Other callbacks run between the slices of a drain that refills its own inbox."""
    loop = asyncio.get_running_loop()
    turned = asyncio.Event()
    received = 0

    def receive(item: int) -> None:
        nonlocal received
        received += 1
        if not turned.is_set():
            inbox.put(item)

    inbox = Inbox(loop, receive, TimerClosedError, "the owner")
    inbox.put(1)
    loop.call_soon(loop.call_soon, turned.set)

    await turned.wait()
    await until(lambda: not len(inbox))

    assert received > 1


def test_receiving_pauses_after_five_milliseconds(
    clock_loop: asyncio.SelectorEventLoop, step: Callable[[float], None]
) -> None:
    """Twelve items of 1.1 ms each take three turns of the loop."""
    received: list[int] = []
    counts: list[int] = []

    def receive(item: int) -> None:
        received.append(item)
        step(0.0011)

    async def main() -> None:
        inbox = Inbox(clock_loop, receive, TimerClosedError, "the owner")
        for item in range(12):
            inbox.put(item)
        while len(received) < 12:
            await asyncio.sleep(0)
            counts.append(len(received))

    clock_loop.run_until_complete(main())

    assert sorted(set(counts)) == [5, 10, 12]
    assert received == list(range(12))


def test_an_inbox_closed_while_the_loop_takes_an_item_out() -> None:
    """The item is returned by `close` and not received; the loop reports no error."""
    left: list[int] = []
    received: list[int] = []

    class ClosingLoop(asyncio.SelectorEventLoop):
        """A loop during whose reading of the clock another thread closes the inbox."""

        def time(self) -> float:
            if readings:
                readings.pop()
                left.extend([] if readings else inbox.close())
            return super().time()

    readings: list[int] = []
    loop = ClosingLoop()
    reports: list[dict[str, Any]] = []
    loop.set_exception_handler(lambda _, context: reports.append(context))
    inbox: Inbox = Inbox(loop, received.append, TimerClosedError, "the owner")
    inbox.put(1)
    readings.extend([1, 2])  # the drain reads the clock once for its budget, then for each item
    inbox._drain()
    loop.run_until_complete(asyncio.sleep(0))
    loop.close()

    assert (left, received, reports) == ([1], [], [])
