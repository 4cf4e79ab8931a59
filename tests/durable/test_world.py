"""The rules of durable timers hold in a simulation, for few seeds; `make simulate` runs more."""

from __future__ import annotations

import pytest

from aiowheel.testing.simulation import explore

from .world import DurableWorld

pytestmark = [pytest.mark.one_build, pytest.mark.slow]


def test_durable_timers_keep_their_rules() -> None:
    """Across crashes, stalls and lost connections."""
    found = explore(DurableWorld, seeds=range(10))

    assert found.faults["crash"] > 0
    assert found.faults["process stall"] > 0
