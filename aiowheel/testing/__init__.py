"""Virtual time for tests: an event loop whose clock jumps, and a timer moved by hand. Rank 4.

Sources: trio's MockClock, tokio's paused time and looptime.
"""

from aiowheel.errors import NotVirtualError as NotVirtualError
from aiowheel.errors import VirtualDeadlockError as VirtualDeadlockError
from aiowheel.testing._clock import VirtualClock as VirtualClock
from aiowheel.testing._loop import VirtualClockEventLoop as VirtualClockEventLoop
from aiowheel.timer import ManualTimer as ManualTimer

__all__ = (
    "ManualTimer",
    "NotVirtualError",
    "VirtualClock",
    "VirtualClockEventLoop",
    "VirtualDeadlockError",
)
