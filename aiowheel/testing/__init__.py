"""Virtual time for tests: a loop whose clock jumps, and a timer that a test advances. Rank 4.

Sources: trio's MockClock, tokio's paused time and looptime.
"""

from aiowheel.errors import NotVirtualError as NotVirtualError
from aiowheel.errors import VirtualDeadlockError as VirtualDeadlockError
from aiowheel.testing._clock import VirtualClock as VirtualClock
from aiowheel.testing._loop import VirtualClockEventLoop as VirtualClockEventLoop
from aiowheel.testing._memory_counters import MemoryCounters as MemoryCounters
from aiowheel.testing._store_checks import counter_store_checks as counter_store_checks
from aiowheel.timer import ManualTimer as ManualTimer

__all__ = (
    "ManualTimer",
    "MemoryCounters",
    "NotVirtualError",
    "VirtualClock",
    "VirtualClockEventLoop",
    "VirtualDeadlockError",
    "counter_store_checks",
)
