"""Durable timers keep their rules in a simulation of few seeds; `make simulate` runs more."""

from __future__ import annotations

import pytest

from aiowheel.testing.simulation import explore

from .world import DurableWorld

pytestmark = [pytest.mark.one_build, pytest.mark.slow]


def test_durable_timers_keep_their_rules() -> None:
    """The rules hold across crashes, stalls, lost connections and lost commits."""
    found = explore(DurableWorld, seeds=range(10))

    for kind in ("crash", "process stall", "store crash", "lost commits"):
        assert found.faults[kind] > 0
