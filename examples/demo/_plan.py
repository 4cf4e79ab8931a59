"""The sizes and times of the demo."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class CrowdPlan:
    """Sizes of part 1; all times are in seconds.

    Attributes:
        clients: Number of connections, at least 1.
        topics: Number of topics; topic 0 is the most popular.
        poll_timeout: Timeout of a request.
        publish_over: Time over which the messages are published.
        idle_timeout: A connection without a request for longer than this is idle.
        ping_every: Pause between the requests of an active client.
    """

    clients: int = 2_000
    topics: int = 100
    poll_timeout: float = 6.0
    publish_over: float = 2.0
    idle_timeout: float = 3.0
    ping_every: float = 0.8

    def topic_of(self, client: int) -> int:
        """Return the topic of *client*; half of the clients share a quarter of the topics."""
        return int(self.topics * (client / self.clients) ** 2)

    def has_news(self, topic: int) -> bool:
        """Return whether *topic* gets a message, as three of four topics do."""
        return topic % 4 != 3

    def keeps_talking(self, client: int) -> bool:
        """Return whether *client* sends requests after its answer, as one of ten clients does."""
        return client % 10 == 0


@dataclass(frozen=True)
class HoldPlan:
    """Sizes of part 2; all times are in seconds.

    Attributes:
        operations: Number of operations that are pending at the same time, at least 1.
        depots: Number of keys that get events; operation i watches depot `i % depots`.
        owners: Number of further keys, one of which each operation watches; owner 0 has the most.
        shortest_timeout: Lower bound of the random timeouts.
        longest_timeout: Upper bound of the random timeouts.
        events_over: Time over which the events are spread.
    """

    operations: int = 100_000
    depots: int = 5_000
    owners: int = 977
    shortest_timeout: float = 5.0
    longest_timeout: float = 8.0
    events_over: float = 2.0

    def is_delivered(self, operation: int) -> bool:
        """Return whether an event completes *operation*, as for nine of ten operations."""
        # The sum spreads the timeouts over all depots, for any sizes.
        return (operation + operation // self.depots) % 10 != 9
