"""Files, folders, globs, gzip and tar archives, opened as one sequence of byte streams. Rank 4."""

import contextlib
import glob
import gzip
import io
import os
import re
import tarfile
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import filterfalse
from pathlib import Path, PurePath
from typing import IO, BinaryIO, Protocol, TextIO, cast

from aiowheel._arguments import safe_repr
from aiowheel.errors import BadInputError
from aiowheel.readers._formats import Format, checked_member, format_of

#: The errors that reading a damaged or vanishing file raises.
READ_ERRORS = (EOFError, OSError, zlib.error, tarfile.TarError)

GZIP_MAGIC = b"\x1f\x8b"
HIDDEN = (".", "_")  # Spark writes files such as _SUCCESS beside its tables
#: The first bytes of files that other programs have compressed.
_OTHER_MAGICS = {
    "bzip2": re.compile(rb"BZh[1-9](1AY&SY|\x17rE8P\x90)"),
    "xz": re.compile(rb"\xfd7zXZ\x00"),
    "zstd": re.compile(rb"\x28\xb5\x2f\xfd"),
}
_ZEEK_MAGIC = b"#separator "
_PERHAPS_ZEEK = (Format.CLF, Format.TSV, None)
TAR_SUFFIXES = (".tar.gz", ".tgz")


@dataclass(frozen=True)
class Source:
    """One table: a file, or a member of a tar.

    Attributes:
        name: The path; ``archive.tar.gz:path/inside`` for a member of an archive.
        format: The layout of the rows.
        data: The open stream of the decompressed bytes.
        lines_before: Number of lines of the table before the first line of ``data``.
    """

    name: str
    format: Format
    data: BinaryIO
    lines_before: int = 0

    @cached_property  # the wrapper closes the stream when it is freed, so the table must keep it
    def text(self) -> TextIO:
        """The bytes as text with unchanged line ends; invalid UTF-8 becomes lone surrogates."""
        return io.TextIOWrapper(
            self.data, encoding="utf-8-sig", errors="surrogateescape", newline=""
        )


class Sources(Protocol):
    """A sequence of tables to read."""

    def sources(self) -> Iterator[Source]:
        """Yield each table open; the next step closes it and opens the next one.

        Raises:
            BadInputError: A file cannot be opened, is damaged, or has no known format.
        """
        ...


class Inputs:
    """The files behind a list of paths; each path may name a file, a folder or a glob.

    A folder stands for every file inside it at any depth, also behind links, except hidden ones
    (``.name``, ``_name``). A folder and a glob skip pipes, sockets and devices; a pipe must be
    named. A file that several paths reach is read once. Of a tar archive, the members whose suffix
    fits the format are read, except hidden ones.

    Args:
        patterns: Paths as the user wrote them, at least one.
        form: The format of every file, or its name; None goes by each file's suffix.

    Attributes:
        paths: The files; archives are not opened.
        format: The format of all files, given or detected; None if the files differ.
        forced_format: The format that the caller gave, or None.
        total_bytes: Size of the files on disk.

    Raises:
        TypeError: *patterns* is one path, or *form* is no text.
        ValueError: *form* is no format.
        BadInputError: A pattern matches nothing, or a folder or file cannot be read.
    """

    def __init__(self, patterns: Sequence[str], form: Format | str | None = None) -> None:
        if isinstance(patterns, str | bytes | os.PathLike):
            raise TypeError(f"patterns must be a list of paths, got {safe_repr(patterns)}")
        forced = None if form is None else checked_member("form", form, Format)
        found: dict[str, Path] = {}  # by real path, so that a file reached twice is read once
        for path in (path for pattern in patterns for path in _expand(pattern)):
            found.setdefault(os.path.realpath(path), path)  # Path.resolve raises at a loop of links
        self.paths: tuple[Path, ...] = tuple(found.values())
        detected = {forced or _format_of_file(path) for path in self.paths}
        self.format: Format | None = detected.pop() if len(detected) == 1 else None
        self.forced_format: Format | None = forced
        self._finished_bytes = 0
        self._open_file: io.BufferedReader | None = None
        try:
            self.total_bytes: int = sum(path.stat().st_size for path in self.paths)
        except OSError as error:
            raise BadInputError(f"{error.filename}: {error.strerror}") from error

    @property
    def bytes_read(self) -> int:
        """How many of ``total_bytes`` have been read so far."""
        file = self._open_file
        at = file.tell() if file is not None and file.seekable() else 0  # a pipe has no position
        return self._finished_bytes + at

    def sources(self) -> Iterator[Source]:
        """Yield each table open; the next step closes it and opens the next one.

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
    """Yield the tables of one file: the file itself, or the members of an archive.

    Args:
        name: The name of the file in error messages.
        raw: The open file, positioned at its start.
        form: The format; None derives it from the suffix.

    Raises:
        BadInputError: The file is damaged, or its format is unknown.
    """
    try:
        data = _unzipped(name, raw)
    except OSError as error:
        raise BadInputError(f"{name}: {error.strerror}") from error
    if name.endswith(TAR_SUFFIXES):
        yield from _members(name, data, form)
        return
    detected = form or _detected_format(name, data)
    if detected is None:
        raise BadInputError(f"{name}: the name implies no format: give --format")
    yield Source(name, detected, data)


def is_zeek(data: "_Peekable") -> bool:
    """Return whether the bytes begin like a Zeek log."""
    return data.peek(len(_ZEEK_MAGIC))[: len(_ZEEK_MAGIC)] == _ZEEK_MAGIC


class _Peekable(Protocol):
    def peek(self, size: int, /) -> bytes: ...


def _detected_format(name: str, data: BinaryIO) -> Format | None:
    """Return the format by the name; for a log or an unknown name, by the content as well."""
    detected = format_of(name)
    if detected in _PERHAPS_ZEEK:
        try:
            if is_zeek(cast("_Peekable", data)):
                return Format.ZEEK
        except READ_ERRORS as error:
            raise BadInputError(f"{name}: after line 0: {read_failure(error)}") from error
    return detected


def _members(name: str, data: BinaryIO, form: Format | None) -> Iterator[Source]:
    taken = 0
    try:
        for path, content in _files_in_tar(data):
            if PurePath(path).name.startswith("."):
                continue
            inside = _unzipped(f"{name}:{path}", io.BufferedReader(_MemberBytes(content)))
            detected = _format_of_member(f"{name}:{path}", inside, form)
            if detected is not None:
                taken += 1
                yield Source(f"{name}:{path}", detected, inside)
        while data.read(1 << 20):  # gzip checks length and checksum at the end of the stream
            pass
    except READ_ERRORS as error:
        raise BadInputError(f"{name}: {read_failure(error)}") from error
    if taken == 0:
        wanted = form or "tsv, csv, ndjson, log or parquet"
        raise BadInputError(f"{name}: no {wanted} file inside")


def _files_in_tar(data: BinaryIO) -> Iterator[tuple[str, IO[bytes]]]:
    """Yield the path and the content of each file; raise one of `READ_ERRORS` for a damaged tar."""
    try:
        # tarfile's own gzip reader accepts a truncated stream as a short one; ours raises.
        ending = cast("BinaryIO", _Ending(data))  # tarfile only reads
        with tarfile.open(fileobj=ending, mode="r|") as archive:
            for member in archive:
                if member.issparse():  # its holes may have any size
                    raise tarfile.ReadError(f"{member.name} is a sparse file")
                content = archive.extractfile(member) if member.isfile() else None
                if content is not None:
                    yield member.name, content
    except (ValueError, RecursionError) as error:  # a bad number in a header; nested headers
        raise tarfile.ReadError(f"bad header: {error}") from error


def _format_of_member(name: str, data: BinaryIO, form: Format | None) -> Format | None:
    known = _detected_format(name, data)
    if form is Format.CLF and known is None:
        return Format.CLF  # log files have arbitrary names, such as access_log
    return known if form in {None, known} else None


class _Ending:
    """A stream that raises `EOFError` at the second read after its end.

    `tarfile` skips a member by reads, as many as its header demands, and does not stop at the end.
    """

    def __init__(self, data: BinaryIO) -> None:
        self._data = data
        self._is_over = False

    def read(self, size: int) -> bytes:
        chunk = self._data.read(size)
        if not chunk and self._is_over:
            raise EOFError
        self._is_over = not chunk
        return chunk


class _MemberBytes(io.RawIOBase):
    """A member of a streamed tar archive; tarfile's own object lacks `seekable` before 3.13."""

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
    """Describe in a few words an error of ``READ_ERRORS``."""
    if isinstance(error, EOFError):
        return "the compressed data ends too early, the file is truncated"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return f"damaged compressed data ({error})"


def _expand(pattern: str) -> list[Path]:
    if not pattern:  # an unset shell variable; it must not mean the current folder
        raise BadInputError("the name of an input is empty")
    try:
        # An existing path takes precedence over the glob: a file name may hold brackets.
        # Path.glob needs the anchor apart and drops "./".
        exists = Path(pattern).exists()
        names = [pattern] if exists else [*filterfalse(is_special, _matches(pattern))]
        if not names:
            raise BadInputError(f"{pattern}: no such file")
        return [file for name in sorted(names) for file in _files_at(Path(name))]
    except OSError as error:  # `exists` raises too, for example without permission on the folder
        raise BadInputError(f"{error.filename}: {error.strerror}") from error


def _matches(pattern: str) -> list[str]:
    """Return what a glob matches; raise `OSError` if a folder in which it searches is closed."""
    parts = PurePath(pattern).parts
    for end, part in enumerate(parts):
        if glob.has_magic(part):
            # `**` stands for folders, and searches each of them.
            searched = parts[: end + 1] if part == "**" else parts[:end]
            for folder in glob.iglob(str(PurePath(*searched)), recursive=True):  # noqa: PTH207
                if Path(folder).is_dir():
                    os.scandir(folder).close()  # `glob` takes a folder that it cannot read as empty
    return glob.glob(pattern, recursive=True)  # noqa: PTH207


def _files_at(path: Path) -> list[Path]:
    if not path.is_dir():
        return [path]

    def refuse(error: OSError) -> None:
        raise error

    found: list[Path] = []
    entered = {os.path.realpath(path)}  # links may form a circle
    for parent, folders, names in os.walk(path, onerror=refuse, followlinks=True):
        real = {
            name: os.path.realpath(Path(parent, name))
            for name in sorted(folders)
            if not name.startswith(HIDDEN)
        }
        folders[:] = [name for name, place in real.items() if place not in entered]
        entered.update(real.values())
        visible = (Path(parent, name) for name in names if not name.startswith(HIDDEN))
        found += filterfalse(is_special, visible)
    if not found:
        raise BadInputError(f"{path}: no file inside")
    return sorted(found)


def _format_of_file(path: Path) -> Format | None:
    if format_of(path.name) in _PERHAPS_ZEEK and not path.name.endswith(TAR_SUFFIXES):
        # Reading reports files that cannot be opened or read; a pipe must not be read here, because
        # its bytes come only once.
        with contextlib.suppress(*READ_ERRORS, BadInputError):
            if path.is_file():
                with opened(path) as raw:
                    return _detected_format(path.name, _unzipped(path.name, raw))
    return format_of(path.name)


def is_special(path: str | Path) -> bool:
    """Return whether *path* is a pipe, socket or device; to open a pipe waits for its writer."""
    return Path(path).exists() and not (Path(path).is_file() or Path(path).is_dir())


def opened(path: Path) -> io.BufferedReader:
    """Open a file for reading bytes; raise `BadInputError` if the system refuses."""
    try:
        return path.open("rb")
    except OSError as error:
        raise BadInputError(f"{path}: {error.strerror}") from error


def _unzipped(name: str, data: io.BufferedReader) -> BinaryIO:
    head = data.peek(10)
    if head.startswith(GZIP_MAGIC):
        return cast("BinaryIO", gzip.GzipFile(fileobj=data))
    for program, magic in _OTHER_MAGICS.items():
        if magic.match(head):
            raise BadInputError(f"{name}: compressed by {program}: unpack it, or use gzip")
    return data
