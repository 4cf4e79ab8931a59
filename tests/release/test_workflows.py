"""The workflows of `.github`, by rules that `make lint-workflows` cannot check, and `.ci/run`."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from aiowheel._build import __version__

pytestmark = pytest.mark.one_build

ROOT = Path(__file__).parents[2]
WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.yml"))
TARGETS = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))


def named(path: Path) -> str:
    """Return the file name, for the test id."""
    return path.stem


@pytest.mark.parametrize("path", WORKFLOWS, ids=named)
def test_every_action_is_pinned_by_its_commit(path: Path) -> None:
    """A tag can be moved; the version beside the hash is for readers and for dependabot."""
    for line in path.read_text().splitlines():
        if "uses:" in line:
            assert re.search(r"uses: [\w-]+/[\w-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+$", line), line


@pytest.mark.parametrize("path", WORKFLOWS, ids=named)
def test_a_workflow_starts_without_any_permission(path: Path) -> None:
    """Each job lists its permissions; a write permission has a comment with its reason."""
    text = path.read_text()

    assert "\npermissions: {}\n" in text
    for line in re.findall(r"^ +[\w-]+: write.*$", text, re.MULTILINE):
        assert " # " in line, line


@pytest.mark.parametrize("path", WORKFLOWS, ids=named)
def test_a_workflow_makes_targets_that_exist(path: Path) -> None:
    """A renamed target must not fail at night."""
    text = path.read_text()
    made = set(re.findall(r"\bmake ([a-z-]+)", text))
    for targets in re.findall(r"^ +target: \[(.*)\]$", text, re.MULTILINE):
        made |= set(targets.split(", "))

    assert made - TARGETS == set()


def test_the_citation_names_this_version() -> None:
    """Version and license are those of the package."""
    citation = (ROOT / "CITATION.cff").read_text()

    assert f"\nversion: {__version__}\n" in citation
    assert "\nlicense: Apache-2.0\n" in citation


@pytest.mark.posix
@pytest.mark.parametrize(
    ("printed", "status", "last"),
    [
        ("== 1 failed ==\n== 2 passed ==", 2, ["== 2 passed ==", "== 1 failed =="]),
        ("no module to compile", 2, ["no module to compile"]),
        ("== 2 passed ==", 0, ["== 2 passed =="]),
    ],
)
def test_the_check_ends_with_the_status_of_the_tests(
    tmp_path: Path, printed: str, status: int, last: list[str]
) -> None:
    """Also if pytest printed no closing line, because it never ran."""
    programs = {
        "make": f"#!/bin/sh\n[ \"$1\" != test ] || {{ printf '{printed}\\n'; exit {status}; }}\n",
        "apt-get": "#!/bin/sh\nexit 1\n",  # a test installs nothing
    }
    for name, program in programs.items():
        (tmp_path / name).write_text(program)
        (tmp_path / name).chmod(0o700)

    done = subprocess.run(
        ["bash", ROOT / ".ci/run"],
        env=os.environ | {"PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=False,
        timeout=200,
    )

    assert done.returncode == status
    assert done.stdout.splitlines()[-len(last) :] == last
