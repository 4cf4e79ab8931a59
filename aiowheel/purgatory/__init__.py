"""Delayed operations: each completes when its condition is met at a check of a key, or expires.

The docstring of each module names its rank; docs/explanation/layers.md explains the ranks.
"""

from aiowheel.purgatory._delayed_operation import DelayedOperation as DelayedOperation
from aiowheel.purgatory._operation import Outcome as Outcome
from aiowheel.purgatory._purgatory import Purgatory as Purgatory
from aiowheel.purgatory._statistics import PurgatoryStatistics as PurgatoryStatistics

__all__ = ("DelayedOperation", "Outcome", "Purgatory", "PurgatoryStatistics")
