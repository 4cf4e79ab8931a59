"""Files, folders, globs, gz and tar.gz as one run of open text streams. Rank 4."""

import contextlib
import glob
import gzip
import io
import os
import tarfile
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path, PurePath
from typing import IO, BinaryIO, Protocol, TextIO, cast

from aiowheel.errors import BadInputError
from aiowheel.readers._formats import Format, format_of

#: What reading a damaged or vanishing file raises.
READ_ERRORS = (EOFError, OSError, zlib.error, tarfile.TarError)

GZIP_MAGIC = b"\x1f\x8b"
_HIDDEN = (".", "_")  # Spark leaves files like _SUCCESS beside its tables
_ZEEK_MAGIC = b"#separator "
_PERHAPS_ZEEK = (Format.CLF, Format.TSV, None)
TAR_SUFFIXES = (".tar.gz", ".tgz")


@dataclass(frozen=True)
class Source:
    """One table: a file, or a member of a tar.

    Attributes:
        name: The path; for a member ``archive.tar.gz:path/inside``.
        format: How to split the text into fields.
        data: The open stream of its bytes, decompressed.
        lines_before: How many lines of the table stand before those of ``data``.
    """

    name: str
    format: Format
    data: BinaryIO
    lines_before: int = 0

    @cached_property  # it closes the stream when it goes, so it must not go before the table
    def text(self) -> TextIO:
        """The bytes as text, line ends untouched; what is no UTF-8 becomes lone surrogates."""
        return io.TextIOWrapper(
            self.data, encoding="utf-8-sig", errors="surrogateescape", newline=""
        )


class Sources(Protocol):
    """Tables to read, one after the other."""

    def sources(self) -> Iterator[Source]:
        """Open one table after the other; each is closed when the next is asked for.

        Raises:
            BadInputError: A file cannot be opened, is damaged, or has no known format.
        """
        ...


class Inputs:
    """The files behind a list of paths, each of which may be a file, a folder or a glob.

    A folder stands for every file inside, at any depth, hidden ones (``.name``, ``_name``) left
    out. A file reached twice is read once. Of a tar, the members whose suffix fits the format are
    taken, hidden ones left out.

    Args:
        patterns: Paths as the user wrote them, at least one.
        form: The format of every file, or None to go by each file's suffix.

    Attributes:
        paths: The files, archives not opened.
        format: The one format of them all, given, or the same for every file; else None.
        forced_format: As given.
        total_bytes: Their size on disk.

    Raises:
        BadInputError: A pattern matches nothing, or a folder or file cannot be read.
    """

    def __init__(self, patterns: Sequence[str], form: Format | None = None) -> None:
        found: dict[str, Path] = {}  # by the one name that a file has, however it is reached
        for path in (path for pattern in patterns for path in _expand(pattern)):
            found.setdefault(os.path.realpath(path), path)  # Path.resolve raises at a loop of links
        self.paths: tuple[Path, ...] = tuple(found.values())
        told = {form or _format_of_file(path) for path in self.paths}
        self.format: Format | None = told.pop() if len(told) == 1 else None
        self.forced_format: Format | None = form
        self._finished_bytes = 0
        self._open_file: io.BufferedReader | None = None
        try:
            self.total_bytes: int = sum(path.stat().st_size for path in self.paths)
        except OSError as error:
            raise BadInputError(f"{error.filename}: {error.strerror}") from error

    @property
    def bytes_read(self) -> int:
        """How many of ``total_bytes`` have been taken from the disk so far."""
        file = self._open_file
        at = file.tell() if file is not None and file.seekable() else 0  # a pipe cannot tell
        return self._finished_bytes + at

    def sources(self) -> Iterator[Source]:
        """Open one table after the other; each is closed when the next is asked for.

        Raises:
            BadInputError: A file cannot be opened, is damaged, or has no known format.
        """
        for path in self.paths:
            with opened(path) as raw:
                self._open_file = raw
                try:
                    yield from sources_of(str(path), raw, self.forced_format)
                finally:
                    self._finished_bytes = self.bytes_read
                    self._open_file = None


def sources_of(name: str, raw: io.BufferedReader, form: Format | None) -> Iterator[Source]:
    """Open the tables of one file: itself, or the members of an archive.

    Args:
        name: What messages call the file.
        raw: The open file, at its beginning.
        form: The format, or None to go by the suffix.

    Raises:
        BadInputError: It is damaged, or has no known format.
    """
    try:
        data = _unzipped(raw)
    except OSError as error:
        raise BadInputError(f"{name}: {error.strerror}") from error
    if name.endswith(TAR_SUFFIXES):
        yield from _members(name, data, form)
        return
    told = form or _format_told(name, data)
    if told is None:
        raise BadInputError(f"{name}: the name does not tell the format, give --format")
    yield Source(name, told, data)


def is_zeek(data: "_Peekable") -> bool:
    """Whether the bytes begin as a log of Zeek does."""
    return data.peek(len(_ZEEK_MAGIC))[: len(_ZEEK_MAGIC)] == _ZEEK_MAGIC


class _Peekable(Protocol):
    def peek(self, size: int, /) -> bytes: ...


def _format_told(name: str, data: BinaryIO) -> Format | None:
    """Tell the format by the name; of a log, or of a name that tells nothing, by the content."""
    told = format_of(name)
    if told in _PERHAPS_ZEEK:
        try:
            if is_zeek(cast("_Peekable", data)):
                return Format.ZEEK
        except READ_ERRORS as error:
            raise BadInputError(f"{name}: after line 0: {read_failure(error)}") from error
    return told


def _members(name: str, data: BinaryIO, form: Format | None) -> Iterator[Source]:
    taken = 0
    try:
        # tarfile's own gzip reader takes a truncated stream for a short one; ours raises.
        with tarfile.open(fileobj=data, mode="r|") as archive:
            for member in archive:
                content = archive.extractfile(member) if member.isfile() else None
                if content is None or PurePath(member.name).name.startswith("."):
                    continue
                inside = _unzipped(io.BufferedReader(_MemberBytes(content)))
                told = _format_of_member(f"{name}:{member.name}", inside, form)
                if told is not None:
                    taken += 1
                    yield Source(f"{name}:{member.name}", told, inside)
        while data.read(1 << 20):  # to the end, where gzip checks length and sum
            pass
    except READ_ERRORS as error:
        raise BadInputError(f"{name}: {read_failure(error)}") from error
    if taken == 0:
        wanted = form or "tsv, csv, ndjson, log or parquet"
        raise BadInputError(f"{name}: no {wanted} file inside")


def _format_of_member(name: str, data: BinaryIO, form: Format | None) -> Format | None:
    known = _format_told(name, data)
    if form is Format.CLF and known is None:
        return Format.CLF  # servers name their logs as they like: access_log
    return known if form in {None, known} else None


class _MemberBytes(io.RawIOBase):
    """A member of a streamed tar; tarfile's own object lacks `seekable` before Python 3.13."""

    def __init__(self, member: IO[bytes]) -> None:
        super().__init__()
        self._member = member

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: "memoryview") -> int:  # type: ignore[override]
        chunk = self._member.read(len(buffer))
        buffer[: len(chunk)] = chunk
        return len(chunk)


def read_failure(error: BaseException) -> str:
    """Say in a few words why reading failed with one of ``READ_ERRORS``."""
    if isinstance(error, EOFError):
        return "the compressed data ends too early, the file is truncated"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return f"damaged compressed data ({error})"


def _expand(pattern: str) -> list[Path]:
    if not pattern:  # of a variable that is not set, and no name for the current folder
        raise BadInputError("the name of an input is empty")
    try:
        # What exists goes before the glob: a name may hold brackets.
        # Path.glob wants the absolute part apart and drops "./".
        exists = Path(pattern).exists()
        names = [pattern] if exists else glob.glob(pattern, recursive=True)  # noqa: PTH207
        if not names:
            raise BadInputError(f"{pattern}: no such file")
        return [file for name in sorted(names) for file in _files_at(Path(name))]
    except OSError as error:  # not even whether it exists can be told
        raise BadInputError(f"{error.filename}: {error.strerror}") from error


def _files_at(path: Path) -> list[Path]:
    if not path.is_dir():
        return [path]

    def refuse(error: OSError) -> None:
        raise error

    found: list[Path] = []
    for parent, folders, names in os.walk(path, onerror=refuse):
        folders[:] = [name for name in folders if not name.startswith(_HIDDEN)]
        found += [Path(parent, name) for name in names if not name.startswith(_HIDDEN)]
    if not found:
        raise BadInputError(f"{path}: no file inside")
    return sorted(found)


def _format_of_file(path: Path) -> Format | None:
    if format_of(path.name) in _PERHAPS_ZEEK and not path.name.endswith(TAR_SUFFIXES):
        # Reading reports what cannot be opened or read; a pipe gives its bytes once.
        with contextlib.suppress(*READ_ERRORS, BadInputError):
            if path.is_file():
                with opened(path) as raw:
                    return _format_told(path.name, _unzipped(raw))
    return format_of(path.name)


def opened(path: Path) -> io.BufferedReader:
    """Open a file to read its bytes; what the disk refuses is a `BadInputError`."""
    try:
        return path.open("rb")
    except OSError as error:
        raise BadInputError(f"{path}: {error.strerror}") from error


def _unzipped(data: io.BufferedReader) -> BinaryIO:
    if data.peek(2)[:2] == GZIP_MAGIC:
        return cast("BinaryIO", gzip.GzipFile(fileobj=data))
    return data
