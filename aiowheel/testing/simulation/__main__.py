"""The command line program, which explores worlds or replays one run. Rank 4."""

from __future__ import annotations

import argparse
import sys
import traceback
from collections.abc import Sequence
from dataclasses import dataclass, field

from aiowheel._arguments import checked_int
from aiowheel._build import build_info
from aiowheel._outputs import drop_standard_output
from aiowheel.errors import BadInputError, SimulationFailedError
from aiowheel.testing.simulation._command import steps_from_text, world_named
from aiowheel.testing.simulation._explore import Exploration, explore
from aiowheel.testing.simulation._faults import checked_kinds
from aiowheel.testing.simulation._run import STEPS, simulate
from aiowheel.testing.simulation._world import World
from aiowheel.testing.simulation.worlds import WORLDS

_HOUR = 3600.0
_MOST_SEEDS = 10**9


@dataclass
class Options:
    """The arguments of the command line."""

    worlds: list[str] = field(default_factory=list[str])
    seed: int | None = None
    seeds: int = 1000
    first: int = 0
    steps: str = ""
    faults: str = ""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the program and return its exit status.

    Returns:
        0: no rule was broken. 1: a rule was broken. 2: an argument is wrong, or the output cannot
        be written. 130: interrupted.
    """
    options = _parsed(arguments)
    try:
        names = [each for name in options.worlds or ["all"] for each in _expanded(name)]
        worlds = {name: world_named(name) for name in names}
        steps = steps_from_text(options.steps) if options.steps else tuple(range(STEPS))
        faults = _faults_of(options.faults)
        if options.seed is not None:
            (world,) = worlds.values() if len(worlds) == 1 else (None,)
            if world is None:
                raise BadInputError("--seed needs one --world")
            code = _replay(world, options.seed, steps, faults)
        else:
            code = _explore_all(worlds, options, steps, faults)
        sys.stdout.flush()
    except (ValueError, TypeError) as error:
        print(f"simulation: {error}", file=sys.stderr)
        return 2
    except OSError as error:
        print(f"simulation: {error}", file=sys.stderr)
        drop_standard_output()
        return 2
    except KeyboardInterrupt:
        print("simulation: interrupted", file=sys.stderr)
        return 130
    return code


def _parsed(arguments: Sequence[str] | None) -> Options:
    parser = argparse.ArgumentParser(
        prog="python -m aiowheel.testing.simulation",
        description="Run worlds with many seeds, or one run again with --seed.",
    )
    names = ", ".join(WORLDS)
    parser.add_argument(
        "--world",
        dest="worlds",
        action="append",
        help=f"all (the default), {names}; module:Class or file.py:Class for your own; may be "
        "given several times",
    )
    parser.add_argument("--seed", type=int, help="replay this seed and print its trace")
    parser.add_argument("--seeds", type=int, help="how many seeds, shared by the worlds")
    parser.add_argument("--first", type=int, help="the first seed")
    parser.add_argument("--steps", help="the numbers of the steps, such as 0-7,12")
    parser.add_argument("--faults", help="the kinds of faults, such as stall,cancel; or none")
    given = {
        name: value
        for name, value in vars(parser.parse_args(arguments)).items()
        if value is not None
    }
    if "seed" in given and not given.keys().isdisjoint({"seeds", "first"}):
        parser.error("--seed must be without --seeds and --first: it replays one run")
    return Options(**given)


def _expanded(name: str) -> list[str]:
    return list(WORLDS) if name == "all" else [name]


def _faults_of(text: str) -> tuple[str, ...] | None:
    if not text:
        return None
    return () if text == "none" else tuple(text.split(","))


def _replay(
    world: type[World], seed: int, steps: tuple[int, ...], faults: tuple[str, ...] | None
) -> int:
    run = simulate(world, seed=seed, steps=steps, faults=faults)
    print(run.trace.decode(), end="")
    if run.error is None:
        print(f"seed {seed} breaks no rule")
        return 0
    traceback.print_exception(run.error)
    return 1


def _explore_all(
    worlds: dict[str, type[World]],
    options: Options,
    steps: tuple[int, ...],
    faults: tuple[str, ...] | None,
) -> int:
    checked_int("seeds", options.seeds, 1, _MOST_SEEDS)
    known = {kind for world in worlds.values() for kind in world.faults}
    kinds = checked_kinds(faults, known)
    build = "compiled" if build_info().accelerated else "pure"
    print(f"aiowheel {build_info().version}, {build} build, {options.seeds} seeds")
    print(f"{'world':<14}{'seeds':>7}{'hours':>12}{'faults':>10}{'states':>9}{'x real time':>13}")
    total = Exploration()
    for place, (name, world) in enumerate(worlds.items()):
        # The worlds share the seeds, and each seed runs once.
        seeds = range(options.first + place, options.first + options.seeds, len(worlds))
        try:
            found = explore(world, seeds=seeds, steps=steps, faults=kinds & world.faults)
        except SimulationFailedError as failure:
            print(failure)
            return 1
        _print_row(name, found)
        total.merge(found)
    _print_row("all", total)
    injected = ", ".join(f"{count:,} {kind}" for kind, count in sorted(total.faults.items()))
    print(f"faults: {injected or 'none'}")
    return 0


def _print_row(name: str, found: Exploration) -> None:
    hours = found.simulated_seconds / _HOUR
    faults = found.faults.total()
    print(
        f"{name.rpartition(':')[2]:<14}{found.runs:>7,}{hours:>12,.0f}{faults:>10,}"
        f"{found.states:>9,}{found.ratio:>13,.0f}",
        flush=True,
    )


if __name__ == "__main__":
    sys.exit(main())
