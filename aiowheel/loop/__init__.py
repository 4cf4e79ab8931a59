"""Event loops whose own timers are on the wheel. Rank 3."""

from aiowheel.loop._loop_handle import LoopHandle as LoopHandle
from aiowheel.loop._mixin import WheelEventLoopMixin as WheelEventLoopMixin
from aiowheel.loop._run import WheelSelectorEventLoop as WheelSelectorEventLoop
from aiowheel.loop._run import new_event_loop as new_event_loop
from aiowheel.loop._run import run as run

__all__ = ("LoopHandle", "WheelEventLoopMixin", "WheelSelectorEventLoop", "new_event_loop", "run")
