"""The accepted inputs: files, folders, globs, gz and tar.gz."""

import bz2
import errno
import glob
import gzip
import io
import lzma
import os
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from aiowheel.errors import BadInputError
from aiowheel.readers import Format, Inputs

pytestmark = pytest.mark.one_build


def write_tar(path: Path, members: Mapping[str, str | bytes]) -> Path:
    """Write a tar.gz with a folder and these members."""
    with tarfile.open(path, "w:gz") as archive:
        folder = tarfile.TarInfo("inside")
        folder.type = tarfile.DIRTYPE
        archive.addfile(folder)
        for name, text in members.items():
            member = tarfile.TarInfo(name)
            content = text.encode() if isinstance(text, str) else text
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return path


def texts(inputs: Inputs) -> dict[str, str]:
    """Return the text of every source, by the last part of its name."""
    return {Path(source.name).name: source.text.read() for source in inputs.sources()}


@pytest.mark.parametrize(
    ("packed", "program"),
    [
        (bz2.compress(b"t,k\n1,a\n"), "bzip2"),
        (bz2.compress(b"t,k\n1,a\n", 1), "bzip2"),
        (bz2.compress(b""), "bzip2"),
        (lzma.compress(b"t,k\n1,a\n"), "xz"),
        (b"\x28\xb5\x2f\xfd\x04\x00", "zstd"),
    ],
)
@pytest.mark.parametrize("form", [None, Format.CSV])
def test_files_that_other_programs_compressed_are_refused(
    packed: bytes, program: str, form: Format | None, tmp_path: Path
) -> None:
    """Their bytes would be read as the names of columns."""
    file = tmp_path / "a.csv.z"
    file.write_bytes(packed)
    archive = write_tar(tmp_path / "b.tar.gz", {"a.csv": packed})

    for path, name in ((file, "a.csv.z"), (archive, "b.tar.gz:a.csv")):
        with pytest.raises(BadInputError, match=f"{name}: compressed by {program}: unpack it"):
            texts(Inputs([str(path)], form))


def test_a_folder_stands_for_every_file_inside(tmp_path: Path) -> None:
    """Files at any depth are read in path order, without hidden files and folders."""
    (tmp_path / "sub").mkdir()
    (tmp_path / ".git").mkdir()
    for name in ("b.csv", "a.csv", "sub/c.csv", ".hidden.csv", ".git/d.csv"):
        (tmp_path / name).write_text(name)

    inputs = Inputs([str(tmp_path)])

    assert [path.relative_to(tmp_path).as_posix() for path in inputs.paths] == [
        "a.csv",
        "b.csv",
        "sub/c.csv",
    ]


def test_a_file_reached_twice_is_read_once(tmp_path: Path) -> None:
    """A glob may overlap with a folder or a file."""
    (tmp_path / "a.csv").touch()
    (tmp_path / "b.csv").touch()

    inputs = Inputs([f"{glob.escape(str(tmp_path))}/*.csv", str(tmp_path), str(tmp_path / "b.csv")])

    assert [path.name for path in inputs.paths] == ["a.csv", "b.csv"]


@pytest.mark.posix
def test_two_names_of_one_file_are_read_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Relative and absolute paths and links name one file; the first name is used."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.csv").touch()
    (tmp_path / "b.csv").symlink_to("a.csv")

    inputs = Inputs(["a.csv", str(tmp_path / "a.csv"), "b.csv"])

    assert inputs.paths == (Path("a.csv"),)


@pytest.mark.posix
def test_a_folder_behind_a_link_is_read(tmp_path: Path) -> None:
    """As `logs -> /mnt/logs`; links to the same folder are read once, also in a circle."""
    folder, elsewhere = tmp_path / "logs", tmp_path / "mnt"
    for place in (folder, elsewhere / "deep"):
        place.mkdir(parents=True)
    (elsewhere / "deep" / "a.csv").touch()
    (elsewhere / "deep" / "up").symlink_to(folder)
    for name in ("one", "two"):
        (folder / name).symlink_to(elsewhere)

    assert Inputs([str(folder)]).paths == (folder / "one" / "deep" / "a.csv",)


@pytest.mark.parametrize("pattern", ["*/*.csv", "**/*.csv", "**"])
def test_a_glob_into_a_closed_folder_is_refused(
    pattern: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`glob` takes the folder as empty, and its rows would be missing silently."""
    for name in ("open", "closed"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "a.csv").touch()
    scan = os.scandir

    def refusing(path: Any) -> Any:
        if str(path).rstrip("/").endswith("closed"):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        return scan(path)

    monkeypatch.setattr(os, "scandir", refusing)

    with pytest.raises(BadInputError, match=r"closed: Permission denied"):
        Inputs([f"{glob.escape(str(tmp_path))}/{pattern}"])


@pytest.mark.posix
def test_a_link_to_itself_is_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    """The error is one line, as for a dangling link."""
    (tmp_path / "loop.csv").symlink_to("loop.csv")

    with pytest.raises(BadInputError, match=r"loop\.csv: Too many levels of symbolic links"):
        Inputs([str(tmp_path)])


@pytest.mark.posix
@pytest.mark.parametrize("pattern", ["inbox", "inbox/*", "inb*"])
def test_a_pipe_in_a_folder_is_skipped(pattern: str, tmp_path: Path) -> None:
    """Another user of a shared folder can make a pipe, and reading it waits for a writer."""
    (tmp_path / "inbox").mkdir()
    (tmp_path / "inbox" / "a.csv").write_text("x")
    os.mkfifo(tmp_path / "inbox" / "b.csv")

    assert Inputs([str(tmp_path / pattern)]).paths == (tmp_path / "inbox" / "a.csv",)


@pytest.mark.posix
def test_a_pipe_that_is_named_is_read(tmp_path: Path) -> None:
    """A shell names the pipe of `<(zcat *.gz)`."""
    os.mkfifo(tmp_path / "a.csv")

    assert Inputs([str(tmp_path / "a.csv")]).paths == (tmp_path / "a.csv",)


def test_an_empty_name_is_not_the_current_folder() -> None:
    """A shell passes an empty name for an unset variable."""
    with pytest.raises(BadInputError, match="the name of an input is empty"):
        Inputs([""])


def test_an_existing_name_with_brackets_is_no_glob(tmp_path: Path) -> None:
    """The file takes precedence over the pattern."""
    (tmp_path / "a[1].csv").write_text("x")

    assert texts(Inputs([str(tmp_path / "a[1].csv")])) == {"a[1].csv": "x"}


def test_gz_is_detected_by_its_content(tmp_path: Path) -> None:
    """A rotated log is read with any suffix."""
    (tmp_path / "access.log.2").write_bytes(gzip.compress(b"zipped"))
    (tmp_path / "access.log.1.gz").write_bytes(b"plain after all")

    inputs = Inputs([str(tmp_path)])

    assert texts(inputs) == {"access.log.1.gz": "plain after all", "access.log.2": "zipped"}
    assert inputs.format is Format.CLF


@pytest.mark.parametrize(
    ("name", "form"),
    [
        ("access.log-20261127", Format.CLF),
        ("access.log-2026112713.gz", Format.CLF),
        ("access.log.2026-11-27.3.gz", Format.CLF),
        ("web-1.LOG", Format.CLF),
        ("a.csv_2", Format.CSV),
        ("access.log-old", None),
        ("20261127", None),
    ],
)
def test_the_number_or_date_of_a_rotated_file_is_ignored(
    name: str, form: Format | None, tmp_path: Path
) -> None:
    """These are the names that logrotate and the logging module of Python make."""
    (tmp_path / name).write_text("x")

    assert Inputs([str(tmp_path)]).format is form


def test_a_byte_order_mark_is_not_part_of_the_text(tmp_path: Path) -> None:
    """Spreadsheets write a byte order mark before the first column's name."""
    (tmp_path / "a.csv").write_bytes(b"\xef\xbb\xbfkey,t\n")

    assert texts(Inputs([str(tmp_path / "a.csv")])) == {"a.csv": "key,t\n"}


@pytest.mark.parametrize(
    ("form", "expected"),
    [
        (None, {"a.csv": "A", "b.tsv.gz": "B", "d.log": "D"}),
        (Format.CSV, {"a.csv": "A"}),
        (Format.CLF, {"d.log": "D", "README": "C"}),
    ],
)
def test_fitting_members_of_a_tar_are_read(
    form: Format | None, expected: dict[str, str], tmp_path: Path
) -> None:
    """Members are selected by suffix; a server's log may have none."""
    members: dict[str, str | bytes] = {
        "inside/a.csv": "A",
        "inside/._a.csv": "what macOS adds",
        "inside/b.tsv.gz": gzip.compress(b"B"),
        "inside/README": "C",
        "inside/d.log": "D",
    }
    archive = write_tar(tmp_path / "all.tar.gz", members)

    assert texts(Inputs([str(archive)], form)) == expected


def test_bytes_read_reach_the_total(tmp_path: Path) -> None:
    """A progress bar starts at 0 and ends at the total."""
    (tmp_path / "a.csv").write_text("x" * 100)
    (tmp_path / "b.csv.gz").write_bytes(gzip.compress(b"y" * 100))
    inputs = Inputs([str(tmp_path)])
    before = inputs.bytes_read

    texts(inputs)

    assert (before, inputs.bytes_read) == (0, inputs.total_bytes)


def test_a_missing_path_is_named(tmp_path: Path) -> None:
    """A missing path, a glob without a match and an empty folder are refused at once."""
    (tmp_path / "empty").mkdir()

    for pattern, reason in (
        ("no.csv", "no such file"),
        ("*.csv", "no such file"),
        ("empty", "no file"),
    ):
        with pytest.raises(BadInputError, match=reason):
            Inputs([str(tmp_path / pattern)])


@pytest.mark.parametrize("patterns", ["a.csv", Path("a.csv"), b"a.csv"])
def test_one_path_alone_is_refused(patterns: Any) -> None:
    """The letters of a path are paths too: "/" is every file of the machine."""
    with pytest.raises(TypeError, match=r"patterns must be a list of paths, got .*a\.csv"):
        Inputs(patterns)


def test_an_unknown_suffix_requires_the_format(tmp_path: Path) -> None:
    """The format is not guessed from the content."""
    (tmp_path / "data.txt").write_text("a,b\n")

    with pytest.raises(BadInputError, match=r"data\.txt: .* give --format"):
        texts(Inputs([str(tmp_path / "data.txt")]))


def test_a_format_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    """The error lists the formats."""
    formats = "'tsv', 'csv', 'ndjson', 'clf', 'parquet', 'zeek'"
    with pytest.raises(ValueError, match=f"form must be one of {formats}, got 'xls'"):
        Inputs([str(tmp_path)], "xls")


def test_a_tar_without_a_fitting_member_is_refused(tmp_path: Path) -> None:
    """An archive without a readable member is an error, not an empty result."""
    archive = write_tar(tmp_path / "all.tar.gz", {"README": "C"})

    with pytest.raises(BadInputError, match=r"all\.tar\.gz: no csv file inside"):
        texts(Inputs([str(archive)], Format.CSV))


@pytest.mark.parametrize("kept", [0.3, 0.9, 0.995])
def test_a_truncated_tar_is_refused_wherever_it_ends(kept: float, tmp_path: Path) -> None:
    """A cut between two members, or after the last one, is also an error."""
    lines = "".join(f"{number * 7919 % 10007}\n" for number in range(20_000))
    archive = write_tar(tmp_path / "all.tar.gz", {f"{name}.csv": lines for name in "abc"})
    data = archive.read_bytes()
    archive.write_bytes(data[: int(len(data) * kept)])

    with pytest.raises((BadInputError, EOFError)):
        texts(Inputs([str(archive)]))


def _pax(**headers: str) -> bytes:
    member = tarfile.TarInfo("a.csv")
    member.size = 4
    member.pax_headers = {name.replace("_", "."): value for name, value in headers.items()}
    return member.tobuf(tarfile.PAX_FORMAT) + b"k,t\n".ljust(512, b"\0")


@pytest.mark.parametrize(
    "data",
    [
        _pax(GNU_sparse_major="1", GNU_sparse_minor="0", GNU_sparse_realsize="10"),
        _pax(GNU_sparse_major="0", GNU_sparse_minor="1", GNU_sparse_map="abc"),
        _pax(GNU_sparse_size="nan"),
        _pax(
            GNU_sparse_major="0",
            GNU_sparse_minor="1",
            GNU_sparse_map="0,4",
            GNU_sparse_size=str(10**25),
        ),
        tarfile.TarInfo.create_pax_global_header({"comment": "nested"}) * 1_000,
    ],
    ids=["sparse 1.0", "sparse 0.1", "size of a sparse file", "endless holes", "nested headers"],
)
@pytest.mark.parametrize("before", [b"", _pax()], ids=["first member", "second member"])
def test_a_damaged_header_in_a_tar_is_refused(before: bytes, data: bytes, tmp_path: Path) -> None:
    """For most of these headers `tarfile` raises other errors than its own."""
    archive = tmp_path / "all.tar.gz"
    archive.write_bytes(gzip.compress(before + data + bytes(1024)))

    with pytest.raises(BadInputError, match=r"all\.tar\.gz: "):
        texts(Inputs([str(archive)]))


def test_a_member_that_is_longer_than_its_archive_is_refused(tmp_path: Path) -> None:
    """`tarfile` skips a member by reads, as many as its header demands, also after the end."""
    hidden = tarfile.TarInfo(".hidden")
    hidden.size = 10**25
    archive = tmp_path / "all.tar.gz"
    archive.write_bytes(gzip.compress(hidden.tobuf(tarfile.GNU_FORMAT)))

    with pytest.raises(BadInputError, match=r"all\.tar\.gz: .*the file is truncated"):
        texts(Inputs([str(archive)]))
