"""The places for results, which are checked before the work."""

import json
import os
import re
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from aiowheel.cli import run
from aiowheel.cli._destination import check_destination, check_folder
from aiowheel.errors import BadInputError
from benchmarks import wheel
from benchmarks._report import Report

pytestmark = pytest.mark.one_build


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no named pipes to make")
def test_a_device_is_not_replaced_by_a_file(tmp_path: Path) -> None:
    """As root, `--out /dev/null` would otherwise replace /dev/null."""
    pipe, link = tmp_path / "pipe", tmp_path / "link"
    os.mkfifo(pipe)
    link.symlink_to(pipe)
    (tmp_path / "in.csv").write_text("k,t\na,1\n")
    idle = ["idle", str(tmp_path / "in.csv"), "--key", "k", "--time", "t", "--timeout", "1"]

    for arguments in (
        [*idle, "--out", str(pipe)],
        [*idle, "--out", str(tmp_path / "out.csv"), "--rejects", str(pipe)],
        [*idle, "--out", str(link)],
        ["bench", "wheel", "--quick", "--out", str(pipe)],
        ["report", str(tmp_path), "--out", str(pipe)],
    ):
        assert run(arguments) == 2

    assert link.is_symlink()
    assert stat.S_ISFIFO(pipe.stat().st_mode)


def test_a_folder_without_permission_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The permission error is simulated, because root has access to all folders."""

    def refuse(path: Path) -> bool:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "is_dir", refuse)

    with pytest.raises(BadInputError, match=r"out\.csv: Permission denied"):
        check_destination(tmp_path / "out.csv")


def test_an_unwritable_folder_is_refused_before_the_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For a missing folder, the nearest existing parent is checked."""
    asked: list[Path] = []

    def refuse(path: Path, _mode: int) -> bool:
        asked.append(path)
        return False

    monkeypatch.setattr(os, "access", refuse)

    refusal = re.escape(f"{tmp_path}: no permission to write there")
    for out in (tmp_path, tmp_path / "new" / "out"):
        with pytest.raises(BadInputError, match=refusal):
            check_folder(out)
    assert asked == [tmp_path, tmp_path]


def test_a_file_in_place_of_a_folder_is_refused(tmp_path: Path) -> None:
    """The file may also be a parent of the folder."""
    file = tmp_path / "file"
    file.touch()
    check_folder(tmp_path / "new" / "out")

    for out in (file, file / "out"):
        with pytest.raises(BadInputError, match=r"--out must be a folder, got .*file is a file"):
            check_folder(out)
    assert sorted(tmp_path.iterdir()) == [file]


def test_a_benchmark_makes_no_folder_that_was_misspelt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A missing folder is refused, as in the other commands that write one file."""
    monkeypatch.setattr(wheel, "run", lambda _plan: pytest.fail("it measured"))

    assert run(["bench", "wheel", "--out", str(tmp_path / "nodir" / "x.json")]) == 2

    assert "nodir: no such folder for --out" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_a_benchmark_checks_its_destination_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """If the destination is a folder, no round runs."""
    monkeypatch.setattr(wheel, "run", lambda _plan: pytest.fail("it measured"))

    assert run(["bench", "wheel", "--out", str(tmp_path)]) == 2
    assert f"--out must be a file, got {tmp_path}: it is a folder" in capsys.readouterr().err


def test_a_benchmark_checks_its_default_folder_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """If a file has the name of the folder, no round runs."""
    monkeypatch.setattr(wheel, "run", lambda _plan: pytest.fail("it measured"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "aiowheel-bench").touch()

    assert run(["bench", "wheel"]) == 2
    assert "the default of --out must be a folder, got aiowheel-bench" in capsys.readouterr().err


def idle(folder: Path, *arguments: str) -> list[str]:
    """Return a command line with one idle event, of the key a at 2."""
    (folder / "in.csv").write_text("k,t\na,1\n")
    options = ["--key", "k", "--time", "t", "--timeout", "1"]
    return ["idle", str(folder / "in.csv"), *options, *arguments]


def in_a_process(
    arguments: list[str], *starter: str, **how: Any
) -> subprocess.CompletedProcess[str]:
    """Run a command line in a process of its own."""
    command = [*starter, sys.executable, "-m", "aiowheel", *arguments]
    return subprocess.run(command, check=False, text=True, stderr=subprocess.PIPE, **how)


def test_a_dash_is_standard_output(tmp_path: Path) -> None:
    """Stdout has only the result; the report goes to stderr."""
    ended = in_a_process(idle(tmp_path, "--out", "-"), stdout=subprocess.PIPE)

    assert ended.returncode == 0
    assert ended.stdout == "fire,key\n2,a\n"
    assert "idle events  1\n" in ended.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["in.csv"]


def test_a_closed_standard_output_is_one_line(tmp_path: Path) -> None:
    """There is no traceback, neither at the error nor at the interpreter's exit."""
    reading, writing = os.pipe()
    os.close(reading)

    ended = in_a_process(idle(tmp_path, "--out", "-"), stdout=writing)
    os.close(writing)

    assert (ended.returncode, ended.stderr) == (1, "aiowheel: standard output: Broken pipe\n")


@pytest.mark.posix
@pytest.mark.parametrize(
    ("closed", "out", "code", "err"),
    [
        ("1", "-", 2, "aiowheel: --out must be a file, got -: standard output is closed\n"),
        ("1", "out.csv", 0, ""),
        ("2", "-", 0, ""),
        ("0 1 2", "out.csv", 0, ""),
    ],
)
def test_a_program_may_start_with_closed_streams(
    closed: str, out: str, code: int, err: str, tmp_path: Path
) -> None:
    """What would go to a closed stream is dropped; it goes neither to another stream nor a file."""
    target = out if out == "-" else str(tmp_path / out)
    closing = " ".join(f"{number}>&-" for number in closed.split())
    shell = ["sh", "-c", f'exec "$@" {closing}', "sh"]

    ended = in_a_process(idle(tmp_path, "--out", target), *shell, stdout=subprocess.PIPE)

    assert (ended.returncode, ended.stderr) == (code, err)
    result = ended.stdout if out == "-" else (tmp_path / out).read_text()
    assert result == ("" if code else "fire,key\n2,a\n")


@pytest.mark.skipif(not Path("/dev/stdout").is_symlink(), reason="there is no such link")
@pytest.mark.parametrize("kind", ["file", "pipe"])
def test_the_link_of_standard_output_is_refused(tmp_path: Path, kind: str) -> None:
    """As root, the link would be replaced by a file; `-` is the name of stdout."""
    before = os.readlink("/dev/stdout")  # noqa: PTH115
    with (tmp_path / "printed").open("w") as file:
        stdout = file if kind == "file" else subprocess.PIPE
        ended = in_a_process(idle(tmp_path, "--out", "/dev/stdout"), stdout=stdout)

    assert ended.returncode == 2
    assert ended.stderr.startswith("aiowheel: --out must be ")
    assert ended.stderr.count("\n") == 1
    assert os.readlink("/dev/stdout") == before  # noqa: PTH115
    assert (tmp_path / "printed").read_text() == ""


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["report", "t", "--out", "-"], "--out must be a folder, got -: several files are written"),
        (["tune", "t", "--out", "-"], "--out must be a folder, got -: several files are written"),
        (["simulate", "--out", "-"], "--out must be a folder, got -: several files are written"),
        (["purgatory", "o", "e", "--out", "-"], "--out must be a folder, got -"),
        (["demo", "--out", "-"], "--out must be a folder, got -: several files are written"),
        (["idle", "t", "--timeout", "1", "--out", "-", "--json"], "--json is not for --out -"),
        (
            ["idle", "t", "--timeout", "1", "--out", "x", "--rejects", "-"],
            "--rejects must be a file, got -: it cannot go to standard output",
        ),
        (
            ["idle", "t", "--timeout", "1", "--out", "-", "--stream", "--key", "k", "--time", "t"],
            "--out must be a folder, got -",
        ),
    ],
)
def test_a_dash_is_refused_for_other_options(
    tmp_path: Path,
    arguments: list[str],
    reason: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The error comes before any input is read."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "t").mkdir()

    assert run(arguments) == 2

    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith(f"aiowheel: {reason}")
    assert printed.err.count("\n") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["t"]


def test_a_benchmark_prints_its_rounds_to_a_dash(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The rounds are printed as JSON, and no file is written."""
    monkeypatch.setattr(wheel, "run", lambda _plan: Report("wheel", {}))
    monkeypatch.chdir(tmp_path)

    assert run(["bench", "wheel", "--out", "-"]) == 0

    assert json.loads(capsys.readouterr().out)["program"] == "wheel"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.posix
def test_the_error_names_the_option_that_names_an_input(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The option may be `--rejects`, and the path may be a link to an input."""
    link = tmp_path / "link.csv"
    link.symlink_to(tmp_path / "in.csv")
    out = ["--out", str(tmp_path / "out.csv")]

    assert run(idle(tmp_path, *out, "--rejects", str(tmp_path / "in.csv"))) == 2
    assert run(idle(tmp_path, "--out", str(link))) == 2

    assert capsys.readouterr().err.splitlines() == [
        f"aiowheel: --rejects must be another file than the inputs, got {tmp_path}/in.csv",
        f"aiowheel: --out must be another file than the inputs, got {link}",
    ]


@pytest.mark.posix
def test_a_loop_of_links_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Such a path is not a file."""
    loop = tmp_path / "loop"
    loop.symlink_to(loop)

    assert run(idle(tmp_path, "--out", str(loop))) == 2

    refusal = f"--out must be a file, got {loop}: it is a loop of links"
    assert capsys.readouterr().err == f"aiowheel: {refusal}\n"


def test_control_characters_in_an_error_are_escaped(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The name of a file may contain any characters."""
    (tmp_path / "in\x1b[2J.csv").write_text("k\n")
    table = ["--key", "k", "--time", "t", "--timeout", "1", "--out", str(tmp_path / "out.csv")]

    assert run(["idle", str(tmp_path / "in\x1b[2J.csv"), *table]) == 2

    error = capsys.readouterr().err
    assert r"in\x1b[2J.csv" in error
    assert "\x1b" not in error


@pytest.mark.parametrize(
    "command",
    [
        ["report", "trace", "--out", ""],
        ["tune", "trace", "--out", ""],
        ["simulate", "--operations", "10", "--out", ""],
        ["demo", "--out", ""],
        ["durable", "export", "app.db", "--out", ""],
        ["bench", "wheel", "--quick", "--out", ""],
        ["replay", ""],
        ["pending", "--checkpoint", ""],
        ["flush", "--checkpoint", ""],
        ["serve", "--unix", ""],
    ],
    ids=lambda command: command[0],
)
def test_an_empty_path_is_not_the_current_folder(
    command: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """An unset shell variable gives an empty path: the results would lie in the current folder."""
    monkeypatch.chdir(tmp_path)

    assert run(command) == 2

    assert "must be a path, got ''" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("command", ["report", "tune"])
def test_an_address_of_another_system_is_no_local_folder(
    command: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Otherwise the results would lie in a folder named `s3a:`."""
    monkeypatch.chdir(tmp_path)

    assert run([command, "trace", "--out", "s3a://bucket/results"]) == 2

    wanted = "must be a path on this machine, got 's3a://bucket/results'"
    assert wanted in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
