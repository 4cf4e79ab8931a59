"""What servers build on timers, ready made; one recipe a file. Rank 3."""

from aiowheel.recipes.idle_detector import IdleDetector as IdleDetector

__all__ = ("IdleDetector",)
