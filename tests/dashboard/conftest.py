"""An operation that waits without a timeout."""

from aiowheel import DelayedOperation


class Unmet(DelayedOperation[None]):
    """An operation whose condition is never met."""

    def try_complete(self) -> bool:
        """Return False."""
        return False
