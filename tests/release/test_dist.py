"""`tools/dist.py`, which makes the files of a release; the complete run has the mark `dist`.

The marked tests build a release for the running Python, and run every install line of the
documentation in an empty environment. They fetch dependencies from the package index.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import tarfile
import venv
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tools import dist

pytestmark = pytest.mark.one_build

ROOT = Path(__file__).parents[2]
PAGES = [
    ROOT / "README.md",
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted((ROOT / "examples").rglob("*.md")),
]
# In a console block, or as code in a sentence or a table.
INSTALL = re.compile(r"(?:^\s*\$ |`)(?P<line>pip install [^`\n#]+)", re.MULTILINE)


def wheel(path: Path, **members: str) -> Path:
    """Write a zip file with these members."""
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in members.items():
            archive.writestr(name, text)
    return path


def test_two_builds_that_differ_name_the_member(tmp_path: Path) -> None:
    """The error names the first member that has other bytes or is missing."""
    first = wheel(tmp_path / "a.whl", same="1", other="2")
    for name in ("one", "two", "three"):
        (tmp_path / name).mkdir()

    changed = dist.compared(first, wheel(tmp_path / "one/a.whl", same="1", other="3"))
    missing = dist.compared(first, wheel(tmp_path / "two/a.whl", same="1"))
    renamed = dist.compared(first, wheel(tmp_path / "three/b.whl", same="1", other="2"))

    assert changed == missing == "FAILED: other differs"
    assert renamed == "FAILED: b.whl"


def test_two_equal_builds_are_the_same(tmp_path: Path) -> None:
    """The comparison covers all bytes, so also the members, their order and their times."""
    first = wheel(tmp_path / "a.whl", same="1")
    (tmp_path / "b").mkdir()
    second = tmp_path / "b/a.whl"
    second.write_bytes(first.read_bytes())

    assert dist.compared(first, second) == "same"


def test_a_failed_step_names_its_command_and_reason() -> None:
    """The end of the command's output is in the text."""
    program = "import sys; print('the reason', file=sys.stderr); sys.exit(3)"

    with pytest.raises(dist.StepFailedError, match=r"ended with 3:\n    the reason$"):
        dist.run([sys.executable, "-c", program])


def test_a_shell_that_chose_a_build_changes_no_release(monkeypatch: pytest.MonkeyPatch) -> None:
    """Variables that choose the build or the code are removed; the time of the files is set."""
    for name in dist.OWN_VARIABLES:
        monkeypatch.setenv(name, "1")
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1600000000")
    program = "import json, os; print(json.dumps(dict(os.environ)))"

    seen = json.loads(dist.run([sys.executable, "-c", program]))

    assert set(dist.OWN_VARIABLES) & seen.keys() == set()
    assert seen["SOURCE_DATE_EPOCH"] == "1600000000"


def test_the_table_names_the_failed_step(tmp_path: Path) -> None:
    """A line whose step failed makes the run fail."""
    file = tmp_path / "a.whl"
    file.write_bytes(b"12345")
    good = dist.Line(file, "same", ["3.11: compiled"])
    bad = dist.Line(file, "same", ["3.11: compiled", "FAILED 3.12: doctor says pure"])

    printed = dist.table([good, bad]).splitlines()

    assert (good.failed, bad.failed) == (False, True)
    assert printed[1].split() == ["a.whl", "5", "same", "3.11:", "compiled"]
    assert printed[2].endswith("FAILED 3.12: doctor says pure")


def test_every_install_line_is_found() -> None:
    """The pattern finds lines of console blocks and code in sentences."""
    lines = dict(install_lines())

    assert "pip install ." in lines
    assert "pip install 'aiowheel[client]'" in lines


def install_lines() -> Iterator[tuple[str, str]]:
    """Yield (line, first page) of every different install line of the documentation."""
    found: dict[str, str] = {}
    for page in PAGES:
        for match in INSTALL.finditer(page.read_text(encoding="utf-8")):
            line = match["line"].strip()
            # Neither `pip install -v`, nor a line that installs only another project's package.
            if re.search(r"aiowheel| '?\.", line):
                found.setdefault(line, page.relative_to(ROOT).as_posix())
    yield from sorted(found.items())


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a release for this Python."""
    folder = tmp_path_factory.mktemp("release")
    places = ("--out", str(folder / "dist"), "--work", str(folder / "work"))
    done = subprocess.run(
        [sys.executable, ROOT / "tools/dist.py", sys.executable, *places],
        capture_output=True,
        text=True,
        check=False,
        timeout=1_200,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return folder / "dist"


@pytest.mark.dist
@pytest.mark.timeout(1_500)
def test_a_release_for_this_python_is_complete(release: Path) -> None:
    """An sdist, a pure and a compiled wheel, checksums and an SBOM, without files of a checkout."""
    names = sorted(path.name for path in release.iterdir())
    tag = f"cp{sys.version_info.major}{sys.version_info.minor}"
    (sdist,) = (name for name in names if name.endswith(".tar.gz"))
    (pure,) = (name for name in names if name.endswith("-py3-none-any.whl"))
    (compiled,) = (name for name in names if f"-{tag}-{tag}-" in name)
    (bill,) = (name for name in names if name.endswith(".cdx.json"))

    assert names == sorted([sdist, pure, compiled, bill, "SHA256SUMS"])
    if sys.platform == "linux":
        assert "manylinux" in compiled
    sums = {
        name: digest
        for digest, name in map(str.split, (release / "SHA256SUMS").read_text().splitlines())
    }
    assert sums == {name: dist.sha256(release / name) for name in (sdist, pure, compiled, bill)}
    with tarfile.open(release / sdist) as archive:
        inside = {name.partition("/")[2] for name in archive.getnames()}
    assert {"pyproject.toml", "LICENSE", "Makefile", "tools/dist.py", "hatch_build.py"} <= inside
    assert {"Dockerfile", ".dockerignore", ".pre-commit-config.yaml", ".ci/run"} <= inside
    assert not any(name.endswith((".so", ".pyc")) for name in inside)


@pytest.mark.dist
@pytest.mark.timeout(1_500)
@pytest.mark.parametrize(("line", "page"), list(install_lines()), ids=lambda text: text)
def test_an_install_line_works(line: str, page: str, release: Path, tmp_path: Path) -> None:
    """It runs in an empty environment, from the checkout, as docs/how-to/install-and-build.md says.

    No index has the package: `PIP_FIND_LINKS` names the folder of the release. The checkout is the
    unpacked sdist, so that no build product of this tree is used.
    """
    venv.create(tmp_path / "venv", with_pip=True)
    binaries = tmp_path / "venv" / ("Scripts" if sys.platform == "win32" else "bin")
    (sdist,) = release.glob("*.tar.gz")
    checkout = dist.unpacked(sdist, tmp_path / "sdist").rename(tmp_path / "aiowheel")
    links = f"{os.environ.get('PIP_FIND_LINKS', '')} {release}".strip()
    wanted = re.findall(r"[\[,]([\w-]+)(?=[,\]])", line)

    pip, _, *words = shlex.split(line)
    # Beside the checkout if the line names its folder, otherwise in it.
    place = tmp_path if any(word.startswith("./aiowheel") for word in words) else checkout
    (pure,) = release.glob("*-none-any.whl")
    words = [str(pure) if word == "aiowheel-*.whl" else word for word in words]  # expand the glob
    dist.run([binaries / "python", "-m", pip, "install", *words], place, PIP_FIND_LINKS=links)

    # Run in another folder, where Python cannot import the checkout.
    program = (
        "import sys, aiowheel; from importlib.metadata import metadata; "
        "known = metadata('aiowheel').get_all('Provides-Extra'); "
        "assert set(sys.argv[1:]) <= set(known), known; print(aiowheel.__file__)"
    )
    elsewhere = tmp_path / "venv"
    imported = dist.run([binaries / "python", "-c", program, *wanted], elsewhere)
    assert Path(imported.strip()).is_relative_to(tmp_path / "venv"), page
