"""Kafka's purgatory benchmark: a million requests that arrive and complete at random.

Arrivals have exponential gaps, completion times are log-normal; both are drawn before the clock
starts. One loop runs the generator, the contender and its timer. Every turn processes the arrivals
and completions that are due; turns are a millisecond apart, or as fast as possible.
"""

import asyncio
import gc
import math
import random
from array import array
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from statistics import NormalDist
from time import monotonic, process_time

from benchmarks._memory import peak_bytes, resident_bytes
from benchmarks._side import Figures
from benchmarks.workloads.contenders import Contender, open_contender

TIMEOUT_SECONDS = 0.2
TURN_SECONDS = 0.001
PAYLOAD_BYTES = 100
#: An overloaded side is stopped after this multiple of the intended duration.
PATIENCE = 3.0
_QUARTILE = NormalDist().inv_cdf(0.75)


@dataclass(frozen=True, slots=True)
class Load:
    """Arrivals and completions in seconds from the start; the same for every side."""

    arrivals: "array[float]"
    completions: "array[float]"
    order: "array[int]"  # request numbers by completion time

    @property
    def expected_expired(self) -> float:
        """Return the share of requests that take longer than the timeout."""
        pairs = zip(self.arrivals, self.completions, strict=True)
        late = sum(done - came > TIMEOUT_SECONDS for came, done in pairs)
        return late / len(self.arrivals)


def draw_load(requests: int, rate: float, p50: float, p75: float) -> Load:
    """Draw *requests* requests: *rate* per second, completion times with the given quantiles."""
    generator = random.Random(1)
    mu, sigma = math.log(p50), spread(p50, p75)
    arrivals, completions = array("d"), array("d")
    now = 0.0
    for _ in range(requests):
        now += generator.expovariate(rate)
        arrivals.append(now)
        completions.append(now + generator.lognormvariate(mu, sigma))
    order = array("l", sorted(range(requests), key=completions.__getitem__))
    return Load(arrivals, completions, order)


def spread(p50: float, p75: float) -> float:
    """Return sigma of the log-normal distribution with the given quantiles."""
    return (math.log(p75) - math.log(p50)) / _QUARTILE


def expired_by_model(p50: float, p75: float) -> float:
    """Return the share of completion times beyond the timeout."""
    return 1.0 - NormalDist(math.log(p50), spread(p50, p75)).cdf(math.log(TIMEOUT_SECONDS))


class Collections:
    """The total CPU time of the cyclic collector."""

    def __init__(self) -> None:
        self.seconds: float = 0.0
        self._since = 0.0

    def __call__(self, phase: str, _: dict[str, int]) -> None:
        """Measure a collection; called from `gc.callbacks`."""
        if phase == "start":
            self._since = process_time()
        else:
            self.seconds += process_time() - self._since


async def purgatory(
    design: str,
    requests: int,
    rate: float,
    p50: float,
    p75: float,
    *,
    wheel_size: int = 256,
    keys: int = 1,
    completion: str = "check",
) -> AsyncGenerator[Figures, None]:
    """Run one contender under the load; *completion* is "check" of a key or "force"."""
    load = draw_load(requests, rate, p50, p75)
    expected = load.expected_expired
    while True:
        collections = Collections()
        before = resident_bytes()
        gc.callbacks.append(collections)
        async with open_contender(design, TIMEOUT_SECONDS, wheel_size) as contender:
            cpu, wall = process_time(), monotonic()
            parked, seconds = await _drive(contender, load, keys, by_check=completion == "check")
            cpu, wall = process_time() - cpu, monotonic() - wall
            expired = contender.expired()
        gc.callbacks.remove(collections)
        yield {
            "target": rate,
            "achieved": parked / seconds,
            "cpu_us": cpu / parked * 1e6,
            "busy_percent": cpu / wall * 100,
            "gc_percent": collections.seconds / cpu * 100,
            "peak_mb": (peak_bytes() - before) / 1e6,
            "expired_percent": expired / parked * 100,
            "expected_percent": expected * 100,
            "model_percent": expired_by_model(p50, p75) * 100,
            "parked": parked,
        }


async def _drive(
    contender: Contender, load: Load, keys: int, *, by_check: bool
) -> tuple[int, float]:
    """Run the load; return the number of arrivals, and the seconds until the last one."""
    make, park, check, force = contender.make, contender.park, contender.check, contender.force
    arrivals, completions, order = load.arrivals, load.completions, load.order
    total = len(arrivals)
    others = [place * total for place in range(1, keys)]
    # By request number, without completed ones, because the collector visits all of it.
    waiting: dict[int, object] = {}
    came = gone = 0
    came_all = math.inf  # time of the last arrival
    began = monotonic()
    limit = arrivals[-1] * PATIENCE + 1.0
    while (now := monotonic() - began) < min(came_all + TIMEOUT_SECONDS + 0.1, limit):
        while came < total and arrivals[came] <= now:
            request = make()
            request.payload = bytes(PAYLOAD_BYTES)
            request.ready = False
            waiting[came] = request
            park(request, (came, *[came + other for other in others]) if others else (came,))
            came += 1
        while gone < total and completions[order[gone]] <= now:
            place = order[gone]
            done = waiting.pop(place)
            if by_check:
                done.ready = True  # type: ignore[attr-defined]
                check(place)
            else:
                force(done)
            gone += 1
        contender.turn(monotonic())
        after = monotonic() - began
        if came == total and came_all == math.inf:
            came_all = after
        await asyncio.sleep(max(TURN_SECONDS - (after - now), 0.0))
    return came, min(came_all, limit)
