"""One run of a world with a seed, and its result. Rank 4."""

from __future__ import annotations

import asyncio
import gc
import random
from asyncio.events import _get_running_loop
from collections.abc import Callable, Generator, Hashable, Iterable, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import import_module
from inspect import isawaitable
from random import Random
from time import perf_counter
from typing import Any

from aiowheel._arguments import checked_int, safe_repr
from aiowheel.testing._deadlock import waiting_lines
from aiowheel.testing.simulation._faults import ALL_FAULTS, Victims, checked_kinds, strike
from aiowheel.testing.simulation._loop import SimulationLoop
from aiowheel.testing.simulation._trace import Trace
from aiowheel.testing.simulation._world import World, is_injected

#: The default number of steps of a run.
STEPS = 50
_MOST_STEPS = 1_000_000
#: The share of the kinds of faults in the run of one seed: a fault may hide a bug that others show.
_SWARM = 0.7
_FAULTS_PER_STEP = 0.3
#: The longest pauses between two steps, in seconds: none, below and above a tick, and up to hours.
_PAUSES = (0.0, 0.0, 0.0, 1e-6, 0.0004, 0.001, 0.02, 0.3, 2.0, 2.0, 10.0, 60.0, 900.0, 20_000.0)


@dataclass(frozen=True, slots=True)
class Run:
    """The result of `simulate`.

    Attributes:
        world: The class of the world.
        seed: The seed.
        steps: The numbers of the steps that were in the run.
        kinds: The kinds of faults that were allowed.
        trace: The events of the run, one line each: nanoseconds of the clock, the turn of the loop,
            and a text. The same arguments give the same bytes, on one version of Python and of this
            library, as long as asyncio's debug mode is on or off in all runs.
        error: The error that broke a rule, or None.
        simulated_seconds: The simulated time of the run, in seconds.
        seconds: The real time of the run, in seconds.
        faults: The number of injected faults, by kind.
        states: The different states that the world had after its steps.
    """

    world: type[World]
    seed: int
    steps: tuple[int, ...]
    kinds: frozenset[str]
    trace: bytes
    error: BaseException | None
    simulated_seconds: float
    seconds: float
    faults: Mapping[str, int] = field(repr=False)
    states: frozenset[Hashable] = field(repr=False)


def simulate(
    world: type[World],
    *,
    seed: int,
    steps: int | Iterable[int] = STEPS,
    faults: Iterable[str] | None = None,
) -> Run:
    """Run a world once, with all choices drawn from *seed*.

    A broken rule raises nothing here; it is the `error` of the result. The garbage collector is
    disabled during the run, because finalizers would run at different moments each time.

    Args:
        world: The class of the world.
        seed: Any integer.
        steps: The number of steps, or the ascending numbers of the steps to make. A step makes the
            same choices whichever other steps are left out.
        faults: The kinds of faults that may happen; default: all kinds of the world. Each seed uses
            some of them.

    Raises:
        TypeError: An argument has the wrong type.
        ValueError: An argument is out of range, or the world has no steps.
        RuntimeError: A loop is running in this thread.
    """
    checked_world(world)
    if isinstance(seed, bool) or not isinstance(seed, int):  # pyright: ignore[reportUnnecessaryIsInstance] - users pass anything
        raise TypeError(f"seed must be an integer, got {safe_repr(seed)}")
    if _get_running_loop() is not None:
        raise RuntimeError("simulate must be called where no event loop runs: it runs its own")
    numbers = checked_steps(steps)
    kinds = checked_kinds(faults, world.faults)
    began = perf_counter()
    with _repeatable(seed):
        play = _Play(world, seed, numbers, kinds)
        error = play.run()
        return Run(
            *(world, seed, numbers, kinds, play.trace.as_bytes(), error),
            simulated_seconds=play.loop.time() - play.start,
            seconds=perf_counter() - began,
            faults=dict(sorted(play.trace.faults.items())),
            states=frozenset(play.states),
        )


def checked_world(world: type[World]) -> None:
    """Raise an error unless *world* is a subclass of `World` with steps."""
    if not _is_world(world):
        raise TypeError(f"world must be a subclass of World, got {safe_repr(world)}")
    if not world.steps():
        raise ValueError(f"world must have a method marked with step, got {world.__name__}")


def _is_world(value: object) -> bool:
    return isinstance(value, type) and issubclass(value, World)


def checked_steps(steps: object) -> tuple[int, ...]:
    """Return the numbers of the steps; an integer *steps* is the number of steps from 0."""
    if isinstance(steps, Iterable) and not isinstance(steps, str):
        numbers: list[Any] = list(steps)  # pyright: ignore[reportUnknownArgumentType]
        for each in numbers:
            checked_int("steps", each, 0, _MOST_STEPS)
        if numbers != sorted(set(numbers)):
            raise ValueError(f"steps must be ascending numbers, got {safe_repr(numbers)}")
        return tuple(numbers)
    return tuple(range(checked_int("steps", steps, 0, _MOST_STEPS)))


@contextmanager
def _repeatable(seed: int) -> Generator[None]:
    """Disable the garbage collector and seed the module `random`, so that runs are equal."""
    import_module("structlog")  # imports rich, which draws random numbers, at the first event
    collects, state = gc.isenabled(), random.getstate()
    gc.disable()
    random.seed(seed)
    try:
        yield
    finally:
        random.setstate(state)
        if collects:
            gc.enable()


def _chance(*words: object) -> Random:
    # A text as seed gives the same numbers on every machine, whatever the seed of `hash`.
    return Random(" ".join(map(str, words)))  # noqa: S311 - repeatable on purpose


def _error_of(call: Callable[[], object]) -> BaseException | None:
    """Call a function and return its exception, or None."""
    try:
        call()
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # also those of pytest.fail, sys.exit and a cancellation
        return error
    return None


async def _left_generators_closed() -> None:
    """Wait for the tasks in which the loop closes asynchronous generators that were left."""
    while True:
        for _ in range(2):  # until the loop has created the tasks
            await asyncio.sleep(0)
        closing = [
            task
            for task in asyncio.all_tasks()
            if type(task.get_coro()).__name__ == "async_generator_athrow"  # of `aclose`
        ]
        if not closing:
            return
        await asyncio.wait(closing)


class _Play:
    """A run in progress."""

    def __init__(
        self, world: type[World], seed: int, steps: tuple[int, ...], kinds: frozenset[str]
    ) -> None:
        self._seed = seed
        self._numbers = steps
        # Each kind has its own draw, so that leaving one out does not change the others.
        active = [kind for kind in sorted(kinds) if _chance(seed, kind).random() < _SWARM]
        self._kinds = frozenset(active)
        self._striking = [kind for kind in active if kind not in {"reorder", "delay"}]
        chance = _chance(seed, "start")
        self.start = chance.choice(world.starts)
        self.loop: SimulationLoop = world.loop_class(seed=seed, kinds=active, start=self.start)
        self.loop.set_exception_handler(self._on_report)
        self.trace = Trace(self.loop)
        self.states: set[Hashable] = set()
        self._victims = Victims()
        self._world_class = world
        self._chance = chance
        self._names = [name for name, weight in world.steps() for _ in range(weight)]

    def run(self) -> BaseException | None:
        """Run to the end; return the error that broke a rule, or None."""
        runner = asyncio.Runner(loop_factory=lambda: self.loop)
        error = _error_of(self._begin)
        if error is None:
            error = _error_of(lambda: runner.run(self._play()))
        if error is not None:
            self.trace.note(f"failed {type(error).__name__}")
            self.loop.idle = list  # the rules need not hold while the failed run is closed
        self.loop.limit_turns(self._world_class.most_turns, "closing the loop")
        error_of_closing = _error_of(runner.close)
        if error is None:
            error = error_of_closing
        if error is None:
            error = _error_of(self._world.closed)
        self.loop.close()
        return error

    def _begin(self) -> None:
        world = self._world = self._world_class()
        world.random = self._chance
        world.begin(self.loop, self.trace, self._victims, self._kinds)
        self.loop.idle = world.idle

    async def _play(self) -> None:
        world, trace = self._world, self.trace
        most, limit_turns = world.most_turns, self.loop.limit_turns
        limit_turns(most, "setup")
        await world.setup()
        for number in self._numbers:
            chance = world.random = _chance(self._seed, "step", number)
            pause = min(chance.choice(_PAUSES), world.longest_pause) * chance.random()
            if self._striking and chance.random() < _FAULTS_PER_STEP:
                self.loop.call_later(pause * chance.random(), self._strike_soon, chance.random())
            name = chance.choice(self._names)
            # A pause lasts for hours, in which correct code may make any number of turns.
            limit_turns(most, f"an instant before step {number}", at_one_instant=True)
            await asyncio.sleep(pause)
            limit_turns(most, f"step {number} {name}")
            trace.note(f"step {number} {name}")
            result = getattr(world, name)()
            if isawaitable(result):
                await result
            world.check()
            self.states.add(world.state())
        limit_turns(most, "finish")
        trace.note("finish")
        await world.finish()
        await world.settle()
        await _left_generators_closed()
        left = waiting_lines(asyncio.all_tasks() - {asyncio.current_task()})
        lines = [f"tasks that have not ended at the end: {len(left)}", *left[:5]]
        assert not left, "\n  ".join(lines)
        trace.note("end")

    def _strike_soon(self, draw: float) -> None:
        # A fault must not strike inside the slice in which a wheel loop runs its timers.
        self.loop.call_soon(self._strike, draw)

    def _strike(self, draw: float) -> None:
        chance = _chance(self._seed, "fault", draw)
        kind = chance.choice(self._striking)
        if kind in ALL_FAULTS:
            what = strike(kind, chance, self.loop, self._victims)
            if what:
                self.trace.fault(kind, what)
        else:
            self.trace.fault(kind)
            self._world.strike(kind)

    def _on_report(self, _: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if error is None:
            self.loop.fail(AssertionError(context.get("message", "the loop reported an error")))
        elif not is_injected(error):
            self.loop.fail(error)
