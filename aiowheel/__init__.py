"""O(1) timers, timeouts and delayed operations for asyncio."""

from aiowheel.wheel import TimerEntry as TimerEntry
from aiowheel.wheel import TimingWheel as TimingWheel

__all__ = ("TimerEntry", "TimingWheel")
