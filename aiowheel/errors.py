"""The errors that this package defines, except for `aiowheel.client.TopicRefusedError`. Rank 0.

All have one base class, and a parent from the standard library where one fits. A text names the
bad value and the legal range.
"""


class AiowheelError(Exception):
    """Base of all errors of this package."""


class BadInputError(AiowheelError, ValueError):
    """An input file, column or option value cannot be used; the command line exits with 2."""


class MissingExtraError(AiowheelError, ModuleNotFoundError):
    """An optional dependency is not installed; the text is the command that installs it."""

    def __init__(self, extra: str) -> None:
        """Name the extra, as in `pip install 'aiowheel[extra]'`."""
        super().__init__(extra)
        self.extra = extra

    def __str__(self) -> str:
        text = f"this needs: pip install 'aiowheel[{self.extra}]'"
        cause = self.__cause__
        if cause is None or isinstance(cause, ModuleNotFoundError):
            return text
        return f"{text} ({type(cause).__name__}: {cause})"  # for example a broken installation


class TimerClosedError(AiowheelError, RuntimeError):
    """The timer has been closed, or was never entered."""


class ForeignLoopError(AiowheelError, RuntimeError):
    """A timer or purgatory was used from an event loop or thread that it does not belong to."""


class IdleDetectorClosedError(AiowheelError, RuntimeError):
    """The idle detector has been closed."""


class PurgatoryClosedError(AiowheelError, RuntimeError):
    """The purgatory has been closed."""


class PurgatoryFullError(AiowheelError, RuntimeError):
    """The purgatory already holds `max_pending` operations; the new one was not registered."""

    def __init__(self, name: str, max_pending: int) -> None:
        """Name the purgatory and its limit."""
        super().__init__(name, max_pending)
        self.name: str = name
        self.max_pending: int = max_pending

    def __str__(self) -> str:
        return f"purgatory {self.name!r} holds its max_pending of {self.max_pending} operations"


class EpochChangedError(AiowheelError, RuntimeError):
    """The store of shared counters lost its history; the earlier values of counters are unknown.

    Read the data again, and wait with a new token or threshold.
    """


class StoreUnavailableError(AiowheelError, ConnectionError):
    """The store of shared counters does not answer; the same call may succeed later."""


class SharedCountersClosedError(AiowheelError, RuntimeError):
    """The shared counters have been closed, or were never entered."""


class DurableTimersClosedError(AiowheelError, RuntimeError):
    """The durable timers have been closed, or were never entered."""


class StoreError(AiowheelError, RuntimeError):
    """The store of durable timers cannot be used at the moment, or refused a call.

    After a call that changes data, the change may have happened or not.
    """


class StoreVersionError(StoreError):
    """The tables of a store have another version than this library, or other partitions."""


class BadRowError(StoreError, ValueError):
    """The database refuses a value, such as a text that it cannot encode."""


class TimerExistsError(AiowheelError, ValueError):
    """A durable timer of that name is pending already, and `if_exists` is "error"."""

    def __init__(self, name: str) -> None:
        """Name the timer."""
        super().__init__(name)
        self.name: str = name

    def __str__(self) -> str:
        return f"a durable timer named {self.name!r} is pending already"


class UnknownHandlerError(AiowheelError, LookupError):
    """A durable timer is due whose handler this process has not registered."""


class StaleFireError(AiowheelError, RuntimeError):
    """A fire no longer belongs to this process, or its timer was replaced: roll back."""


class NotVirtualError(AiowheelError, RuntimeError):
    """A virtual clock was used on an event loop that runs on the real clock."""


class VirtualDeadlockError(AiowheelError, RuntimeError):
    """No callback of a virtual loop is ready, and no timer or event can make one ready."""

    def __init__(self, time: float, timers: str, waiting: list[str]) -> None:
        """Name the time in seconds, the timers that cannot fire, and each waiting task."""
        super().__init__(time, timers, waiting)
        self.time: float = time
        self.timers: str = timers
        self.waiting: list[str] = waiting

    def __str__(self) -> str:
        count = len(self.waiting)
        text = (
            f"deadlock at {self.time} s: no callback is ready, and no timer, I/O or executor job "
            f"is left that could make one ready{self.timers}; waiting tasks: {count}"
        )
        lines = [text, *(f"  {each}" for each in self.waiting[:20])]
        if count > 20:
            lines.append(f"  and {count - 20} more")
        return "\n".join(lines)


class InjectedError(AiowheelError, RuntimeError):
    """An error that a simulation raises at an await, or a world in a step, to test its handling."""


class SimulationFailedError(AiowheelError, AssertionError):
    """A simulated run broke a rule of its world; the text has the command that replays it."""

    def __init__(self, text: str, seed: int) -> None:
        """Take the report of the run, and its seed."""
        super().__init__(text, seed)
        self.text: str = text
        self.seed: int = seed

    def __str__(self) -> str:
        return self.text
