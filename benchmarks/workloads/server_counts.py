"""The counters of a measured server, and the type of its factory."""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass

BACKLOG = 4_096  # pending connections: the clients do not wait for each other


@dataclass(slots=True)
class ServerCounts:
    """Counts connections and messages.

    Attributes:
        open: Number of open connections.
        received: Number of received messages, one byte each.
        silenced: Number of connections closed because of silence.
    """

    open: int = 0
    received: int = 0
    silenced: int = 0


#: Opens a server with a limit of silence in seconds, and yields its port.
OpenServer = Callable[[ServerCounts, float], AbstractAsyncContextManager[int]]
