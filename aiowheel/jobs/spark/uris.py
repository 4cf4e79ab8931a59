"""URIs of tables: Kafka topics, files and Delta tables. Rank 5; no Spark."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

from aiowheel._printable import scheme_only
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
    """A Kafka topic.

    Attributes:
        servers: ``HOST:PORT``, several separated by commas.
        name: The name of the topic.
    """

    servers: str
    name: str


@dataclass(frozen=True, slots=True)
class Folder:
    """A file or a folder of files.

    Attributes:
        path: A Hadoop URI, or an absolute path.
        scheme: The scheme of the URI; "file" if *path* is a path.
    """

    path: str
    scheme: str

    @property
    def local(self) -> Path | None:
        """The path on this machine; None if the folder is elsewhere."""
        return Path(self.path.removeprefix("file://")) if self.scheme == "file" else None

    @property
    def for_spark(self) -> str:
        """The URI for Spark; see `spark_file`."""
        return self.path if self.local is None else spark_file(self.local)

    @property
    def pattern(self) -> str:
        """The URI for Spark's readers; see `spark_path`."""
        return _escaped(self.for_spark)


@dataclass(frozen=True, slots=True)
class Table:
    """A Delta Lake table.

    Attributes:
        folder: The folder of its log and its files.
    """

    folder: Folder


Place = Topic | Folder | Table


def spark_file(path: str | os.PathLike[str]) -> str:
    """Return the absolute path on this machine for Spark, with the scheme ``file:``.

    Spark takes a path without a scheme for one in Hadoop's default file system, which on many
    clusters is HDFS, and text before a colon for a scheme. After the scheme Hadoop reads the path
    literally: `%20` does not mean a blank.
    """
    return f"file://{Path(path).absolute()}"


def spark_path(path: str | os.PathLike[str]) -> str:
    """Return the URI of `spark_file` for Spark's readers, which read every path as a pattern.

    Unescaped, a folder named `run[1]` matches another folder or none: a job fails or reads the rows
    of another folder, a stream waits forever. For a name with a pattern character and a colon,
    Hadoop raises an error.
    """
    return _escaped(spark_file(path))


def _escaped(path: str) -> str:
    return _GLOB.sub(r"\\\g<0>", path)


def file_name(url: str) -> str:
    """Return the file that Spark names by a URL: a path if it is local, otherwise the URL."""
    parts = urlsplit(url)
    return unquote(parts.path if parts.scheme in {"", "file"} else url)


def local_path(uri: str) -> Path | None:
    """Return the local file or folder that *uri* names, possibly relative; None if elsewhere.

    Raises:
        BadInputError: The URI is invalid.
    """
    place = parse_uri(uri)
    if not isinstance(place, Folder) or place.local is None:
        return None
    return place.local if uri.startswith("file://") else Path(uri)


def inside(uri: str, name: str) -> str:
    """Return the URI of the table *name* in a common place of several tables.

    Args:
        uri: The URI of a folder, possibly of Delta tables, which contains the tables; or of a
            topic: for the topic ``found``, the table ``outcomes`` is the topic ``found.outcomes``.
        name: The name of the table.

    Raises:
        BadInputError: The URI is invalid.
    """
    if isinstance(parse_uri(uri), Topic):
        return f"{uri}.{name}"
    return f"{uri.rstrip('/')}/{name}"


def is_inside(uri: str, outer: str) -> bool:
    """Return whether *uri* names the place *outer*, or a place inside this folder.

    A Delta table counts as the folder of its files.

    Raises:
        BadInputError: A URI is invalid.
    """
    if isinstance(parse_uri(uri), Topic) or isinstance(parse_uri(outer), Topic):
        return uri == outer
    path, folder = (
        f"{whole_uri(each).removeprefix('delta:').rstrip('/')}/" for each in (uri, outer)
    )
    return path.startswith(folder)


def whole_uri(uri: str) -> str:
    """Return the canonical URI of a place; for a local folder, its path without links.

    Raises:
        BadInputError: The URI is invalid.
    """
    place = parse_uri(uri)
    if isinstance(place, Topic):
        return uri
    folder = place.folder if isinstance(place, Table) else place
    path = folder.path if folder.local is None else str(folder.local.resolve())
    return f"delta:{path}" if isinstance(place, Table) else path


def parse_uri(uri: str) -> Place:
    """Parse the URI of a topic, a folder or a Delta table.

    Args:
        uri: ``kafka://HOST:PORT[,HOST:PORT...]/TOPIC``, ``s3a://BUCKET/PATH``,
            ``hdfs://HOST/PATH``, ``file:///PATH`` or a path; the prefix ``delta:`` before one of
            the last four means the Delta table there.

    Raises:
        BadInputError: The URI has another form.
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
        legal = "kafka://HOST:PORT[,HOST:PORT...]/TOPIC"
        raise BadInputError(f"URI must be {legal}, got {scheme_only(uri)}")
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
    raise BadInputError(f"URI must be {_FORMS}, got {scheme_only(uri)}")
