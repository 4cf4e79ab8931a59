"""The rules of every world hold for the first seeds; `make simulate` runs many more."""

from __future__ import annotations

import pytest

from aiowheel.testing.simulation import World, explore
from aiowheel.testing.simulation._command import world_named
from aiowheel.testing.simulation.worlds import WORLDS

pytestmark = [pytest.mark.one_build, pytest.mark.slow]

#: Seeds of one world; with those of the worlds that have tests of their own, 200 in all.
EACH = 25


@pytest.mark.parametrize("name", WORLDS)
def test_a_world_keeps_its_rules(name: str) -> None:
    """For its share of the seeds, at a thousand times the speed of the clock or more."""
    found = explore(world_named(name), seeds=range(EACH))

    assert found.runs == EACH
    assert found.states > EACH
    assert found.faults.total() > EACH
    assert found.simulated_seconds > 3600 * EACH


@pytest.mark.parametrize("name", WORLDS)
def test_a_world_has_a_description(name: str) -> None:
    """Its class says what it is, and each step what it does."""
    world = world_named(name)

    assert issubclass(world, World)
    assert world.__doc__
    assert all(getattr(world, step).__doc__ for step, _ in world.steps())
