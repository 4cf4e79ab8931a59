"""Part 2: very many delayed operations held at once. Rank 5.

Think of parcels: each waits for word from its depot or its owner. Most are delivered, the others
give up when their time is over.
"""

from __future__ import annotations

import asyncio
import random
import time
from dataclasses import dataclass
from pathlib import Path

from aiowheel import DelayedOperation, Purgatory, Timer
from aiowheel.trace import TraceRecorder

from ._loop import new_loop
from ._plan import HoldPlan
from ._screen import ShowDone

PURGATORY = "parcels"
_SLICE = 1_000  # operations watched before the event loop gets its turn
_EVENTS = 20  # events sent before the event loop gets its turn
_PATIENCE = 10.0  # seconds beyond the last timeout before what is pending counts as lost
_STEP = 0.01  # seconds, the shortest pause between events that is worth a sleep


@dataclass(frozen=True)
class HoldResult:
    """What happened to the operations.

    Attributes:
        operations: Operations that were watched.
        keys: Different keys they watched.
        held: Pending at one time.
        watch_seconds: Time it took to watch them all.
        events: Keys that were checked.
        reported: Completions that `check_and_complete` returned, summed.
        completed: Completions the purgatory counted.
        expired: Expirations the purgatory counted.
        left: Still pending at the end.
    """

    operations: int
    keys: int
    held: int
    watch_seconds: float
    events: int
    reported: int
    completed: int
    expired: int
    left: int


class Parcel(DelayedOperation[None]):
    """Complete once the parcel is marked as delivered."""

    def __init__(self, number: int, delivered: bytearray, timeout: float) -> None:
        super().__init__(timeout=timeout)
        self._number = number
        self._delivered = delivered

    def try_complete(self) -> bool:
        """Complete when this parcel is delivered; a neighbour's delivery is none of ours."""
        return bool(self._delivered[self._number]) and self.force_complete()

    def on_complete(self) -> None:
        """Nothing to hand over: the outcome says it all."""


def run_hold(plan: HoldPlan, trace_folder: Path, progress: ShowDone) -> HoldResult:
    """Watch the operations, deliver most, wait until the rest has expired.

    Args:
        plan: Sizes and waits.
        trace_folder: Where the operations are recorded.
        progress: Called with (finished operations, operations).
    """
    with asyncio.Runner(loop_factory=new_loop) as runner:
        return runner.run(_hold(plan, trace_folder, progress))


async def _hold(plan: HoldPlan, trace_folder: Path, progress: ShowDone) -> HoldResult:
    delivered = bytearray(plan.operations)
    async with (
        TraceRecorder(trace_folder) as recorder,
        Timer(tick=0.001) as timer,
        Purgatory(PURGATORY, timer=timer, instruments=(recorder,)) as purgatory,
    ):
        started = time.perf_counter()
        await _watch_all(plan, delivered, purgatory)
        watch_seconds = time.perf_counter() - started
        held, keys = len(purgatory), purgatory.statistics().keys
        events, reported = await _deliver(plan, delivered, purgatory, timer, progress)
        last_moment = timer.time() + plan.longest_timeout + _PATIENCE
        while len(purgatory) and timer.time() < last_moment:
            progress(plan.operations - len(purgatory), plan.operations)
            await timer.sleep(0.1)
        counted = purgatory.statistics()
    return HoldResult(
        operations=plan.operations,
        keys=keys,
        held=held,
        watch_seconds=watch_seconds,
        events=events,
        reported=reported,
        completed=counted.completed,
        expired=counted.expired,
        left=counted.pending,
    )


async def _watch_all(plan: HoldPlan, delivered: bytearray, purgatory: Purgatory) -> None:
    dice = random.Random(2026)  # noqa: S311  # the same demo every time, no secret
    for number in range(plan.operations):
        timeout = dice.uniform(plan.shortest_timeout, plan.longest_timeout)
        owner = int(plan.owners * dice.random() ** 2)
        keys = (("depot", number % plan.depots), ("owner", owner))
        purgatory.try_complete_else_watch(Parcel(number, delivered, timeout), keys)
        if number % _SLICE == 0:
            await asyncio.sleep(0)


async def _deliver(
    plan: HoldPlan,
    delivered: bytearray,
    purgatory: Purgatory,
    timer: Timer,
    progress: ShowDone,
) -> tuple[int, int]:
    """Send one event per depot; count the events and what they completed."""
    depots = min(plan.depots, plan.operations)
    started = timer.time()
    reported = 0
    for depot in range(depots):
        for number in range(depot, plan.operations, plan.depots):
            delivered[number] = plan.is_delivered(number)
        reported += purgatory.check_and_complete(("depot", depot))
        ahead = started + plan.events_over * depot / depots - timer.time()
        if ahead > _STEP or depot % _EVENTS == 0:
            progress(reported, plan.operations)
            await timer.sleep(max(0.0, ahead))
    return depots, reported
