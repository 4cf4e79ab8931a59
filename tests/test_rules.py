"""Events at one instant: the outcomes of the rules equal those of the purgatory, on both clocks."""

import random
from collections.abc import Iterator

import pytest

from aiowheel import DelayedOperation, Purgatory, Timer
from aiowheel.rules import (
    COMPLETED,
    EXPIRED,
    NEVER,
    NO_VALUE,
    Ending,
    Event,
    Operation,
    expiry,
    in_order,
)
from aiowheel.testing import ManualTimer, VirtualClock

MS = 0.001  # the time unit of these traces

pytestmark = pytest.mark.overdue


class Waiting(DelayedOperation[None]):
    """An operation of a trace that completes by the events of the present instant."""

    def __init__(self, row: Operation, now: list[Event]) -> None:
        super().__init__((row.deadline - row.created) * MS)
        self.row = row
        self.missing = dict(zip(row.keys, row.thresholds, strict=True))
        self.wanted = row.wanted
        self.now = now

    def try_complete(self) -> bool:
        """Return whether the event of this instant was the last missing one."""
        for event in self.now:
            if event.value >= self.missing.get(event.key, NEVER):
                del self.missing[event.key]
                self.wanted -= 1
        return self.wanted == 0

    def ending(self) -> Ending:
        """Return how the operation ended."""
        by = self.completed_by
        outcome = EXPIRED if by is None else COMPLETED
        return Ending(
            self.row.id, outcome, None if by is None else str(by), round(self.finished / MS)
        )


def trace(seed: int) -> tuple[list[Operation], list[Event], int]:
    """Return a random trace with few instants and few keys, in which every deadline passes."""
    source = random.Random(seed)
    operations: list[Operation] = []
    for number in range(60):
        keys = tuple(source.sample("abcdef", source.randrange(1, 6)))
        created = source.randrange(100)
        operations.append(
            Operation(
                str(number),
                keys,
                tuple(source.choice((NO_VALUE, 1, 2)) for _ in keys),
                source.choice((1, len(keys))),
                created,
                created + source.randrange(-1, 40),
            )
        )
    events = [
        Event(source.choice("abcdef"), source.randrange(140), source.randrange(3))
        for _ in range(150)
    ]
    return operations, events, source.choice((1, 3, 10))


def expected(operations: list[Operation], events: list[Event], tick: int) -> set[Ending]:
    """Return the outcomes by the rules alone, one operation after the other."""
    endings: set[Ending] = set()
    for row in operations:
        end = expiry(row.created, row.deadline, tick)
        missing = dict(zip(row.keys, row.thresholds, strict=True))
        ending = Ending(row.id, EXPIRED, None, end)
        for event in events:
            if row.created <= event.time < end and event.value >= missing.get(event.key, NEVER):
                del missing[event.key]
                if len(missing) == len(row.keys) - row.wanted:
                    ending = Ending(row.id, COMPLETED, event.key, event.time)
                    break
        endings.add(ending)
    return endings


def instants(
    operations: list[Operation], events: list[Event]
) -> Iterator[tuple[int, list[Operation], list[Event]]]:
    """Yield the operations and events of each instant, in order."""
    in_order(operations, events)
    last = max(row.deadline for row in operations) + 10
    for now in range(last + 1):
        yield (
            now,
            [row for row in operations if row.created == now],
            [event for event in events if event.time == now],
        )


@pytest.mark.parametrize("seed", range(20))
def test_a_purgatory_on_a_manual_timer_follows_the_rules(seed: int) -> None:
    """At each instant the clock fires, then operations are watched, then events arrive."""
    operations, events, tick = trace(seed)
    timer = ManualTimer(tick=tick * MS)
    purgatory = Purgatory(timer=timer)
    happening: list[Event] = []
    watched: list[Waiting] = []

    for now, created, come in instants(operations, events):
        timer.advance(MS if now else 0)
        for row in created:
            watched.append(Waiting(row, happening))
            purgatory.try_complete_else_watch(watched[-1], row.keys)
        timer.advance(0)
        for event in come:
            happening[:] = [event]
            purgatory.check_and_complete(event.key)
        happening.clear()

    assert {each.ending() for each in watched} == expected(operations, events, tick)


@pytest.mark.virtual_time(autojump=False)
@pytest.mark.parametrize("seed", range(20))
async def test_asyncio_on_a_virtual_clock_follows_the_rules(
    seed: int, virtual_clock: VirtualClock
) -> None:
    """The same, with a real timer driven by a real event loop."""
    operations, events, tick = trace(seed)
    happening: list[Event] = []
    watched: list[Waiting] = []

    async with Timer(tick=tick * MS) as timer, Purgatory(timer=timer) as purgatory:
        for now, created, come in instants(operations, events):
            await virtual_clock.advance(MS if now else 0)
            for row in created:
                watched.append(Waiting(row, happening))
                purgatory.try_complete_else_watch(watched[-1], row.keys)
            await virtual_clock.advance(0)
            for event in come:
                happening[:] = [event]
                purgatory.check_and_complete(event.key)
            happening.clear()

    assert {each.ending() for each in watched} == expected(operations, events, tick)


@pytest.mark.parametrize(
    ("created", "deadline", "tick", "expires"),
    [
        (0, 10, 1, 10),
        (0, 10, 7, 14),
        (0, 14, 7, 14),
        (3, 3, 7, 3),  # overdue: due at once, not at the end of the tick
        (3, 1, 7, 3),
        (3, 4, 7, 7),
        (-9, -8, 7, -7),
        (0, NEVER, 7, NEVER),
        (1, 1_674_981_729_479_000_001, 1_000_000, 1_674_981_729_480_000_000),
    ],
)
def test_an_expiry_is_never_early(created: int, deadline: int, tick: int, expires: int) -> None:
    """An operation expires at the first tick at or after its deadline; if that is past, at once."""
    assert expiry(created, deadline, tick) == expires


def test_events_of_one_instant_come_by_key_as_bytes() -> None:
    """The order is that of the UTF-8 bytes, as databases sort, and not of UTF-16."""
    keys = ["\U00010000", "￿", "é", "b", "B", "aa", "a"]
    events = [Event(key, 1, NO_VALUE) for key in keys] + [Event("z", 0, NO_VALUE)]

    in_order([], events)

    assert [event.key for event in events] == ["z", *sorted(keys, key=str.encode)]
