"""Where a result may go: told before the work begins."""

import os
import stat
from pathlib import Path

import pytest

from aiowheel.bench import wheel
from aiowheel.cli import run
from aiowheel.cli._destination import check_destination, check_folder
from aiowheel.errors import BadInputError


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no named pipes to make")
def test_a_device_is_not_replaced_by_a_file(tmp_path: Path) -> None:
    """`--out /dev/null`, given to root, would take /dev/null away from everybody."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    (tmp_path / "in.csv").write_text("k,t\na,1\n")
    idle = ["idle", str(tmp_path / "in.csv"), "--key", "k", "--time", "t", "--timeout", "1"]

    for arguments in (
        [*idle, "--out", str(pipe)],
        [*idle, "--out", str(tmp_path / "out.csv"), "--rejects", str(pipe)],
        ["bench", "wheel", "--quick", "--out", str(pipe)],
    ):
        assert run(arguments) == 2

    assert stat.S_ISFIFO(pipe.stat().st_mode)


def test_a_folder_that_cannot_be_looked_into_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One line, no traceback: root, who runs many a test, would see no closed folder."""

    def refuse(path: Path) -> bool:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "is_dir", refuse)

    with pytest.raises(BadInputError, match=r"out\.csv: Permission denied"):
        check_destination(tmp_path / "out.csv")


def test_a_folder_that_cannot_be_written_is_told_before_the_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is there is asked, be it only a folder above: the rest would be made after the work."""
    asked: list[Path] = []

    def refuse(path: Path, _mode: int) -> bool:
        asked.append(path)
        return False

    monkeypatch.setattr(os, "access", refuse)

    for out in (tmp_path, tmp_path / "new" / "out"):
        with pytest.raises(BadInputError, match=f"{tmp_path}: no permission to write there"):
            check_folder(out)
    assert asked == [tmp_path, tmp_path]


def test_a_folder_is_wanted_where_a_file_is(tmp_path: Path) -> None:
    """Of a file nothing can be made a folder, and nothing below it."""
    file = tmp_path / "file"
    file.touch()
    check_folder(tmp_path / "new" / "out")

    for out in (file, file / "out"):
        with pytest.raises(BadInputError, match=r"file: is a file, --out wants a folder"):
            check_folder(out)
    assert sorted(tmp_path.iterdir()) == [file]


def test_a_benchmark_makes_no_folder_that_was_misspelt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As the other commands that write one file."""
    monkeypatch.setattr(wheel, "run", lambda _plan: pytest.fail("it measured"))

    assert run(["bench", "wheel", "--out", str(tmp_path / "nodir" / "x.json")]) == 2

    assert "nodir: no such folder for --out" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_a_benchmark_looks_before_it_measures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A destination that is a folder ends the run before its first round."""
    monkeypatch.setattr(wheel, "run", lambda _plan: pytest.fail("it measured"))

    assert run(["bench", "wheel", "--out", str(tmp_path)]) == 2
    assert "is a folder, --out wants a file" in capsys.readouterr().err


def test_a_benchmark_looks_at_its_own_folder_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A file of that name ends the run before its first round."""
    monkeypatch.setattr(wheel, "run", lambda _plan: pytest.fail("it measured"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "aiowheel-bench").touch()

    assert run(["bench", "wheel"]) == 2
    assert "aiowheel-bench: is a file, a benchmark without --out wants" in capsys.readouterr().err
