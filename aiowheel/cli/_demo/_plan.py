"""How big the demo is and how long its waits are. Rank 5."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class CrowdPlan:
    """Sizes of the web part; every time in seconds.

    Attributes:
        clients: Connections, at least 1.
        topics: What clients ask for; topic 0 is the most popular.
        poll_timeout: How long a request waits for news.
        publish_over: The events are spread over this span.
        idle_timeout: A connection without a request for longer than this counts as idle.
        ping_every: Pause between the requests of a client that keeps talking.
    """

    clients: int = 2_000
    topics: int = 100
    poll_timeout: float = 6.0
    publish_over: float = 2.0
    idle_timeout: float = 3.0
    ping_every: float = 0.8

    def topic_of(self, client: int) -> int:
        """The topic *client* asks for; a quarter of the topics draws half of the clients."""
        return int(self.topics * (client / self.clients) ** 2)

    def has_news(self, topic: int) -> bool:
        """Whether an event is published on *topic*: three of four get one."""
        return topic % 4 != 3

    def keeps_talking(self, client: int) -> bool:
        """Whether *client* sends further requests after its answer: one of ten does."""
        return client % 10 == 0


@dataclass(frozen=True)
class HoldPlan:
    """Sizes of the second part; every time in seconds.

    Attributes:
        operations: Held at once, at least 1.
        depots: Keys that events come on; operation i watches depot `i % depots`.
        owners: Every operation watches one of these keys too; owner 0 has the most.
        shortest_timeout: Timeouts are drawn between this and the next.
        longest_timeout: See above.
        events_over: The events are spread over this span.
    """

    operations: int = 100_000
    depots: int = 5_000
    owners: int = 977
    shortest_timeout: float = 5.0
    longest_timeout: float = 8.0
    events_over: float = 2.0

    def is_delivered(self, operation: int) -> bool:
        """Whether an event completes *operation*: nine of ten; the others time out."""
        # Spread over all depots, whatever the sizes.
        return (operation + operation // self.depots) % 10 != 9
