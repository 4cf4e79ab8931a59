"""Whether the Kafka of a topic answers. Rank 5; no Spark."""

from __future__ import annotations

import socket
from collections.abc import Iterable
from typing import Final

from aiowheel.errors import AiowheelError
from aiowheel.jobs.spark.uris import Topic, parse_uri

_ANSWER_SECONDS: Final = 5.0


def check_brokers(uris: Iterable[str]) -> None:
    """Raise if no server of a topic accepts a connection.

    Kafka's client itself would try for minutes, and its error names no server.

    Args:
        uris: URIs that `parse_uri` accepts.

    Raises:
        AiowheelError: No server of a topic accepts a connection.
        BadInputError: A URI is invalid.
    """
    places = map(parse_uri, uris)
    for servers in {place.servers: None for place in places if isinstance(place, Topic)}:
        _check_any(servers)


def _check_any(servers: str) -> None:
    reasons: list[str] = []
    for server in servers.split(","):
        host, _, port = server.rpartition(":")
        try:
            socket.create_connection((host.strip("[]"), int(port)), _ANSWER_SECONDS).close()
        except (OSError, UnicodeError) as error:  # the latter for a name that is no host's
            reasons.append(f"{server}: {getattr(error, 'strerror', None) or error}")
        else:
            return
    raise AiowheelError(f"no Kafka broker answers at {', '.join(reasons)}")
