"""Deterministic simulation: seeds draw the order, the time and the faults of a run. Rank 4.

Sources: FoundationDB's simulator; swarm testing; delta debugging.
"""

from aiowheel.errors import InjectedError as InjectedError
from aiowheel.errors import SimulationFailedError as SimulationFailedError
from aiowheel.testing.simulation._explore import Exploration as Exploration
from aiowheel.testing.simulation._explore import explore as explore
from aiowheel.testing.simulation._faults import ALL_FAULTS as ALL_FAULTS
from aiowheel.testing.simulation._faults import COMMON_FAULTS as COMMON_FAULTS
from aiowheel.testing.simulation._loop import SimulationLoop as SimulationLoop
from aiowheel.testing.simulation._loop import SimulationWheelLoop as SimulationWheelLoop
from aiowheel.testing.simulation._run import Run as Run
from aiowheel.testing.simulation._run import simulate as simulate
from aiowheel.testing.simulation._shrink import shrink as shrink
from aiowheel.testing.simulation._world import World as World
from aiowheel.testing.simulation._world import step as step

__all__ = (
    "ALL_FAULTS",
    "COMMON_FAULTS",
    "Exploration",
    "InjectedError",
    "Run",
    "SimulationFailedError",
    "SimulationLoop",
    "SimulationWheelLoop",
    "World",
    "explore",
    "shrink",
    "simulate",
    "step",
)
