"""A program that creates and ends objects of every public class many times and counts leaks.

It prints one JSON object, after the given number of cycles: the additional memory blocks of the
interpreter by cycle, and the additional references by shared object.
"""

import asyncio
import contextlib
import gc
import json
import logging
import sys
from collections.abc import Callable

import aiowheel
from aiowheel import (
    DelayedOperation,
    Histogram,
    IdleDetector,
    ManualTimer,
    Purgatory,
    TimingWheel,
)
from aiowheel.testing import VirtualClockEventLoop


class Done(DelayedOperation[int]):
    """An operation that a check completes."""

    def try_complete(self) -> bool:
        """Return whether a check came before."""
        return self.completed_by is not None or len(self.keys) == 1

    def on_complete(self) -> int:
        """Return an integer outside the interpreter's cache of small integers."""
        return 10**9


class Waiting(DelayedOperation[None]):
    """An operation that only its timeout ends."""

    def try_complete(self) -> bool:
        """Return False."""
        return False


class Failing(DelayedOperation[None]):
    """An operation whose first try raises."""

    def try_complete(self) -> bool:
        """Raise ZeroDivisionError."""
        raise ZeroDivisionError


def nothing(*args: object) -> None:
    """Accept any arguments and do nothing."""


def wheel() -> None:
    """Create a wheel; move, cancel and expire entries; take every snapshot."""
    each = TimingWheel(7, 4)
    entries = [each.schedule(10**9 + number, object()) for number in range(5)]
    each.reschedule(entries[0], 2 * 10**9)
    entries[1].cancel()
    each.advance(10**9 + 3)
    each.statistics()
    each.occupancy(3)
    each.next_expiration()
    each.pending()
    each.check_invariants()
    each.clear()


def timer() -> None:
    """Create a timer; its handles fire, are cancelled, moved and dropped."""
    each = ManualTimer()
    handles = [each.call_later(number / 100, nothing, object(), 10**9) for number in range(6)]
    handles[1].cancel()
    handles[2].touch(0.5)
    handles[3].reschedule(7.25)
    each.every(0.03, nothing, object())
    each.call_later_threadsafe(0.01, nothing, object()).cancel()
    each.call_later_threadsafe(0.01, nothing, object())
    each.advance(0.1)
    repr(each.statistics().lateness)
    repr(handles)


def refused() -> None:
    """Make calls that raise; none may keep its arguments."""
    each = ManualTimer()
    for delay in (float("nan"), "soon", None, object(), True):
        with contextlib.suppress(TypeError, ValueError):
            each.call_later(delay, nothing, object())  # type: ignore[arg-type]
    with contextlib.suppress(OverflowError):
        TimingWheel().schedule(2**70 + 1)


def purgatory() -> None:
    """Complete, expire, fail, force and cancel operations, and use counters."""
    clock = ManualTimer()
    each = Purgatory(timer=clock, max_pending=10)
    for operation in (Done(1.0), Waiting(0.5), Waiting(9.0), Waiting(None)):
        each.try_complete_else_watch(operation, [("k", 10**9), "other"])
    each.advance("counter", 10**9)
    each.check_and_complete("other")
    clock.advance(0.6)
    for left in each.pending():
        left.force_complete()
    each.try_complete_else_watch(Failing(1.0), ["f"])
    with contextlib.suppress(ExceptionGroup):
        clock.advance(0.1)
    each.forget("counter")
    repr(each.statistics())
    each.top_keys()


def idle_detector() -> None:
    """Touch and discard keys, and let keys become idle."""
    clock = ManualTimer()
    each = IdleDetector(0.5, nothing, timer=clock)
    for number in range(4):
        each.touch(("key", 10**9 + number))
    each.discard(("key", 10**9))
    clock.advance(0.3)
    each.touch(("key", 10**9 + 1))
    clock.advance(1)


def histogram() -> None:
    """Create a histogram, copy it and read its quantiles."""
    each = Histogram()
    for number in range(30):
        each.record(1 << number)
    each.copy().quantile(0.99)
    list(each.buckets())


def loops() -> None:
    """Await sleeps, timeouts, waits and periodic calls on the shared timer."""

    async def main() -> None:
        async with aiowheel.timeout(5), aiowheel.move_on_after(0.2):
            await aiowheel.sleep(9)
        with contextlib.suppress(TimeoutError):
            await aiowheel.wait_for(asyncio.sleep(9), 0.1)
        async for _ in aiowheel.interval(0.01):
            break
        operations = Purgatory()
        waits = [operations.wait_until({"k": 10**9 + number}, 1.0) for number in range(3)]
        operations.advance("k", 10**9 + 1)
        assert await asyncio.gather(*waits) == [True, True, False]
        await operations.aclose()

    with asyncio.Runner(loop_factory=VirtualClockEventLoop) as runner:
        runner.run(main())


CYCLES = (wheel, timer, refused, purgatory, idle_detector, histogram, loops)
#: Not None: cleared caches refer to it, and mypyc keeps one reference a call of an `__init__`.
SHARED = {
    "COMPLETED": aiowheel.Outcome.COMPLETED,
    "EXPIRED": aiowheel.Outcome.EXPIRED,
    "CANCELLED": aiowheel.Outcome.CANCELLED,
    "FAILED": aiowheel.Outcome.FAILED,
    "nothing": nothing,
    "object": object,
    "TimingWheel": TimingWheel,
    "Done": Done,
    "float": float,
}


def _clear_caches() -> None:
    """Clear a cache of the interpreter, which keeps up to 4,096 attribute names."""
    # Since Python 3.13; the other one is deprecated since 3.14.
    clear: Callable[[], None] | None = getattr(sys, "_clear_internal_caches", None)
    (clear or sys._clear_type_cache)()


def blocks() -> int:
    """Return the number of allocated blocks, without garbage and without cached names."""
    gc.collect()
    _clear_caches()
    return sys.getallocatedblocks()


def blocks_left(cycle: Callable[[], object], count: int) -> int:
    """Return how many more blocks the interpreter has after *count* cycles."""
    for _ in range(20):  # caches and free lists reach their size
        cycle()
    before = blocks()
    for _ in range(count):
        cycle()
    return blocks() - before


def main() -> None:
    """Run every cycle, count, and print the result."""
    logging.disable()
    count = int(sys.argv[1])
    for cycle in CYCLES:  # the first call imports what the cycle needs
        cycle()
    gc.collect()
    before = {name: sys.getrefcount(each) for name, each in SHARED.items()}
    left = {cycle.__name__: blocks_left(cycle, count) for cycle in CYCLES}
    gained = {name: sys.getrefcount(each) - before[name] for name, each in SHARED.items()}
    print(json.dumps({"blocks": left, "references": gained}))


if __name__ == "__main__":
    main()
