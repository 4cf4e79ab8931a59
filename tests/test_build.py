"""The two builds: which one runs, how to choose, and that an edit is never shadowed.

The switches are tried on copies of `_build.py` with a stand-in for a compiled module: Python
loads `box/_hot.<abi>.so` only if the finder lets it, and here that would fail on its content.
The build hook itself compiles a three-line package in a folder of its own.
"""

import json
import os
import shutil
import subprocess
import sys
import zipfile
from hashlib import sha256
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

import pytest

import aiowheel
from aiowheel._build import build_info

ROOT = Path(__file__).parent.parent
SUFFIX = EXTENSION_SUFFIXES[0]
STAMP = f"_compiled{SUFFIX.rpartition('.')[0]}.json"
SWITCHES = ("AIOWHEEL_NO_EXTENSIONS", "AIOWHEEL_REQUIRE_EXTENSIONS")


def python(folder: Path, program: str, **switches: str) -> subprocess.CompletedProcess[str]:
    """Run a program in *folder* with exactly these switches set."""
    environment = {name: value for name, value in os.environ.items() if name not in SWITCHES}
    return subprocess.run(
        [sys.executable, "-c", program],
        cwd=folder,
        env=environment | switches | {"PYTHONPATH": ""},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


@pytest.fixture
def box(tmp_path: Path) -> Path:
    """A package `box` with our `_build.py`, one hot module and an extension that cannot load."""
    package = tmp_path / "box"
    package.mkdir()
    shutil.copy(ROOT / "aiowheel/_build.py", package)
    (package / "__init__.py").write_text("from box._build import accelerated, build_info\n")
    hot = package / "_hot.py"
    hot.write_text("SPEED = 'source'\n")
    (package / f"_hot{SUFFIX}").write_bytes(b"not an extension")
    stamp = {"editable": True, "sources": {"box/_hot.py": sha256(hot.read_bytes()).hexdigest()}}
    (package / STAMP).write_text(json.dumps(stamp))
    return tmp_path


def test_the_compiled_module_is_what_loads(box: Path) -> None:
    """Without a switch the extension wins; this one fails to load, which proves it was tried."""
    result = python(box, "import box._hot")

    assert "ImportError" in result.stderr
    assert f"_hot{SUFFIX}" in result.stderr


def test_no_extensions_runs_the_source(box: Path) -> None:
    """The switch passes over an extension that stands beside the source."""
    program = "import box, box._hot; print(box._hot.SPEED, box.accelerated())"

    result = python(box, program, AIOWHEEL_NO_EXTENSIONS="1")

    assert (result.stdout.split(), result.stderr) == (["source", "False"], "")


def test_require_extensions_accepts_the_compiled_build(box: Path) -> None:
    """Nothing is refused when there is something compiled."""
    result = python(box, "import box; print(box.accelerated())", AIOWHEEL_REQUIRE_EXTENSIONS="1")

    assert result.stdout.strip() == "True"


def test_require_extensions_refuses_a_pure_install(box: Path) -> None:
    """The import itself fails, and says what is missing."""
    (box / "box" / STAMP).unlink()

    result = python(box, "import box", AIOWHEEL_REQUIRE_EXTENSIONS="1")

    assert result.stderr.splitlines()[-1].startswith(
        "ImportError: AIOWHEEL_REQUIRE_EXTENSIONS=1 is set, but this install has no compiled"
    )


def test_both_switches_contradict_each_other(box: Path) -> None:
    """Asking for both is refused with both names in the text."""
    result = python(box, "import box", AIOWHEEL_NO_EXTENSIONS="1", AIOWHEEL_REQUIRE_EXTENSIONS="1")

    assert all(switch in result.stderr.splitlines()[-1] for switch in SWITCHES)


def test_the_command_says_so_in_one_line(box: Path) -> None:
    """Its script imports the package first; python -m has words of its own for that."""
    shutil.copy(ROOT / "aiowheel/__main__.py", box / "box")
    (box / "bin").mkdir()
    (box / "bin" / "box").write_text("from box.__main__ import main\n")
    program = "import runpy, sys; sys.argv = ['bin/box']; runpy.run_path('bin/box')"

    result = python(box, program, AIOWHEEL_NO_EXTENSIONS="1", AIOWHEEL_REQUIRE_EXTENSIONS="1")

    assert result.returncode == 1
    (line,) = result.stderr.splitlines()
    assert line.startswith("box: AIOWHEEL_REQUIRE_EXTENSIONS=1 is set, but AIOWHEEL_NO")


def test_an_edited_source_is_never_shadowed(box: Path) -> None:
    """After an edit the source runs, a warning says so, and the build report names the module."""
    (box / "box/_hot.py").write_text("SPEED = 'edited'\n")
    program = "import box, box._hot; print(box._hot.SPEED, *box.build_info().stale)"

    result = python(box, program)

    assert result.stdout.split() == ["edited", "box._hot"]
    assert "RuntimeWarning: box runs uncompiled: edited after compiling: box._hot" in result.stderr


def test_an_edited_source_is_refused_where_extensions_are_required(box: Path) -> None:
    """A benchmark never measures another build than it asked for."""
    (box / "box/_hot.py").write_text("SPEED = 'edited'\n")

    result = python(box, "import box", AIOWHEEL_REQUIRE_EXTENSIONS="1")

    assert "edited after compiling: box._hot" in result.stderr.splitlines()[-1]


def test_a_wheel_is_not_checked_for_edits(box: Path) -> None:
    """An installed wheel pays for no hashing at import."""
    stamp = json.loads((box / "box" / STAMP).read_text())
    (box / "box" / STAMP).write_text(json.dumps(stamp | {"editable": False}))
    (box / "box/_hot.py").write_text("SPEED = 'edited'\n")

    result = python(box, "import box; print(box.accelerated(), box.build_info().stale)")

    assert result.stdout.strip() == "True ()"


def test_an_archive_runs_the_source(box: Path) -> None:
    """Python imports packages from zip files, which hold no extension it could load."""
    with zipfile.ZipFile(box / "box.zip", "w") as archive:
        for source in (box / "box").glob("*.py"):
            archive.write(source, f"box/{source.name}")
    program = "import sys; sys.path[0] = 'box.zip'; import box, box._hot; print(box._hot.SPEED)"

    result = python(box, f"{program}; print(box.build_info().reason)")

    assert result.stdout.splitlines()[0] == "source", result.stderr
    assert "no compiled modules" in result.stdout


def test_this_run_has_no_stale_module() -> None:
    """The suite never measures an extension that is older than its source."""
    assert build_info().stale == ()


def test_what_is_said_is_what_is_loaded() -> None:
    """`accelerated` agrees with the files the hot modules were loaded from."""
    info = build_info()
    loaded = {
        name: Path(str(module.__file__)).name.endswith(SUFFIX)
        for name, module in sys.modules.items()
        if name in info.compiled
    }

    assert aiowheel.accelerated == info.accelerated
    assert set(loaded.values()) <= {info.accelerated}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A small project of the same name that is built by our hook."""
    (tmp_path / "aiowheel").mkdir()
    (tmp_path / "aiowheel/__init__.py").write_text("")
    (tmp_path / "aiowheel/_hot.py").write_text("def double(n: int) -> int:\n    return 2 * n\n")
    for hook in ("hatch_build.py", "hatch_c.py"):
        shutil.copy(ROOT / hook, tmp_path)
    (tmp_path / "pyproject.toml").write_text(
        '[build-system]\nrequires = ["hatchling"]\nbuild-backend = "hatchling.build"\n'
        '[project]\nname = "aiowheel"\nversion = "1"\nrequires-python = ">=3.11"\n'
        "[tool.hatch.build.targets.wheel.hooks.custom]\n"
        'path = "hatch_build.py"\ncompile = ["aiowheel/_hot.py", "aiowheel/none/_*.py"]\n'
    )
    return tmp_path


BUILD = "from hatchling.build import build_wheel; print(build_wheel('.'))"


def members(project: Path, wheel: str) -> list[str]:
    """File names inside a wheel."""
    with zipfile.ZipFile(project / wheel) as archive:
        return archive.namelist()


@pytest.mark.slow
def test_a_compiled_wheel_carries_extensions_and_a_platform_tag(project: Path) -> None:
    """The module, mypyc's shared library and the stamp are in a wheel for this platform."""
    result = python(project, BUILD, AIOWHEEL_REQUIRE_EXTENSIONS="1")
    if "no working C compiler" in result.stderr:
        pytest.skip("this machine has no C compiler")
    wheel = result.stdout.splitlines()[-1]

    assert not wheel.endswith("-none-any.whl")
    assert {f"aiowheel/_hot{SUFFIX}", f"aiowheel/_core__mypyc{SUFFIX}", f"aiowheel/{STAMP}"} <= set(
        members(project, wheel)
    )


HOT_CALLS = """
import sys
sys.path.insert(0, "installed")
from aiowheel import _hot
print(_hot.__file__.endswith(".py"))
for call in ("1", "1, 2, 3", "1, last=4", "1, 2, last=4", "first=1, last=4", "first=1", "", "x=4"):
    for name in ("bundle", "pick", "Pair"):
        try:
            print(name, call, eval(f"_hot.{name}({call})"))
        except TypeError:
            print(name, call, "TypeError")
"""


@pytest.mark.slow
def test_a_short_cut_past_the_argument_parser_changes_no_call(project: Path) -> None:
    """Constructors and functions with `*args` or keyword-only arguments take what they took."""
    (project / "aiowheel/_hot.py").write_text(
        "def bundle(first: object, *rest: object, last: object = None) -> object:\n"
        "    return first, rest, last\n\n\n"
        "def pick(first: object, *, last: object = None) -> object:\n"
        "    return first, last\n\n\n"
        "class Pair:\n"
        "    def __init__(self, first: object, *, last: object = None) -> None:\n"
        "        self.both = (first, last)\n\n"
        "    def __repr__(self) -> str:\n"
        "        return str(self.both)\n"
    )
    result = python(project, BUILD, AIOWHEEL_REQUIRE_EXTENSIONS="1")
    if "no working C compiler" in result.stderr:
        pytest.skip("this machine has no C compiler")
    generated = "".join(path.read_text() for path in (project / "build").rglob("*.c"))
    with zipfile.ZipFile(project / result.stdout.splitlines()[-1]) as archive:
        archive.extractall(project / "installed")
    compiled = python(project, HOT_CALLS).stdout
    interpreted = python(project, HOT_CALLS.replace('"installed"', '"."')).stdout

    assert generated.count("if (kwnames == NULL && nargs == 1)") == 2
    assert generated.count("if (kw == NULL && PyTuple_GET_SIZE(args) == 1)") == 1
    assert compiled.startswith(
        "False\nbundle 1 (1, (), None)\npick 1 (1, None)\nPair 1 (1, None)\n"
    )
    assert interpreted == compiled.replace("False", "True", 1)


def test_a_build_without_extensions_is_for_any_platform(project: Path) -> None:
    """The switch works at build time too, and the build says that it did."""
    result = python(project, BUILD, AIOWHEEL_NO_EXTENSIONS="1")
    wheel = result.stdout.splitlines()[-1]

    assert wheel == "aiowheel-1-py3-none-any.whl"
    assert "WITHOUT compiled modules: AIOWHEEL_NO_EXTENSIONS=1 is set" in result.stderr
    assert [name for name in members(project, wheel) if "_hot" in name] == ["aiowheel/_hot.py"]


@pytest.mark.slow
def test_a_machine_without_a_compiler_gets_the_pure_build(project: Path) -> None:
    """A compiler that cannot be started is no reason to fail."""
    result = python(project, BUILD, CC="/nonexistent/cc")

    assert result.stdout.splitlines()[-1] == "aiowheel-1-py3-none-any.whl"
    assert "WITHOUT compiled modules: no working C compiler was found" in result.stderr


def test_a_required_compiler_that_is_missing_fails_the_build(project: Path) -> None:
    """Whoever asks for the compiled build gets it or an error, never the other one."""
    result = python(project, BUILD, CC="/nonexistent/cc", AIOWHEEL_REQUIRE_EXTENSIONS="1")

    assert result.returncode != 0
    assert result.stderr.splitlines()[-1].startswith(
        "AIOWHEEL_REQUIRE_EXTENSIONS=1, but no working C compiler was found"
    )


def test_a_listed_module_that_is_missing_fails_the_build(project: Path) -> None:
    """A typing error in the list must not quietly ship an uncompiled module."""
    (project / "aiowheel/_hot.py").unlink()

    result = python(project, BUILD, AIOWHEEL_REQUIRE_EXTENSIONS="1")

    assert result.returncode != 0
    assert "lists aiowheel/_hot.py for compiling" in result.stderr or "C compiler" in result.stderr
