"""O(1) timers, timeouts and delayed operations for asyncio.

wheel: the passive timing wheel. timer: the wheel on an event loop. purgatory: operations that wait
for a condition or a timeout. recipes: ready-made tools for servers.
"""

from typing import TYPE_CHECKING

from aiowheel._build import BuildInfo as BuildInfo
from aiowheel._build import __version__ as __version__
from aiowheel._build import accelerated as _accelerated
from aiowheel._build import build_info as build_info
from aiowheel.errors import AiowheelError as AiowheelError
from aiowheel.errors import ForeignLoopError as ForeignLoopError
from aiowheel.errors import IdleDetectorClosedError as IdleDetectorClosedError
from aiowheel.errors import PurgatoryClosedError as PurgatoryClosedError
from aiowheel.errors import PurgatoryFullError as PurgatoryFullError
from aiowheel.errors import TimerClosedError as TimerClosedError
from aiowheel.purgatory import DelayedOperation as DelayedOperation
from aiowheel.purgatory import Outcome as Outcome
from aiowheel.purgatory import Purgatory as Purgatory
from aiowheel.purgatory import PurgatoryStatistics as PurgatoryStatistics
from aiowheel.recipes import IdleDetector as IdleDetector
from aiowheel.timer import Histogram as Histogram
from aiowheel.timer import ManualTimer as ManualTimer
from aiowheel.timer import MoveOn as MoveOn
from aiowheel.timer import Periodic as Periodic
from aiowheel.timer import ThreadsafeHandle as ThreadsafeHandle
from aiowheel.timer import Timeout as Timeout
from aiowheel.timer import Timer as Timer
from aiowheel.timer import TimerHandle as TimerHandle
from aiowheel.timer import TimerStatistics as TimerStatistics
from aiowheel.timer import call_at as call_at
from aiowheel.timer import call_later as call_later
from aiowheel.timer import current_timer as current_timer
from aiowheel.timer import every as every
from aiowheel.timer import interval as interval
from aiowheel.timer import move_on_after as move_on_after
from aiowheel.timer import move_on_at as move_on_at
from aiowheel.timer import sleep as sleep
from aiowheel.timer import timeout as timeout
from aiowheel.timer import timeout_at as timeout_at
from aiowheel.timer import wait_for as wait_for
from aiowheel.wheel import TimerEntry as TimerEntry
from aiowheel.wheel import TimingWheel as TimingWheel
from aiowheel.wheel import WheelStatistics as WheelStatistics

if TYPE_CHECKING:
    from aiowheel.loop import WheelEventLoopMixin as WheelEventLoopMixin
    from aiowheel.loop import new_event_loop as new_event_loop
    from aiowheel.loop import run as run

#: Whether the compiled modules run; see `build_info`.
accelerated: bool = _accelerated()

# A program with a loop of its own uses none of these. Their package is imported at the first use,
# because each module adds to the time of `import aiowheel`.
_IN_LOOP = ("WheelEventLoopMixin", "new_event_loop", "run")


def __getattr__(name: str) -> object:
    if name not in _IN_LOOP:
        raise AttributeError(f"module 'aiowheel' has no attribute {name!r}")
    from aiowheel import loop

    value: object = getattr(loop, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_IN_LOOP})


__all__ = (
    "AiowheelError",
    "BuildInfo",
    "DelayedOperation",
    "ForeignLoopError",
    "Histogram",
    "IdleDetector",
    "IdleDetectorClosedError",
    "ManualTimer",
    "MoveOn",
    "Outcome",
    "Periodic",
    "Purgatory",
    "PurgatoryClosedError",
    "PurgatoryFullError",
    "PurgatoryStatistics",
    "ThreadsafeHandle",
    "Timeout",
    "Timer",
    "TimerClosedError",
    "TimerEntry",
    "TimerHandle",
    "TimerStatistics",
    "TimingWheel",
    "WheelEventLoopMixin",
    "WheelStatistics",
    "accelerated",
    "build_info",
    "call_at",
    "call_later",
    "current_timer",
    "every",
    "interval",
    "move_on_after",
    "move_on_at",
    "new_event_loop",
    "run",
    "sleep",
    "timeout",
    "timeout_at",
    "wait_for",
)
