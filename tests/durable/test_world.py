"""The rules of durable timers hold in a simulation, for few seeds; `make simulate` runs more."""

from __future__ import annotations

import pytest

from aiowheel.testing.simulation import explore

from .world import DurableWorld

pytestmark = [pytest.mark.one_build, pytest.mark.slow]


def test_durable_timers_keep_their_rules() -> None:
    """Across crashes of processes and of the store, stalls, lost connections and lost commits."""
    found = explore(DurableWorld, seeds=range(10))

    for kind in ("crash", "process stall", "store crash", "lost commits"):
        assert found.faults[kind] > 0
