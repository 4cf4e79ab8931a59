"""Delayed operations that complete when a watched key says so, or when their time is up. Rank 2."""

from aiowheel.purgatory._outcome import Outcome as Outcome
from aiowheel.purgatory._purgatory import Purgatory as Purgatory
from aiowheel.purgatory._statistics import PurgatoryStatistics as PurgatoryStatistics
from aiowheel.purgatory.operation import DelayedOperation as DelayedOperation

__all__ = ("DelayedOperation", "Outcome", "Purgatory", "PurgatoryStatistics")
