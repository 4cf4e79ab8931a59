"""A load drawn from seeded distributions, one shard at a time. Rank 5; needs numpy, no Spark.

Source: the benchmark of Kafka's purgatory: exponential gaps between arrivals, and log-normal times
to completion, given by two of their quantiles. A shard is data and not a partition: its numbers
depend only on the seed and on its own number, so any number of partitions draws the same load.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from aiowheel._arguments import safe_repr
from aiowheel.errors import BadInputError
from aiowheel.jobs.wheels.feed import CHUNK, LONGEST_NS, Chunk, Integers
from aiowheel.jobs.wheels.run import NEVER


@dataclass(frozen=True, slots=True)
class Waits:
    """How long operations take to complete: log-normal, and a share that never completes.

    Attributes:
        mu: Mean of the logarithm of the seconds, of the operations that complete.
        sigma: Standard deviation of the same, above 0.
        never: The share of operations that never complete, from 0 to below 1.

    Raises:
        TypeError: A value is no number.
        BadInputError: A value is out of range.
    """

    mu: float
    sigma: float
    never: float = 0.0

    def __post_init__(self) -> None:
        _check("mu", self.mu, "a finite number", math.isfinite)
        _check("sigma", self.sigma, "above 0 and finite", lambda sigma: 0 < sigma < math.inf)
        _check("never", self.never, "from 0 to below 1", lambda never: 0 <= never < 1)

    @classmethod
    def from_quantiles(
        cls, low: float, high: float, low_share: float = 0.5, high_share: float = 0.75
    ) -> Waits:
        """Return the distribution with two given quantiles, in which all operations complete.

        *low_share* of the operations take at most *low* seconds, and *high_share* at most *high*.

        Raises:
            TypeError: A value is no number.
            BadInputError: A value is not above 0, *low* is not below *high*, or *low_share* is not
                below *high_share*, or that is not below 1.
        """
        _check("high", high, "above 0 and finite", lambda high: 0 < high < math.inf)
        _check("low", low, f"above 0 and below high ({high})", lambda low: 0 < low < high)
        _check("high_share", high_share, "above 0 and below 1", lambda share: 0 < share < 1)
        legal = f"above 0 and below high_share ({high_share})"
        _check("low_share", low_share, legal, lambda share: 0 < share < high_share)
        low_z, high_z = NormalDist().inv_cdf(low_share), NormalDist().inv_cdf(high_share)
        sigma = (math.log(high) - math.log(low)) / (high_z - low_z)
        return cls(math.log(low) - sigma * low_z, sigma)

    def quantile(self, share: float) -> float:
        """Return the seconds within which a *share* of the operations that complete are done."""
        return math.exp(self.mu + self.sigma * NormalDist().inv_cdf(share))

    def beyond(self, seconds: float) -> float:
        """Return the share of operations that take longer or never complete."""
        longer = 1.0 - NormalDist(self.mu, self.sigma).cdf(math.log(seconds))
        return self.never + (1.0 - self.never) * longer


def _check(name: str, value: object, legal: str, is_legal: Callable[[float], bool]) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{name} must be a number, got {safe_repr(value)}")
    if not is_legal(value):
        raise BadInputError(f"{name} must be {legal}, got {value}")


def draw(
    waits: Waits, *, operations: int, rate: float, timeout: int, seed: int, shard: int
) -> Iterator[Chunk]:
    """Draw the operations of one shard; time begins at 0.

    Args:
        waits: How long operations take to complete.
        operations: The number of operations in this shard.
        rate: Arrivals per second in this shard.
        timeout: Nanoseconds from arrival to deadline.
        seed: The seed of the whole load, from 0 to 2**63 - 1.
        shard: The number of the shard, from 0 to 2**63 - 1.
    """
    gaps_from, waits_from = (
        np.random.Generator(np.random.Philox(key=[seed, 2 * shard + half])) for half in (0, 1)
    )
    # A key that no shard of any seed uses: the other draws stay the same whether *never* is 0 or
    # not.
    never_key = np.array([2**63 + seed, 2 * shard], np.uint64)
    never_from = np.random.Generator(np.random.Philox(key=never_key))
    now = 0
    for first in range(0, operations, CHUNK):
        count = min(CHUNK, operations - first)
        # Summed as integers: a sum of floats would depend on the boundaries of the chunks.
        created = now + np.cumsum(_nanoseconds(gaps_from.standard_exponential(count) / rate))
        now = int(created[-1])
        seconds = np.exp(waits.mu + waits.sigma * waits_from.standard_normal(count))
        # A log-normal tail must fit into 64 bits of nanoseconds.
        ends = created + _nanoseconds(np.minimum(seconds, LONGEST_NS / 1e9))
        if waits.never:
            ends[never_from.random(count) < waits.never] = NEVER
        yield Chunk(created, created + timeout, ends)


def _nanoseconds(seconds: np.typing.NDArray[np.float64]) -> Integers:
    return np.rint(seconds * 1e9).astype(np.int64)
