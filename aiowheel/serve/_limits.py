"""The limits of the service: connections, waiting clients, topics, messages, times. Rank 5."""

from __future__ import annotations

import sys
from dataclasses import dataclass, fields

from aiowheel._arguments import safe_repr


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Limits of the service: an integer is at least 1, a float is above 0 and finite.

    Attributes:
        connections: Maximum number of open connections. The service refuses further ones.
        topics: Maximum number of topics.
        name_length: Maximum length of a topic's name, in characters.
        body_bytes: Maximum size of one message, in bytes.
        waiters: Maximum number of long polls and subscriptions that wait at the same time.
        waiters_per_client: Maximum number of them from one client address.
        timeout: Longest wait of a long poll, in seconds.
        heartbeat: Seconds without a message after which a subscriber gets a heartbeat.
        receive_timeout: Seconds within which a whole request, with its body, must arrive; also the
            seconds after which a connection is closed if its client has read nothing of a response.
        kept_seconds: Seconds for which a message is kept; also the seconds after which an unused
            topic is removed. A topic is unused while nothing is published to it and no client
            reads it or waits for it.
        kept_messages: Maximum number of messages kept per topic.
        kept_bytes: Maximum number of bytes kept per topic.
        kept_bytes_in_all: Maximum number of bytes kept over all topics. Above it, the topic whose
            last publish is oldest loses its oldest messages.

    Raises:
        TypeError: A limit has the wrong type.
        ValueError: A limit is out of range.
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
            is_float = field.type == "float"
            is_int = isinstance(value, int) and not isinstance(value, bool)
            if not is_int and not (is_float and isinstance(value, float)):
                kind = "a number of seconds" if is_float else "an int"
                raise TypeError(f"{field.name} must be {kind}, got {safe_repr(value)}")
            if not 0 < value <= sys.float_info.max:
                at_least = "above 0 and finite" if is_float else "at least 1"
                raise ValueError(f"{field.name} must be {at_least}, got {safe_repr(value)}")
