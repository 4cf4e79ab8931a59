"""An operation that waits for ever."""

from aiowheel import DelayedOperation


class Asked(DelayedOperation[None]):
    """Its condition is never met."""

    def try_complete(self) -> bool:
        """Not yet."""
        return False
