"""Where tables lie: Kafka topics, files, Delta tables, each named by a URI. Rank 5; no Spark."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from aiowheel.errors import BadInputError

_SCHEME: Final = re.compile(r"([a-zA-Z][a-zA-Z0-9+.-]*)://")
_SERVER: Final = re.compile(r"(\[[0-9a-fA-F:.]+\]|[^:,/\[\]]+):([1-9][0-9]{0,4})")
_TOPIC: Final = re.compile(r"[a-zA-Z0-9._-]{1,249}")
_GLOB: Final = re.compile(r"[*?\[\]{}\\]")
_FORMS: Final = (
    "kafka://HOST:PORT[,HOST:PORT...]/TOPIC, s3a://BUCKET/PATH, hdfs://HOST/PATH, file:///PATH, "
    "a path, or one of the last four behind delta:"
)


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic of Kafka.

    Attributes:
        servers: ``HOST:PORT``, several with commas between.
        name: Of the topic.
    """

    servers: str
    name: str


@dataclass(frozen=True, slots=True)
class Folder:
    """A file or a folder of files.

    Attributes:
        path: A URI of Hadoop, or an absolute path.
        scheme: Of the URI; "file" where *path* is a path.
    """

    path: str
    scheme: str

    @property
    def pattern(self) -> str:
        """The path for Spark's readers, which take every path for a pattern."""
        return _GLOB.sub(r"\\\g<0>", self.path)


@dataclass(frozen=True, slots=True)
class Table:
    """A table of Delta Lake.

    Attributes:
        folder: Where its log and its files lie.
    """

    folder: Folder


Place = Topic | Folder | Table


def parse_uri(uri: str) -> Place:
    """Tell a topic, a folder and a Delta table apart.

    Args:
        uri: ``kafka://HOST:PORT[,HOST:PORT...]/TOPIC``, ``s3a://BUCKET/PATH``,
            ``hdfs://HOST/PATH``, ``file:///PATH`` or a path; ``delta:`` before one of the last four
            is the Delta table there.

    Raises:
        BadInputError: It is none of these.
    """
    if uri.startswith("delta:"):
        return Table(_folder(uri.removeprefix("delta:"), uri))
    if uri.startswith("kafka://"):
        return _topic(uri)
    return _folder(uri, uri)


def _topic(uri: str) -> Topic:
    servers, slash, name = uri.removeprefix("kafka://").partition("/")
    good = all(
        (match := _SERVER.fullmatch(server)) and int(match[2]) < 65_536
        for server in servers.split(",")
    )
    if not (good and slash and _TOPIC.fullmatch(name)) or name in {".", ".."}:
        raise BadInputError(f"URI must be kafka://HOST:PORT[,HOST:PORT...]/TOPIC, got {uri!r}")
    return Topic(servers, name)


def _folder(path: str, uri: str) -> Folder:
    match = _SCHEME.match(path)
    if match is None:
        if not path:
            raise BadInputError(f"URI must be {_FORMS}, got {uri!r}")
        return Folder(str(Path(path).absolute()), "file")
    scheme = match[1]
    rest = path[match.end() :]
    host, _, _ = rest.partition("/")
    if scheme == "file" and rest.startswith("/"):
        return Folder(path, scheme)
    if scheme in {"s3a", "hdfs"} and (host or scheme == "hdfs") and rest != host:
        return Folder(path, scheme)
    raise BadInputError(f"URI must be {_FORMS}, got {uri!r}")
