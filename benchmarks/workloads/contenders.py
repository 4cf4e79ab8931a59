"""All measured designs of a purgatory, with the same calls."""

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

from aiowheel import DelayedOperation, Purgatory, Timer
from benchmarks.baselines._parking import Parked, Parking, Timers
from benchmarks.baselines.eager_parking import EagerParking
from benchmarks.baselines.flat_wheel import FlatWheel
from benchmarks.baselines.hashed_wheel import HashedWheel
from benchmarks.baselines.loop_timers import LoopTimers
from benchmarks.baselines.old_purgatory import OldPurgatory

TICK_SECONDS = 0.001
PURGE_INTERVAL = 1_000  # Kafka's default; of the lazy and the old design


class Request(DelayedOperation[None]):
    """A typical user's operation: it completes once `ready` is set."""

    __slots__ = ("payload", "ready")
    payload: bytes
    ready: bool

    def try_complete(self) -> bool:
        """Complete if `ready` is set."""
        return self.ready


@dataclass(frozen=True, slots=True)
class Contender:
    """The bound methods of a `Parking`, so that no contender pays for an adapter."""

    make: Callable[[], Any]
    park: Callable[[Any, tuple[int, ...]], object]
    check: Callable[[int], object]
    force: Callable[[Any], object]
    turn: Callable[[float], object]
    expired: Callable[[], int]


@asynccontextmanager
async def open_contender(
    design: str, timeout_seconds: float, wheel_size: int = 256
) -> AsyncGenerator[Contender, None]:
    """Yield a contender: "aiowheel", "lazy" (aiowheel, purged lazily), "none", or a baseline."""
    if design in {"aiowheel", "lazy"}:
        purge_interval = PURGE_INTERVAL if design == "lazy" else None
        async with (
            Timer(tick=TICK_SECONDS, wheel_size=wheel_size) as timer,
            Purgatory("bench", timer=timer, purge_interval=purge_interval) as purgatory,
        ):
            yield Contender(
                make=partial(Request, timeout_seconds),
                park=purgatory.try_complete_else_watch,
                check=purgatory.check_and_complete,
                force=Request.force_complete,
                turn=lambda _: None,
                expired=lambda: purgatory.statistics().expired,
            )
    elif design == "none":
        # The empty harness: requests are created and passed on, but not stored.
        yield Contender(
            make=Parked,
            park=lambda _request, _keys: None,
            check=lambda _: None,
            force=lambda _: None,
            turn=lambda _: None,
            expired=lambda: 0,
        )
    else:
        parking = baseline(design, timeout_seconds)
        yield Contender(
            make=Parked,
            park=parking.park,
            check=parking.check,
            force=parking.force,
            turn=parking.turn,
            expired=lambda: parking.expired,
        )


def baseline(design: str, timeout: float) -> Parking:
    """Return a baseline by name: "old", "hashed", "flat" or "call_later"."""
    if design == "old":
        return OldPurgatory(timeout, PURGE_INTERVAL)
    timers: dict[str, Callable[[], Timers]] = {
        "hashed": lambda: HashedWheel(TICK_SECONDS),
        "flat": lambda: FlatWheel(TICK_SECONDS),
        "call_later": LoopTimers,
    }
    return EagerParking(timeout, timers[design]())
