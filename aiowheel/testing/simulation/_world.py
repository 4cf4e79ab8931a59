"""A world: the code under simulation, the steps that use it, and the rules it must keep. Rank 4."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Hashable
from random import Random
from typing import Any, ClassVar, TypeVar, overload

from aiowheel._arguments import checked_int
from aiowheel._types import Delay
from aiowheel.errors import InjectedError
from aiowheel.testing.simulation._faults import COMMON_FAULTS, Victims
from aiowheel.testing.simulation._interruptible import Interruptible
from aiowheel.testing.simulation._loop import SimulationLoop
from aiowheel.testing.simulation._other_thread import call_in_other_thread
from aiowheel.testing.simulation._trace import Trace

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., object])

_WEIGHT = "_simulation_weight"


@overload
def step(method: F) -> F: ...


@overload
def step(*, weight: int) -> Callable[[F], F]: ...


def step(method: F | None = None, *, weight: int = 1) -> F | Callable[[F], F]:
    """Mark a method of a `World` as a step; a plain or a coroutine function without arguments.

    Args:
        method: The method, where `step` is used without parentheses.
        weight: How often the step is drawn, compared with the others, from 1 to 1000.

    Raises:
        ValueError: *weight* is out of range.
        TypeError: *weight* is not an integer.
    """
    times = checked_int("weight", weight, 1, 1000)

    def mark(function: F) -> F:
        setattr(function, _WEIGHT, times)
        return function

    return mark if method is None else mark(method)


class World:
    """The base class of worlds: derive one, and give it to `simulate` or `explore`.

    A run makes an object of the class, calls `setup`, then steps in a drawn order with drawn pauses
    and faults in between, and `finish`. All of it happens on one `SimulationLoop`, whose clock
    jumps. A rule is broken when a method raises, when a task that `spawn` started raises something
    other than the injected error, when the loop's exception handler gets anything else, when every
    task waits for ever, or when a task is left at the end.

    Everything drawn must come from `random` or `happens`; the module `random` is seeded as well.
    What depends on the real clock, on the memory address of objects or on the order of a set is not
    repeated by the seed.

    Attributes:
        faults: The kinds of faults that may happen; a world adds kinds of its own, which it injects
            in `strike` or asks for with `happens`.
        loop_class: The class of the loop.
        starts: The readings of the clock of which one is drawn for a run, in seconds.
        longest_pause: Seconds between two steps, at most; less where something polls all the time.
        random: The random numbers of the present step, repeated whatever other steps are left out.
        loop: The loop of the run.
    """

    faults: ClassVar[frozenset[str]] = COMMON_FAULTS
    loop_class: ClassVar[type[SimulationLoop]] = SimulationLoop
    starts: ClassVar[tuple[float, ...]] = (0.0,)
    longest_pause: ClassVar[float] = 20_000.0
    _steps: ClassVar[tuple[tuple[str, int], ...]] = ()

    random: Random
    loop: SimulationLoop
    _trace: Trace
    _victims: Victims
    _kinds: frozenset[str]

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        found: dict[str, int] = {}
        for owner in reversed(cls.__mro__):
            for name, value in vars(owner).items():
                weight = getattr(value, _WEIGHT, None)
                if weight is not None:
                    found[name] = weight
        cls._steps = tuple(found.items())

    # --- what a world overrides -------------------------------------------------------------

    async def setup(self) -> None:
        """Make what is under simulation."""

    def check(self) -> None:
        """Assert what holds after every step."""

    def idle(self) -> None:
        """Assert what holds when nothing is ready to run, before the clock moves."""

    def strike(self, kind: str) -> None:
        """Inject a fault of the world's own kinds."""

    async def finish(self) -> None:
        """Close everything, and assert what holds at the end; the default is `settle`."""
        await self.settle()

    def closed(self) -> None:
        """Assert what holds after the loop was closed."""

    def state(self) -> Hashable:
        """Return a short description of the state, to count the different ones that were seen."""
        return None

    # --- what a world calls -----------------------------------------------------------------

    @property
    def now_ns(self) -> int:
        """The clock in whole nanoseconds."""
        return self.loop.now_ns

    def note(self, text: str) -> None:
        """Add a line to the trace; it must be the same whenever the run is repeated."""
        self._trace.note(text)

    def happens(self, kind: str, share: float = 0.5) -> bool:
        """Draw whether a fault of the world's own kinds happens now, and count it.

        Args:
            kind: One of `faults`; False if the run leaves it out.
            share: The probability.
        """
        if kind not in self._kinds or self.loop.chance.random() >= share:
            return False
        self._trace.fault(kind)
        return True

    def spawn(self, coroutine: Coroutine[Any, Any, T], name: str) -> asyncio.Task[T]:
        """Run a coroutine in a task that faults may cancel or break.

        Args:
            coroutine: A client of what is under simulation; it may end with CancelledError and
                `InjectedError`. Any other exception fails the run.
            name: Of the task, for the trace.
        """
        wrapped = Interruptible(coroutine)
        task = self.loop.create_task(wrapped, name=name)
        self._victims.add(task, wrapped)
        task.add_done_callback(self._on_end)
        return task

    def in_thread(self, function: Callable[[], T]) -> T:
        """Call *function* in another thread while the loop's thread waits; return its result."""
        return call_in_other_thread(function)

    def stall(self, seconds: Delay) -> None:
        """Let time pass inside the running callback, as a slow one does."""
        self.loop.stall(seconds)

    async def settle(self) -> None:
        """Wait until the tasks of `spawn` have ended."""
        while tasks := self._victims.tasks():
            await asyncio.wait(tasks)

    # --- what a run calls -------------------------------------------------------------------

    def begin(
        self, loop: SimulationLoop, trace: Trace, victims: Victims, kinds: frozenset[str]
    ) -> None:
        """Take the parts of a run; `simulate` calls this before `setup`."""
        self.loop = loop
        self._trace = trace
        self._victims = victims
        self._kinds = kinds

    @classmethod
    def steps(cls) -> tuple[tuple[str, int], ...]:
        """Return the name and the weight of each step, in the order of definition."""
        return cls._steps

    def _on_end(self, task: asyncio.Task[Any]) -> None:
        self._victims.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None and not is_injected(error):
            self.loop.fail(error)


def is_injected(error: BaseException) -> bool:
    """Return whether an exception, or each one of a group, comes from the simulation itself."""
    if isinstance(error, BaseExceptionGroup):
        parts: tuple[BaseException, ...] = error.exceptions  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
        return all(is_injected(each) for each in parts)
    return isinstance(error, InjectedError)
