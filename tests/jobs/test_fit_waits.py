"""The waits that are fitted to completions and timeouts: no Spark job runs."""

import numpy as np
import pytest

pytest.importorskip("pyspark")

from aiowheel.jobs.wheels.drawn_load import Waits
from aiowheel.jobs.wheels.fit import fit_waits

pytestmark = pytest.mark.one_build

TRUE = Waits.from_quantiles(0.05, 0.1)


def fitted(never: float, timeout: float, operations: int, seed: int = 1) -> Waits:
    """Return the fit to operations of which a share never completes."""
    chance = np.random.default_rng(seed)
    seconds = np.exp(TRUE.mu + TRUE.sigma * chance.standard_normal(operations))
    seconds[chance.random(operations) < never] = np.inf
    done = seconds[seconds < timeout]
    high = min(0.75, 0.9 * len(done) / operations) * operations / len(done)
    shares = high * 2 / 3, high
    low, most = np.quantile(done, shares)
    return fit_waits(
        (float(low), float(most)),
        shares,
        completed=len(done),
        timed_out=operations - len(done),
        timeout=timeout,
    )


@pytest.mark.parametrize("timeout", [0.2, 1.0, 10.0])
def test_the_share_that_never_completes_is_found(timeout: float) -> None:
    """26 % never complete, for any timeout; they are not mistaken for a long tail."""
    waits = fitted(0.26, timeout, 100_000)

    assert waits.never == pytest.approx(0.26, abs=0.02)
    assert waits.quantile(0.5) == pytest.approx(0.05, rel=0.05)
    observed = 0.26 + 0.74 * TRUE.beyond(timeout)
    assert waits.beyond(timeout) == pytest.approx(observed, abs=0.01)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("timeout", [0.08, 0.2, 1.0])
def test_a_long_tail_is_not_fitted_as_never_completing(timeout: float, seed: int) -> None:
    """For a few thousand operations, a random difference does not count as never completing."""
    waits = fitted(0.0, timeout, 4_000, seed)

    assert waits.never == 0.0
    assert waits.beyond(timeout) == pytest.approx(TRUE.beyond(timeout), abs=0.03)


def test_without_a_timeout_all_complete() -> None:
    """Without timeouts no operation is known not to complete."""
    found = fit_waits((0.05, 0.1), (0.5, 0.75), completed=100, timed_out=0, timeout=1e-9)

    assert found == TRUE
