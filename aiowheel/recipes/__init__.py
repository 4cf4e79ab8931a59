"""Ready-made tools for servers that use timers, one in each file. Rank 3."""

from aiowheel.recipes.idle_detector import IdleDetector as IdleDetector

__all__ = ("IdleDetector",)
