"""Where tables lie: Kafka topics, files, Delta tables, each named by a URI. Rank 5; no Spark."""

from __future__ import annotations

import os
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
    def local(self) -> Path | None:
        """Where it lies in the file systems of this machine; None if elsewhere."""
        return Path(self.path.removeprefix("file://")) if self.scheme == "file" else None

    @property
    def pattern(self) -> str:
        """The path for Spark's readers, as of `spark_path`."""
        return _escaped(self.path)


@dataclass(frozen=True, slots=True)
class Table:
    """A table of Delta Lake.

    Attributes:
        folder: Where its log and its files lie.
    """

    folder: Folder


Place = Topic | Folder | Table


def spark_path(path: str | os.PathLike[str]) -> str:
    """Write a path for Spark's readers, which take every path for a pattern.

    Unescaped, a folder named `run[1]` is another one or none: a job ends or finds the rows of a
    neighbour, a stream waits for ever. Absolute, for what stands before a colon would be a scheme.
    A name with such a sign and a colon is beyond Hadoop: it says so.
    """
    return _escaped(str(Path(path).absolute()))


def _escaped(path: str) -> str:
    return _GLOB.sub(r"\\\g<0>", path)


def local_path(uri: str) -> Path | None:
    """The file or folder of this machine that *uri* names, relative if it is; None if elsewhere.

    Raises:
        BadInputError: It is no URI.
    """
    place = parse_uri(uri)
    if not isinstance(place, Folder) or place.local is None:
        return None
    return place.local if uri.startswith("file://") else Path(uri)


def inside(uri: str, name: str) -> str:
    """The URI of the table *name* of several that have one place.

    Args:
        uri: Of a folder, or of a folder of Delta tables; the tables lie in it. Of the topic
            ``found`` the table ``outcomes`` is the topic ``found.outcomes``.
        name: Of the table.

    Raises:
        BadInputError: It is no URI.
    """
    if isinstance(parse_uri(uri), Topic):
        return f"{uri}.{name}"
    return f"{uri.rstrip('/')}/{name}"


def whole_uri(uri: str) -> str:
    """The one name of a place: of this machine's folders the path without links.

    Raises:
        BadInputError: It is no URI.
    """
    place = parse_uri(uri)
    if isinstance(place, Topic):
        return uri
    folder = place.folder if isinstance(place, Table) else place
    path = folder.path if folder.local is None else str(folder.local.resolve())
    return f"delta:{path}" if isinstance(place, Table) else path


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
