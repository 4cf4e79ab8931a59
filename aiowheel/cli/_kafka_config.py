"""The option for a Kafka with TLS or SASL. Rank 5."""

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import typer

from aiowheel.cli._options import path_of, refuse
from aiowheel.jobs.spark.uris import Topic, parse_uri

KafkaConfig = Annotated[
    Path | None,
    typer.Option(
        "--kafka-config",
        metavar="FILE",
        parser=path_of,
        help="Options of Kafka's client: a client.properties file.",
    ),
]


def options_of_topics(config: Path | None, uris: Iterable[str | None]) -> dict[str, str]:
    """Return the options of Spark's reader and writer for the topics of a command.

    Args:
        config: The value of ``--kafka-config``.
        uris: The places that the command reads and writes; None is skipped.

    Raises:
        BadInputError: The file cannot be used, or no place is a topic.
        MissingExtraError: The extra ``spark`` is not installed.
    """
    if config is None:
        return {}
    has_topic = any(isinstance(parse_uri(uri), Topic) for uri in uris if uri is not None)
    refuse({"--kafka-config": not has_topic}, "is for kafka://HOST:PORT/TOPIC")
    from aiowheel.jobs.spark.client_properties import read_client_properties

    return read_client_properties(config)
