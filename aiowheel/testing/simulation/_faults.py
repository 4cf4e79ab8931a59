"""The faults that a simulation injects into every world. Rank 4."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from random import Random
from typing import Any, Final

from aiowheel._arguments import safe_repr
from aiowheel.errors import InjectedError
from aiowheel.testing.simulation._interruptible import Interruptible
from aiowheel.testing.simulation._loop import SimulationLoop

#: Faults that any code may meet: "reorder": ready callbacks run in a drawn order; "delay": a timer
#: fires late; "stall": a callback takes long; "suspend": the machine sleeps for hours; "cancel": a
#: task is cancelled; "error": an await raises.
COMMON_FAULTS: Final = frozenset({"reorder", "delay", "stall", "suspend", "cancel", "error"})
#: The common faults and "step", which sets the clock back; the clock of asyncio's loops never does.
ALL_FAULTS: Final = COMMON_FAULTS | {"step"}

#: Seconds that a slow callback takes: near the clock's resolution, near a slice of the wheel, long.
_STALLS = (1e-9, 1e-6, 0.001, 0.005, 0.05, 1.0, 30.0)
_SLEEPS = (60.0, 3_600.0, 30_000.0, 90_000.0)
_STEPS = (1e-9, 1e-6, 0.0005, 0.001, 0.7, 60.0)


class Victims:
    """The tasks that faults may cancel or interrupt, in the order in which they were started."""

    def __init__(self) -> None:
        self._tasks: dict[asyncio.Task[Any], Interruptible[Any]] = {}

    def add(self, task: asyncio.Task[Any], coroutine: Interruptible[Any]) -> None:
        """Add a task."""
        self._tasks[task] = coroutine

    def discard(self, task: asyncio.Task[Any]) -> None:
        """Remove a task that has ended."""
        self._tasks.pop(task, None)

    def tasks(self) -> list[asyncio.Task[Any]]:
        """Return the tasks that have not ended."""
        return list(self._tasks)

    def strike(self, kind: str, chance: Random) -> str:
        """Cancel or interrupt one task; return its name, or "" if that was not possible."""
        if not self._tasks:
            return ""
        task, coroutine = chance.choice(list(self._tasks.items()))
        if kind == "cancel":
            return task.get_name() if task.cancel() else ""
        return task.get_name() if coroutine.interrupt(InjectedError("injected")) else ""


def strike(kind: str, chance: Random, loop: SimulationLoop, victims: Victims) -> str:
    """Inject a fault of `ALL_FAULTS`; return its description, or "" if it was not possible."""
    if kind in {"cancel", "error"}:
        return victims.strike(kind, chance)
    if kind == "stall":
        seconds = chance.choice(_STALLS)
    elif kind == "suspend":
        seconds = chance.choice(_SLEEPS) * chance.random()
    elif kind == "step":
        seconds = -chance.choice(_STEPS)
    else:
        return ""  # the loop injects the other kinds itself
    loop.stall(seconds)
    return f"{seconds!r} s"


def checked_kinds(faults: object, known: Iterable[str]) -> frozenset[str]:
    """Return the kinds of faults; None stands for all *known* ones.

    Raises:
        TypeError: *faults* is not a collection of strings.
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
