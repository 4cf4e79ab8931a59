"""The passive wheel and the equivalent heap, without clock and loop."""

import random
from collections.abc import AsyncGenerator
from time import process_time_ns

from aiowheel.wheel import HeapWheel, TimingWheel
from benchmarks._memory import resident_bytes
from benchmarks._side import Figures

LONGEST = 60_000  # deadlines are uniform in 1 to 60,000, one minute of milliseconds
KINDS: dict[str, type[TimingWheel] | type[HeapWheel]] = {"wheel": TimingWheel, "heap": HeapWheel}


def uniform_deadlines(count: int) -> list[int]:
    """Return seeded deadlines, the same for every side."""
    generator = random.Random(count)
    return [generator.randint(1, LONGEST) for _ in range(count)]


async def churn(kind: str, pending: int, operations: int) -> AsyncGenerator[Figures, None]:
    """Measure, with other entries pending: schedule and cancel; replace a random one; expire."""
    wheel = KINDS[kind](1, 256, 0)
    schedule = wheel.schedule
    entries = [schedule(deadline) for deadline in uniform_deadlines(pending)]
    deadlines = uniform_deadlines(operations)
    generator = random.Random(1)
    places = [generator.randrange(pending) for _ in range(operations)]
    while True:
        t0 = process_time_ns()
        for _ in deadlines:
            pass
        t1 = process_time_ns()
        for deadline in deadlines:
            schedule(deadline).cancel()
        t2 = process_time_ns()
        for place, _ in zip(places, deadlines, strict=True):
            entries[place] = entries[place]
        t3 = process_time_ns()
        for place, deadline in zip(places, deadlines, strict=True):
            entries[place].cancel()
            entries[place] = schedule(deadline)
        t4 = process_time_ns()
        yield {
            "pair": (t2 - t1) / operations,
            "pair_empty": (t1 - t0) / operations,
            "replace": (t4 - t3) / operations,
            "replace_empty": (t3 - t2) / operations,
        }


async def expire(kind: str, pending: int) -> AsyncGenerator[Figures, None]:
    """Schedule *pending* entries, then advance from expiration to expiration until none is left."""
    deadlines = uniform_deadlines(pending)
    while True:
        wheel = KINDS[kind](1, 256, 0)
        t0 = process_time_ns()
        entries = [wheel.schedule(deadline) for deadline in deadlines]
        t1 = process_time_ns()
        while (upcoming := wheel.next_expiration()) is not None:
            wheel.advance(upcoming)
        t2 = process_time_ns()
        assert not any(entry.pending for entry in entries)
        yield {"add": (t1 - t0) / pending, "expire": (t2 - t1) / pending}


async def memory(kind: str, pending: int) -> AsyncGenerator[Figures, None]:
    """Measure bytes per pending entry, without the caller's list, and the memory given back."""
    while True:
        entries: list[object] = [None] * pending
        wheel = KINDS[kind](1, 256, 0)
        deadlines = uniform_deadlines(pending)
        before = resident_bytes()
        for place, deadline in enumerate(deadlines):
            entries[place] = wheel.schedule(deadline)
        full = resident_bytes()
        for entry in entries:
            entry.cancel()  # type: ignore[attr-defined]
        entry = None
        entries[:] = [None] * pending
        cancelled = resident_bytes()

        for deadline in deadlines:
            wheel.schedule(deadline)
        again = resident_bytes()
        del wheel
        dropped = resident_bytes()
        yield {
            "bytes_each": (full - before) / pending,
            "kept_percent_after_cancelling": 100 * (cancelled - before) / max(full - before, 1),
            "kept_percent_after_dropping": 100 * (dropped - cancelled) / max(again - cancelled, 1),
        }
