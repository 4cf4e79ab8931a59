"""What the service allows, and how much it keeps. Rank 5."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Every bound of the service; each is at least 1.

    Attributes:
        connections: Connections that are open at once; more are refused.
        topics: Topics that exist at once.
        name_length: Characters of a topic's name.
        body_bytes: Bytes of one message.
        waiters: Long polls and subscriptions that wait at once.
        waiters_per_client: The same of one address.
        timeout: Longest wait of a long poll, in seconds.
        heartbeat: Seconds of silence after which a subscriber gets a heartbeat.
        receive_timeout: Seconds within which a request must have arrived, body included, and that
            may pass without any progress of an answer that its client is slow to take.
        kept_seconds: Seconds that a message is kept, and a topic that is not used: it gets no
            message, and no client asks or waits for it.
        kept_messages: Messages kept of one topic.
        kept_bytes: Bytes kept of one topic.
        kept_bytes_in_all: Bytes kept of all topics; beyond, the topic that was published to longest
            ago loses its oldest messages.
    """

    connections: int = 18_000
    topics: int = 10_000
    name_length: int = 200
    body_bytes: int = 65_536
    waiters: int = 16_000
    waiters_per_client: int = 10_000
    timeout: int = 120
    heartbeat: float = 20.0
    receive_timeout: float = 10.0
    kept_seconds: float = 86_400.0
    kept_messages: int = 1_000
    kept_bytes: int = 1_048_576
    kept_bytes_in_all: int = 268_435_456

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            least = 0 if field.type == "float" else 1
            if not (value >= least and value > 0) or not math.isfinite(value):
                at_least = "above 0 and finite" if field.type == "float" else "at least 1"
                raise ValueError(f"{field.name} must be {at_least}, got {value!r}")
