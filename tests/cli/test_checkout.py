"""`aiowheel bench` and `aiowheel demo` with and without the folders of a checkout."""

import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from aiowheel.cli import _checkout, run

pytestmark = pytest.mark.one_build

ROOT = Path(__file__).parents[2]
_INSTALL = (
    "is not in an installed package; run in a checkout of the sources: "
    "pip install --editable '.[all]'\n"
)
REFUSALS = {
    "bench": f"aiowheel: bench, a command to measure costs beside asyncio and uvloop, {_INSTALL}",
    "demo": f"aiowheel: demo, a command to show the library at work in a minute, {_INSTALL}",
}


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder in which the command line looks for the benchmarks and the demo."""
    monkeypatch.setattr(_checkout, "_ROOT", tmp_path)
    return tmp_path


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize(
    "arguments",
    [
        ["bench"],
        ["bench", "timer", "--only", "churn"],
        ["bench", "--quick"],
        ["demo"],
        ["demo", "--clients", "200", "--no-spark"],
    ],
    ids=" ".join,
)
def test_an_installed_package_refuses_in_one_line(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """The line says how to get the command, whatever arguments it has."""
    assert run(arguments) == 2

    assert capsys.readouterr() == ("", REFUSALS[arguments[0]])


@pytest.mark.usefixtures("installed")
def test_the_help_lists_the_commands_of_a_checkout(capsys: pytest.CaptureFixture[str]) -> None:
    """The hint is not cut off, although a line of the list has 80 columns."""
    assert run(["--help"]) == 0

    printed = capsys.readouterr().out
    assert "  bench      In a checkout: measure costs beside asyncio and uvloop.\n" in printed
    assert "  demo       In a checkout: show the library at work in a minute.\n" in printed


def test_the_help_of_a_refused_command(installed: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`--help` is no error."""
    assert run(["bench", "--help"]) == 0

    assert "The installed package does not contain it." in capsys.readouterr().out
    assert list(installed.iterdir()) == []


def test_a_folder_of_another_project_is_not_run(
    installed: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Packages that install a folder `benchmarks` beside the others exist."""
    (installed / "benchmarks").mkdir()
    for name in ("__init__.py", "commands.py"):
        (installed / "benchmarks" / name).write_text("raise SystemExit('another project')")

    assert run(["bench", "wheel"]) == 2

    assert capsys.readouterr() == ("", REFUSALS["bench"])


def test_an_imported_package_of_the_same_name_is_not_used(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The folder beside the package has precedence over all of `sys.path`."""
    for name in [each for each in sys.modules if each.partition(".")[0] == "benchmarks"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "benchmarks", ModuleType("benchmarks"))

    assert run(["bench", "wheel", "--help"]) == 0

    assert "Compare the passive wheel" in capsys.readouterr().out


@pytest.mark.posix
@pytest.mark.slow
def test_a_package_in_a_folder_of_its_own_is_no_checkout(tmp_path: Path) -> None:
    """The package is imported from a folder that has nothing else, as after `pip install`."""
    (tmp_path / "aiowheel").symlink_to(ROOT / "aiowheel")

    ended = subprocess.run(
        [sys.executable, "-m", "aiowheel", "demo", "--json"],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )

    assert (ended.returncode, ended.stdout, ended.stderr) == (2, "", REFUSALS["demo"])
