"""Part 2: a large number of delayed operations that are pending at the same time.

The operations model parcels. Each parcel waits for an event of its depot or its owner. Most parcels
are delivered; the others time out.
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
_SLICE = 1_000  # operations watched between two yields to the event loop
_EVENTS = 20  # events sent between two yields to the event loop
_PATIENCE = 10.0  # seconds after the last timeout until pending operations count as lost
_STEP = 0.01  # shortest sleep between events, in seconds


@dataclass(frozen=True)
class HoldResult:
    """The result of part 2.

    Attributes:
        operations: Number of watched operations.
        keys: Number of distinct keys.
        held: Number of operations that were pending at the same time.
        watch_seconds: Time that watching all operations took.
        events: Number of checked keys.
        reported: Sum of the results of `check_and_complete`.
        completed: Completed operations, as counted by the purgatory.
        expired: Expired operations, as counted by the purgatory.
        left: Operations pending at the end.
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
    """An operation that completes when its parcel is marked as delivered."""

    def __init__(self, number: int, delivered: bytearray, timeout: float) -> None:
        super().__init__(timeout=timeout)
        self._number = number
        self._delivered = delivered

    def try_complete(self) -> bool:
        """Complete if this parcel is delivered; other parcels of the depot may be not."""
        return bool(self._delivered[self._number]) and self.force_complete()

    def on_complete(self) -> None:
        """Return None, because the demo needs only the outcome."""


def run_hold(plan: HoldPlan, trace_folder: Path, progress: ShowDone) -> HoldResult:
    """Watch the operations, deliver most of them, and wait until the others have expired.

    Args:
        plan: Sizes and times.
        trace_folder: Folder for the trace of the operations.
        progress: Called with (finished operations, all operations).
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
    dice = random.Random(2026)  # noqa: S311  # a fixed seed: each run is the same
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
    """Send one event per depot; return the number of events and of completed operations."""
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
