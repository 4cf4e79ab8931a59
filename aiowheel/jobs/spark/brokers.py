"""Whether the Kafka of a topic answers. Rank 5; no Spark."""

from __future__ import annotations

from collections.abc import Iterable

from aiowheel.errors import AiowheelError
from aiowheel.jobs.spark.servers import silent_servers
from aiowheel.jobs.spark.uris import Topic, parse_uri


def check_brokers(uris: Iterable[str]) -> None:
    """Raise if no server of a topic accepts a connection.

    Kafka's client itself would try for minutes, and its error names no server.

    Args:
        uris: URIs of folders, topics or Delta tables.

    Raises:
        AiowheelError: No server of a topic accepts a connection.
        BadInputError: A URI is invalid.
    """
    places = map(parse_uri, uris)
    for servers in {place.servers: None for place in places if isinstance(place, Topic)}:
        if reasons := silent_servers(servers):
            raise AiowheelError(f"no Kafka broker answers at {', '.join(reasons)}")
