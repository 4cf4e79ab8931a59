"""Every world keeps its rules for the first seeds; `make simulate` runs many more."""

from __future__ import annotations

import asyncio
import gc
from typing import Any, cast

import pytest

from aiowheel import Purgatory, Timer
from aiowheel.testing.simulation import SimulationFailedError, World, explore
from aiowheel.testing.simulation._command import world_named
from aiowheel.testing.simulation.worlds import WORLDS
from aiowheel.testing.simulation.worlds._purgatory import PurgatoryWorld
from aiowheel.testing.simulation.worlds._timer import SharedTimerWorld
from aiowheel.testing.simulation.worlds._wheel_loop import WheelLoopWorld

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


class EarlyTimer:
    """A timer one of whose methods takes half of its delay once a world has set the clock."""

    def __init__(self, timer: Timer, world: World, method: str) -> None:
        self._timer = timer
        self._world = world
        self._method = method

    def __len__(self) -> int:
        return len(self._timer)

    def __getattr__(self, name: str) -> Any:
        right = getattr(self._timer, name)
        if name != self._method or not self._world._trace.faults["step"]:
            return right

        def early(delay: float, *args: Any, **options: Any) -> Any:
            return right(delay / 2, *args, **options)

        return early


@pytest.mark.parametrize(
    ("method", "text"),
    [("sleep", "slept .* less"), ("timeout", "timed out .* early"), ("every", "tick .* early")],
)
def test_a_timer_that_is_early_after_a_step_of_the_clock_is_found(method: str, text: str) -> None:
    """An earlier fault excuses no later deadline."""

    class Early(SharedTimerWorld):
        """A world of the wrong timer."""

        async def open_timer(self) -> Timer:
            """Return the wrong timer."""
            return cast(Timer, EarlyTimer(await super().open_timer(), self, method))

    with pytest.raises(SimulationFailedError, match=text):
        explore(Early, seeds=range(EACH))


def test_a_timeout_that_is_early_after_an_injected_error_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An earlier fault excuses no later timeout."""
    worlds: list[World] = []
    timeout = asyncio.timeout

    class Early(WheelLoopWorld):
        """A world whose timeouts are wrong after a fault."""

        async def setup(self) -> None:
            """Note the world of this run."""
            await super().setup()
            worlds[:] = [self]

    def early(delay: float) -> asyncio.Timeout:
        return timeout(delay / 2 if worlds[0]._trace.faults["error"] else delay)

    monkeypatch.setattr(asyncio, "timeout", early)
    with pytest.raises(SimulationFailedError, match=r"a get timed out early|a timeout ended early"):
        explore(Early, seeds=range(EACH))


class OneTooMany:
    """A purgatory whose checks count one operation too many once an operation has failed."""

    def __init__(self, purgatory: Purgatory) -> None:
        self._purgatory = purgatory

    def __len__(self) -> int:
        return len(self._purgatory)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._purgatory, name)

    def check_and_complete(self, key: str, **options: Any) -> int:
        """Check a key."""
        more = self._purgatory.statistics().failed > 0 and not options
        return self._purgatory.check_and_complete(key, **options) + more


@pytest.mark.filterwarnings("ignore:unclosed <Timer:ResourceWarning")  # of runs that fail
def test_a_check_that_counts_one_too_many_after_a_failure_is_found() -> None:
    """An operation that failed earlier excuses no wrong count."""

    class Wrong(PurgatoryWorld):
        """A world of the wrong purgatory."""

        async def setup(self) -> None:
            """Open the wrong purgatory."""
            await super().setup()
            self.purgatory = cast(Purgatory, OneTooMany(self.purgatory))

    with pytest.raises(SimulationFailedError, match="a check returned 1, but 0 operations ended"):
        explore(Wrong, seeds=range(EACH))
    gc.collect()  # while the warnings are ignored
