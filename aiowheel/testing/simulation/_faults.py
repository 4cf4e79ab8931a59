"""The faults that a simulation injects by itself. Rank 4."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from random import Random
from typing import Any, Final

from aiowheel._arguments import safe_repr
from aiowheel.errors import InjectedError
from aiowheel.testing.simulation._interruptible import Interruptible
from aiowheel.testing.simulation._loop import SimulationLoop

#: What may happen to any code: the order of ready callbacks is drawn, an alarm comes late, a
#: callback takes long, the machine sleeps for hours, a task is cancelled, an await raises.
COMMON_FAULTS: Final = frozenset({"reorder", "delay", "stall", "suspend", "cancel", "error"})
#: Besides: the clock is set back, which the clock of asyncio's loops never does.
ALL_FAULTS: Final = COMMON_FAULTS | {"step"}

#: Seconds that a slow callback takes: around the resolution, a slice of the wheel, a long one.
_STALLS = (1e-9, 1e-6, 0.001, 0.005, 0.05, 1.0, 30.0)
_SLEEPS = (60.0, 3_600.0, 30_000.0, 90_000.0)
_STEPS = (1e-9, 1e-6, 0.0005, 0.001, 0.7, 60.0)


class Victims:
    """The tasks of a world that faults may cancel or break, in the order of their start."""

    def __init__(self) -> None:
        self._tasks: dict[asyncio.Task[Any], Interruptible[Any]] = {}

    def add(self, task: asyncio.Task[Any], coroutine: Interruptible[Any]) -> None:
        """Add a task."""
        self._tasks[task] = coroutine

    def discard(self, task: asyncio.Task[Any]) -> None:
        """Remove a task that has ended."""
        self._tasks.pop(task, None)

    def tasks(self) -> list[asyncio.Task[Any]]:
        """Return the tasks that run."""
        return list(self._tasks)

    def strike(self, kind: str, chance: Random) -> str:
        """Cancel or break one task; return its name, or nothing if there is none to strike."""
        if not self._tasks:
            return ""
        task, coroutine = chance.choice(list(self._tasks.items()))
        if kind == "cancel":
            return task.get_name() if task.cancel() else ""
        return task.get_name() if coroutine.interrupt(InjectedError("injected")) else ""


def strike(kind: str, chance: Random, loop: SimulationLoop, victims: Victims) -> str:
    """Inject a fault of one of `ALL_FAULTS`; return what it was, or nothing if it cannot be."""
    if kind in {"cancel", "error"}:
        return victims.strike(kind, chance)
    if kind == "stall":
        seconds = chance.choice(_STALLS)
    elif kind == "suspend":
        seconds = chance.choice(_SLEEPS) * chance.random()
    elif kind == "step":
        seconds = -chance.choice(_STEPS)
    else:
        return ""  # the loop's own
    loop.stall(seconds)
    return f"{seconds!r} s"


def checked_kinds(faults: object, known: Iterable[str]) -> frozenset[str]:
    """Return the kinds of faults; None stands for all *known* ones.

    Raises:
        TypeError: *faults* is no collection of strings.
        ValueError: A kind is unknown.
    """
    legal = sorted(known)
    if faults is None:
        return frozenset(legal)
    if isinstance(faults, str) or not isinstance(faults, Iterable):
        raise TypeError(f"faults must be a collection of {legal}, got {safe_repr(faults)}")
    kinds: frozenset[object] = frozenset(faults)  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType] - checked below
    unknown = [each for each in kinds if each not in legal]
    if unknown:
        raise ValueError(f"faults must be of {legal}, got {safe_repr(unknown[0])}")
    return frozenset(each for each in legal if each in kinds)
