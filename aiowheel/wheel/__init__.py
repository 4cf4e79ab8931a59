"""The hierarchical timing wheel: a caller moves its time and gets the due entries. Rank 0."""

from aiowheel.wheel._bucket import TimerEntry as TimerEntry
from aiowheel.wheel._heap import HeapWheel as HeapWheel
from aiowheel.wheel._statistics import LevelOccupancy as LevelOccupancy
from aiowheel.wheel._statistics import WheelStatistics as WheelStatistics
from aiowheel.wheel._wheel import TimingWheel as TimingWheel

__all__ = ("HeapWheel", "LevelOccupancy", "TimerEntry", "TimingWheel", "WheelStatistics")
