"""Where the connections of the idle benchmark are. Rank 5."""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass

BACKLOG = 4_096  # connections that may wait to be accepted: the clients do not wait for each other


@dataclass(slots=True)
class Hall:
    """Counts what comes and goes.

    Attributes:
        open: Connections.
        received: Messages, a byte each.
        silenced: Connections closed for their silence.
    """

    open: int = 0
    received: int = 0
    silenced: int = 0


#: Opens a server whose connections may be silent for so many seconds, and gives its port.
Doors = Callable[[Hall, float], AbstractAsyncContextManager[int]]
