"""Every world keeps its rules for the first seeds; `make simulate` runs many more."""

from __future__ import annotations

import pytest

from aiowheel.testing.simulation import World, explore
from aiowheel.testing.simulation._command import world_named
from aiowheel.testing.simulation.worlds import WORLDS

pytestmark = [pytest.mark.one_build, pytest.mark.slow]

#: Seeds of one world; together with the worlds that have their own tests, about 200 seeds.
EACH = 25


@pytest.mark.parametrize("name", WORLDS)
def test_a_world_keeps_its_rules(name: str) -> None:
    """The rules hold for each seed, at a thousand times the speed of real time or more."""
    found = explore(world_named(name), seeds=range(EACH))

    assert found.runs == EACH
    assert found.states > EACH
    assert found.faults.total() > EACH
    assert found.simulated_seconds > 3600 * EACH


@pytest.mark.parametrize("name", WORLDS)
def test_a_world_has_a_description(name: str) -> None:
    """The class and each step have docstrings."""
    world = world_named(name)

    assert issubclass(world, World)
    assert world.__doc__
    assert all(getattr(world, step).__doc__ for step, _ in world.steps())
