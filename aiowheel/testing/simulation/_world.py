"""A world: the code under simulation, the steps that use it, and the rules it must keep. Rank 4."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Hashable
from inspect import iscoroutinefunction
from random import Random
from typing import Any, ClassVar, TypeVar, overload

from aiowheel._arguments import checked_int, safe_repr
from aiowheel._callbacks import called_or_awaited, plain_callback
from aiowheel._types import Delay
from aiowheel.errors import InjectedError
from aiowheel.testing.simulation._faults import COMMON_FAULTS, Victims
from aiowheel.testing.simulation._interruptible import Interruptible
from aiowheel.testing.simulation._loop import MOST_TURNS, SimulationLoop
from aiowheel.testing.simulation._other_thread import call_in_other_thread
from aiowheel.testing.simulation._trace import Trace

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., object])

_WEIGHT = "_simulation_weight"
#: The methods that a run calls without awaiting them, and those that it awaits.
_PLAIN = ("check", "idle", "strike", "closed", "state")
_AWAITED = ("setup", "finish")


@overload
def step(method: F) -> F: ...


@overload
def step(*, weight: int) -> Callable[[F], F]: ...


def step(method: F | None = None, *, weight: int = 1) -> F | Callable[[F], F]:
    """Mark a method of a `World` as a step; a plain or a coroutine function without arguments.

    Args:
        method: The method, if `step` is used without parentheses.
        weight: The relative frequency of the step, from 1 to 1000.

    Raises:
        ValueError: *weight* is out of range.
        TypeError: *weight* is not an integer, or the method is a generator function, of which a
            call runs nothing.
    """
    times = checked_int("weight", weight, 1, 1000)

    def mark(function: F) -> F:
        called_or_awaited("a step", function)
        setattr(function, _WEIGHT, times)
        return function

    return mark if method is None else mark(method)


class World:
    """The base class of worlds, for subclasses that `simulate` and `explore` run.

    A run creates an object of the class, calls `setup`, then steps in a drawn order with drawn
    pauses and faults in between, and `finish`. All of this runs on one `SimulationLoop`, whose
    clock jumps. A rule is broken in these cases:

    - A method raises.
    - A task that `spawn` started raises another error than the injected one.
    - The loop's exception handler gets another error than the injected one.
    - All tasks wait, and no timer is pending.
    - A task has not ended at the end.

    A run also fails with an `AssertionError` if one of its parts takes more than `most_turns` turns
    of the loop: a callback that repeats endlessly would never let it end.

    All choices must come from `random` or `happens`; the module `random` is seeded as well. Code
    that depends on the real clock, on the memory address of objects or on the order of a set does
    not repeat with the seed. Neither does the first run in a process, if it imports a module that
    draws random numbers: import such a module before.

    `setup` and `finish` are coroutine functions, a step may be one; the others are plain functions.

    Raises:
        TypeError: A subclass defines `check`, `idle`, `strike`, `closed` or `state` as a coroutine
            function, which would not be awaited, or `setup` or `finish` as another function.

    Attributes:
        faults: The kinds of faults that may happen. A world may add its own kinds, which it injects
            in `strike` or draws with `happens`.
        loop_class: The class of the loop.
        starts: First readings of the clock in seconds, of which one is drawn for each run.
        longest_pause: The longest pause between two steps, in seconds; use less for code that
            polls.
        most_turns: The most turns of the loop in each of `setup`, a step and `finish`, and at one
            instant of a pause. Use more if a method waits for hours while a timer fires often.
        random: The random numbers of the current step, the same whichever other steps are left out.
        loop: The loop of the run.
    """

    faults: ClassVar[frozenset[str]] = COMMON_FAULTS
    loop_class: ClassVar[type[SimulationLoop]] = SimulationLoop
    starts: ClassVar[tuple[float, ...]] = (0.0,)
    longest_pause: ClassVar[float] = 20_000.0
    most_turns: ClassVar[int] = MOST_TURNS
    _steps: ClassVar[tuple[tuple[str, int], ...]] = ()

    random: Random
    loop: SimulationLoop
    _trace: Trace
    _victims: Victims
    _kinds: frozenset[str]

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        for name in _PLAIN:
            plain_callback(name, getattr(cls, name), "await in a step or in finish")
        for name in _AWAITED:
            if not iscoroutinefunction(method := getattr(cls, name)):
                raise TypeError(f"{name} must be a coroutine function, got {safe_repr(method)}")
        found: dict[str, int] = {}
        for owner in reversed(cls.__mro__):
            for name, value in vars(owner).items():
                weight = getattr(value, _WEIGHT, None)
                if weight is not None:
                    found[name] = weight
        cls._steps = tuple(found.items())

    # --- methods that a world overrides -----------------------------------------------------

    async def setup(self) -> None:
        """Create the objects under simulation."""

    def check(self) -> None:
        """Assert the rules that hold after every step."""

    def idle(self) -> None:
        """Assert the rules that hold when no callback is ready, before the clock moves."""

    def strike(self, kind: str) -> None:
        """Inject a fault of one of the world's own kinds."""

    async def finish(self) -> None:
        """Close everything, and assert the rules that hold at the end; the default is `settle`."""
        await self.settle()

    def closed(self) -> None:
        """Assert the rules that hold after the loop was closed."""

    def state(self) -> Hashable:
        """Return a short description of the state; a run counts the different ones."""
        return None

    # --- methods that a world calls ---------------------------------------------------------

    @property
    def now_ns(self) -> int:
        """The clock in whole nanoseconds."""
        return self.loop.now_ns

    def note(self, text: str) -> None:
        """Add a line to the trace; the text must be the same in each repetition of the run."""
        self._trace.note(text)

    def happens(self, kind: str, share: float = 0.5) -> bool:
        """Draw whether a fault of one of the world's own kinds happens now, and count it.

        Args:
            kind: One of `faults`; if the run does not have it, the result is False.
            share: The probability.
        """
        if kind not in self._kinds or self.loop.chance.random() >= share:
            return False
        self._trace.fault(kind)
        return True

    def spawn(self, coroutine: Coroutine[Any, Any, T], name: str) -> asyncio.Task[T]:
        """Run a coroutine in a task that faults may cancel or interrupt.

        Args:
            coroutine: A client of the objects under simulation. It may end with CancelledError or
                `InjectedError`; any other exception fails the run.
            name: The name of the task, for the trace.
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
        """Let time pass inside the running callback, as in a slow callback."""
        self.loop.stall(seconds)

    async def settle(self) -> None:
        """Wait until the tasks of `spawn` have ended."""
        while tasks := self._victims.tasks():
            await asyncio.wait(tasks)

    # --- methods that a run calls -----------------------------------------------------------

    def begin(
        self, loop: SimulationLoop, trace: Trace, victims: Victims, kinds: frozenset[str]
    ) -> None:
        """Store the parts of a run; `simulate` calls this before `setup`."""
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
    """Return whether an exception, or each exception of a group, was injected by the simulation."""
    if isinstance(error, BaseExceptionGroup):
        parts: tuple[BaseException, ...] = error.exceptions  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
        return all(is_injected(each) for each in parts)
    return isinstance(error, InjectedError)
