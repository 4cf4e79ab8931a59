"""The command that replays a run: worlds, steps and faults as texts, and back. Rank 4."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterable
from contextlib import suppress
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from operator import attrgetter
from pathlib import Path

from aiowheel.errors import BadInputError, SimulationFailedError
from aiowheel.testing.simulation._run import Run
from aiowheel.testing.simulation._world import World
from aiowheel.testing.simulation.worlds import WORLDS


def command_of(run: Run) -> str:
    """Return the command line that repeats *run* in the current folder.

    A world inside a function, or of a program without a file, has no name that another process
    finds; the result is then the call that repeats the run.
    """
    name = name_of(run.world)
    if "<locals>" in name or name.startswith("__main__:"):
        return _call_of(run)
    words = ["python", "-m", "aiowheel.testing.simulation", "--world", name]
    words += ["--seed", str(run.seed), "--steps", steps_to_text(run.steps)]
    if run.kinds != run.world.faults:
        words += ["--faults", ",".join(sorted(run.kinds)) or "none"]
    return shlex.join(words)


def _call_of(run: Run) -> str:
    world = run.world.__qualname__.rpartition("<locals>.")[2]
    faults = "" if run.kinds == run.world.faults else f", faults={sorted(run.kinds)}"
    return f"simulate({world}, seed={run.seed}, steps={list(run.steps)}{faults})"


def name_of(world: type[World]) -> str:
    """Return the name under which `world_named` finds the class in the current folder."""
    address = f"{world.__module__}:{world.__qualname__}"
    for name, known in WORLDS.items():
        if known == address:
            return name
    path = Path(getattr(sys.modules.get(world.__module__), "__file__", None) or "")
    if path.suffix != ".py" or _is_found_here(world.__module__, path):
        return address
    shown = path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path
    return f"{shown}:{world.__qualname__}"


def _is_found_here(module: str, path: Path) -> bool:
    """Return whether `python -m` in the current folder finds the module of a package.

    The present process may find more: pytest changes its `sys.path`.
    """
    return "." in module and path == Path.cwd().joinpath(*module.split(".")).with_suffix(".py")


def world_named(name: str) -> type[World]:
    """Return the world with this name, `module:Class` or `path/to/file.py:Class`.

    Raises:
        BadInputError: There is no such world.
    """
    address = WORLDS.get(name, name)
    where, found, attribute = address.rpartition(":")
    if not found:
        raise BadInputError(
            f"world must be one of {sorted(WORLDS)}, module:Class or file.py:Class, got {name!r}"
        )
    try:
        module = _module_of_file(Path(where)) if where.endswith(".py") else import_module(where)
        world: object = attrgetter(attribute)(module)  # the class may be inside another one
    except Exception as error:  # whatever the module raises when it runs
        reason = f"{type(error).__name__}: {error}"
        if isinstance(error, ModuleNotFoundError):
            reason += "; if pytest's option pythonpath names its folder, add that to PYTHONPATH"
        raise BadInputError(f"world {name!r} cannot be loaded: {reason}") from error
    if not (isinstance(world, type) and issubclass(world, World)):
        raise BadInputError(f"world must be a subclass of World, got {world!r}")
    return world


def _module_of_file(path: Path) -> object:
    """Run a file as the module that it is, in its package if the folder is one."""
    folder, names = path.absolute().parent, [path.stem]
    while (folder / "__init__.py").exists():
        folder, names = folder.parent, [folder.name, *names]
    name = ".".join(names)
    spec = spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is no Python file")
    sys.path.insert(0, str(folder))  # before other packages of the same name
    sys.path.append(str(path.absolute().parent))  # the file may import its neighbours
    if spec.parent:
        import_module(spec.parent)
    module = module_from_spec(spec)
    sys.modules[name] = module
    with suppress(SimulationFailedError):  # of a call of `explore` below the classes
        spec.loader.exec_module(module)
    return module


def steps_to_text(steps: Iterable[int]) -> str:
    """Return the numbers of steps as ranges: `0-7,12`; `none` for no step."""
    ranges: list[list[int]] = []
    for number in steps:
        if ranges and ranges[-1][1] == number - 1:
            ranges[-1][1] = number
        else:
            ranges.append([number, number])
    words = [str(first) if first == last else f"{first}-{last}" for first, last in ranges]
    return ",".join(words) or "none"


def steps_from_text(text: str) -> tuple[int, ...]:
    """Return the numbers of steps in a text such as `0-7,12`.

    Raises:
        BadInputError: *text* is malformed.
    """
    numbers: set[int] = set()
    for word in () if text == "none" else text.split(","):
        first, dash, last = word.partition("-")
        try:
            steps = range(int(first), int(last if dash else first) + 1)
        except ValueError:
            steps = range(0)
        if not steps:
            raise BadInputError(f"steps must be numbers and ranges, 0-7,12, got {text!r}")
        numbers.update(steps)
    return tuple(sorted(numbers))
