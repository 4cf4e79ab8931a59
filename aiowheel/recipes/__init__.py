"""Ready-made uses of timers for servers, one per file. Rank 3."""

from aiowheel.recipes.idle_detector import IdleDetector as IdleDetector

__all__ = ("IdleDetector",)
