"""The types of the public API, as the type checkers of users see them."""

import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from sysconfig import get_path

import pytest

from tests.docs.test_snippets import PROGRAMS

pytestmark = [pytest.mark.one_build, pytest.mark.types]

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
_EXPECTED = re.compile(r"# expect: (?P<code>[\w-]+)")
_FOUND = re.compile(r"^[^:]+:(?P<line>\d+): error: .*\[(?P<code>[\w-]+)\]$", re.MULTILINE)


def mypy(*words: str, folder: Path = ROOT) -> subprocess.CompletedProcess[str]:
    """Run mypy in a folder, without the settings of this project."""
    options = ["--strict", "--config-file=", "--no-error-summary"]
    return subprocess.run(
        [sys.executable, "-m", "mypy", *options, *words],
        cwd=folder,
        env=os.environ | {"MYPYPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )


def errors(name: str) -> list[tuple[int, str]]:
    """Return the line and the code of every error that mypy finds in a file of this folder."""
    run = mypy("--hide-error-context", "--explicit-package-bases", str(HERE / name))
    assert run.stderr == ""
    found = [(int(each["line"]), each["code"]) for each in _FOUND.finditer(run.stdout)]
    assert len(found) == run.stdout.count(": error: "), run.stdout
    return found


def expected(name: str) -> list[tuple[int, str]]:
    """Return the line and the code of every error that the comments of a file expect."""
    lines = (HERE / name).read_text(encoding="utf-8").splitlines()
    return [
        (number, announced["code"])
        for number, line in enumerate(lines, 1)
        if (announced := _EXPECTED.search(line))
    ]


@pytest.mark.slow
def test_right_uses_have_no_error() -> None:
    """The types accept the uses that the documentation shows."""
    assert errors("right.py") == []


@pytest.mark.slow
def test_each_wrong_use_has_its_error() -> None:
    """There is exactly one error on each line that expects one, and no other."""
    announced = expected("wrong.py")

    assert len(announced) >= 40
    assert errors("wrong.py") == announced


@pytest.mark.slow
def test_the_programs_of_the_pages_have_no_error(tmp_path: Path) -> None:
    """Mypy accepts each of them as strictly as other code, but for functions without types."""
    for block in PROGRAMS:
        name = re.sub(r"\W", "_", f"{block.page.stem}_{block.line}")
        (tmp_path / f"{name}.py").write_text(block.text, encoding="utf-8")
    untyped = ["--allow-untyped-defs", "--allow-incomplete-defs", "--allow-untyped-calls"]

    run = mypy("--cache-dir", os.devnull, *untyped, ".", folder=tmp_path)

    assert run.stdout + run.stderr == ""


@pytest.mark.slow
@pytest.mark.skipif(
    importlib.util.find_spec("pyright") is None, reason="pyright is not installed: make build"
)
def test_every_public_type_is_known() -> None:
    """Pyright can name the type of every symbol that the package exports."""
    run = subprocess.run(
        [
            *(sys.executable, "-m", "pyright", "--verifytypes", "aiowheel"),
            *("--ignoreexternal", "--outputjson", "--pythonpath", sys.executable),
        ],
        cwd=ROOT,
        # Pyright does not follow an editable install, and finds other packages only where it found
        # this one.
        env=os.environ | {"PYTHONPATH": os.pathsep.join((str(ROOT), get_path("purelib")))},
        capture_output=True,
        text=True,
        check=False,
    )
    found = json.loads(run.stdout)["typeCompleteness"]
    unknown = {
        each["name"]
        for each in found["symbols"]
        if each["isExported"] and not (each["isTypeKnown"] and not each["isTypeAmbiguous"])
    }

    assert len(found["symbols"]) > 1000
    assert (unknown, found["completenessScore"]) == (set(), 1)
