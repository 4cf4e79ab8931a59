"""Result files and folders appear completely or not at all."""

import os
import stat
from pathlib import Path

import pytest

from aiowheel._outputs import whole_file, whole_folder
from aiowheel.errors import AiowheelError

pytestmark = pytest.mark.one_build

LARGE = "x" * 100_000


def names(folder: Path) -> list[str]:
    """Return the names in a folder, hidden files included."""
    return sorted(path.name for path in folder.iterdir())


def test_a_file_appears_when_the_block_ends(tmp_path: Path) -> None:
    """Until the block ends, the earlier file is in place."""
    path = tmp_path / "out.csv"
    path.write_text("earlier")

    with whole_file(path) as file:
        file.write("later\n")
        file.flush()
        assert path.read_text() == "earlier"

    assert path.read_text() == "later\n"
    assert names(tmp_path) == ["out.csv"]


def test_a_file_survives_a_loss_of_power(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its content reaches the disk before its name does, and its name before the block ends."""
    path = tmp_path / "out.csv"
    synced: list[tuple[bool, str | None]] = []

    def sync(descriptor: int) -> None:
        of_folder = stat.S_ISDIR(os.fstat(descriptor).st_mode)
        synced.append((of_folder, path.read_text() if path.exists() else None))

    monkeypatch.setattr(os, "fsync", sync)
    with whole_file(path) as file:
        file.write("rows\n")

    assert synced == [(False, None), (True, "rows\n")]


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_a_failed_block_leaves_the_earlier_file(tmp_path: Path, error: type[BaseException]) -> None:
    """No partial file stays beside the earlier one."""
    path = tmp_path / "out.csv"
    path.write_text("earlier")

    with pytest.raises(error), whole_file(path) as file:
        file.write("half")
        raise error

    assert path.read_text() == "earlier"
    assert names(tmp_path) == ["out.csv"]


def test_a_full_disk_leaves_the_earlier_file(tmp_path: Path, small_disk: None) -> None:
    """The error names the requested file."""
    path = tmp_path / "out.csv"
    path.write_text("earlier")

    with pytest.raises(AiowheelError, match=r"out\.csv: File too large"), whole_file(path) as file:
        file.write(LARGE)

    assert path.read_text() == "earlier"
    assert names(tmp_path) == ["out.csv"]


@pytest.mark.posix
@pytest.mark.parametrize("target", ["there", "missing"])
def test_a_link_stays_and_its_target_is_replaced(tmp_path: Path, target: str) -> None:
    """The new file is written in the folder of the target, even if the target does not exist."""
    data = tmp_path / "data"
    data.mkdir()
    (data / "there").write_text("earlier")
    link = tmp_path / "out.csv"
    link.symlink_to(data / target)

    with whole_file(link) as file:
        file.write("later")

    assert link.is_symlink()
    assert (data / target).read_text() == "later"
    assert names(tmp_path) == ["data", "out.csv"]
    assert names(data) == sorted({"there", target})


@pytest.mark.posix
def test_a_pipe_is_refused_and_stays(tmp_path: Path) -> None:
    """A rename would replace it; the same holds for a device such as /dev/null."""
    pipe = tmp_path / "out.csv"
    os.mkfifo(pipe)
    link = tmp_path / "link.csv"
    link.symlink_to(pipe)

    for path in (pipe, link):
        reason = rf"{path.name}: must be a file, and is a folder, a device, a pipe or a socket"
        with pytest.raises(AiowheelError, match=reason), whole_file(path):
            pass

    assert pipe.is_fifo()
    assert names(tmp_path) == ["link.csv", "out.csv"]


@pytest.mark.posix
@pytest.mark.parametrize("mode", [0o600, 0o664])
def test_the_permissions_of_the_earlier_file_stay(tmp_path: Path, mode: int) -> None:
    """A private result stays private, also while its successor is written."""
    place = tmp_path / "out.csv"
    place.touch()
    place.chmod(mode)

    with whole_file(place) as file:
        (hidden,) = (path for path in tmp_path.iterdir() if path != place)
        during = hidden.stat().st_mode & 0o777
        file.write("later")

    assert (during, place.stat().st_mode & 0o777) == (mode, mode)
    assert place.read_text() == "later"


def test_a_new_folder_appears_when_the_block_ends(tmp_path: Path) -> None:
    """The parent folders are created as well."""
    out = tmp_path / "new" / "out"

    with whole_folder(out) as hidden:
        (hidden / "a").write_text("a")
        assert not out.exists()

    assert names(out) == ["a"]
    assert names(tmp_path) == ["new"]


def test_files_move_into_a_folder_that_exists(tmp_path: Path) -> None:
    """Files of the same name are replaced; other files stay."""
    for name in ("a", "notes"):
        (tmp_path / name).write_text("earlier")

    with whole_folder(tmp_path) as hidden:
        (hidden / "a").write_text("later")
        (hidden / "b").write_text("later")
        assert (tmp_path / "a").read_text() == "earlier"

    assert names(tmp_path) == ["a", "b", "notes"]
    assert (tmp_path / "a").read_text() == (tmp_path / "b").read_text() == "later"
    assert (tmp_path / "notes").read_text() == "earlier"


@pytest.mark.parametrize("exists", [False, True])
def test_a_failure_leaves_the_folder_as_it_was(
    tmp_path: Path, small_disk: None, *, exists: bool
) -> None:
    """Files that fitted on the disk do not appear either."""
    out = tmp_path / "out"
    if exists:
        out.mkdir()
        (out / "a").write_text("earlier")

    with pytest.raises(AiowheelError, match="out: File too large"), whole_folder(out) as hidden:
        (hidden / "a").write_text("later")
        (hidden / "b").write_text(LARGE)

    assert names(tmp_path) == (["out"] if exists else [])
    if exists:
        assert names(out) == ["a"]
        assert (out / "a").read_text() == "earlier"


def test_a_folder_in_the_way_is_found_before_the_first_file_moves(tmp_path: Path) -> None:
    """A failed write never leaves new files beside old ones."""
    (tmp_path / "a").write_text("earlier")
    (tmp_path / "b").mkdir()

    with (
        pytest.raises(AiowheelError, match="b: is in the way of a result"),
        whole_folder(tmp_path) as hidden,
    ):
        (hidden / "a").write_text("later")
        (hidden / "b").write_text("later")

    assert (tmp_path / "a").read_text() == "earlier"
    assert names(tmp_path) == ["a", "b"]


def test_a_folder_replaces_the_earlier_one_of_its_name(tmp_path: Path) -> None:
    """All files of the earlier folder are gone."""
    (tmp_path / "table").mkdir()
    (tmp_path / "table" / "part-9").write_text("earlier")

    with whole_folder(tmp_path) as hidden:
        (hidden / "table").mkdir()
        (hidden / "table" / "part-0").write_text("later")

    assert names(tmp_path) == ["table"]
    assert names(tmp_path / "table") == ["part-0"]


def test_a_broken_connection_is_not_blamed_on_the_disk(tmp_path: Path) -> None:
    """A connection error belongs to Spark, whose results are written."""
    with pytest.raises(ConnectionRefusedError), whole_file(tmp_path / "out.csv"):
        raise ConnectionRefusedError
    with pytest.raises(ConnectionRefusedError), whole_folder(tmp_path / "out"):
        raise ConnectionRefusedError

    assert names(tmp_path) == []
