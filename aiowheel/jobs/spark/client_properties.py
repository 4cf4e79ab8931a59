"""The options of Kafka's client in a file of properties. Rank 5; no Spark."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from aiowheel.errors import BadInputError, MissingExtraError

try:
    import javaproperties
except ImportError as _error:
    raise MissingExtraError("spark") from _error

_SERVERS: Final = "bootstrap.servers"
#: What Spark or this package sets; another value would lose rows, or Spark refuses it.
_OURS: Final = frozenset(
    {
        "auto.offset.reset",
        "enable.auto.commit",
        "group.id",
        "interceptor.classes",
        "isolation.level",
        "key.deserializer",
        "key.serializer",
        "transactional.id",
        "value.deserializer",
        "value.serializer",
    }
)


def read_client_properties(path: Path) -> dict[str, str]:
    """Read a file such as Kafka's own commands take with ``--command-config``.

    Args:
        path: A file in the format of Java properties, in ISO-8859-1.

    Returns:
        The options for Spark's reader and writer of topics, whose names begin with ``kafka.``.
        ``bootstrap.servers`` is left out, because a topic's URI has the servers.

    Raises:
        BadInputError: The file cannot be read, is malformed, or has an option that the jobs set
            themselves. The error has no value of an option, because these may be secret.
        MissingExtraError: The extra ``spark`` is not installed.
    """
    try:
        with path.open("rb") as file:
            properties: dict[str, str] = javaproperties.load(file)
    except OSError as error:
        raise BadInputError(f"{path}: {error.strerror}") from error
    except javaproperties.InvalidUEscapeError as error:
        raise BadInputError(f"{path}: a backslash and u must precede four hex digits") from error
    properties.pop(_SERVERS, None)
    if ours := sorted(_OURS & properties.keys()):
        raise BadInputError(f"{path}: {', '.join(ours)}: aiowheel sets this option itself")
    return {f"kafka.{name}": value for name, value in properties.items()}
