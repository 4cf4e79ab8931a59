"""The two builds: which one runs, how to choose one, and that an edited source always wins.

The switches are tested on copies of `_build.py` with a stand-in for a compiled module: Python loads
`box/_hot.<abi>.so` only if the finder allows it, and the load then fails on its content. Other
tests build a three-line package in its own folder with the real build hook.
"""

import ast
import os
import re
import runpy
import shutil
import subprocess
import sys
import tomllib
import zipfile
from hashlib import sha256
from importlib.machinery import EXTENSION_SUFFIXES
from importlib.metadata import EntryPoint
from importlib.util import find_spec
from pathlib import Path

import pytest
from hatchling.builders.sdist import SdistBuilder
from hatchling.builders.wheel import WheelBuilder

import aiowheel
import aiowheel.jobs
from aiowheel._build import build_info, fingerprint
from aiowheel.cli._app import COMMANDS
from aiowheel.cli._checkout import CHECKOUT_COMMANDS

pytestmark = pytest.mark.one_build

ROOT = Path(__file__).parent.parent
SUFFIX = EXTENSION_SUFFIXES[0]
STAMP = f"_compiled{SUFFIX.rpartition('.')[0]}.txt"
SWITCHES = ("AIOWHEEL_NO_EXTENSIONS", "AIOWHEEL_REQUIRE_EXTENSIONS")


def python(folder: Path, program: str, **switches: str) -> subprocess.CompletedProcess[str]:
    """Run a program in *folder* with only these switches set."""
    environment = {name: value for name, value in os.environ.items() if name not in SWITCHES}
    return subprocess.run(
        [sys.executable, "-c", program],
        cwd=folder,
        env=environment | switches | {"PYTHONPATH": ""},
        capture_output=True,
        text=True,
        check=False,
        timeout=200,
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
    write_stamp(tmp_path, "editable", fingerprint(str(hot)))
    return tmp_path


def write_stamp(box: Path, install: str, fingerprint: str) -> None:
    """Write the stamp that the build hook writes when it compiles the present hot module."""
    compiled_from = sha256((box / "box/_hot.py").read_bytes()).hexdigest()
    (box / "box" / STAMP).write_text(f"{install}\n{compiled_from} {fingerprint} box/_hot.py\n")


def test_the_compiled_module_is_loaded(box: Path) -> None:
    """Without a switch Python tries to load the extension; here the load fails, as it must."""
    result = python(box, "import box._hot")

    assert "ImportError" in result.stderr
    assert f"_hot{SUFFIX}" in result.stderr


def test_no_extensions_runs_the_source(box: Path) -> None:
    """The source runs although an extension stands beside it."""
    program = "import box, box._hot; print(box._hot.SPEED, box.accelerated())"

    result = python(box, program, AIOWHEEL_NO_EXTENSIONS="1")

    assert (result.stdout.split(), result.stderr) == (["source", "False"], "")


def test_no_extensions_leaves_other_modules_to_other_finders(box: Path) -> None:
    """The finder of pytest, for example, rewrites the asserts of modules."""
    (box / "box/_cold.py").touch()
    program = """
import sys
asked = []
class Finder:
    @staticmethod
    def find_spec(name, path=None, target=None):
        asked.append(name)
sys.meta_path.insert(0, Finder)
import box, box._cold, box._hot
print(*(name for name in asked if name.startswith("box.")))
"""
    result = python(box, program, AIOWHEEL_NO_EXTENSIONS="1")

    assert result.stdout.split() == ["box._build", "box._cold"]


def test_require_extensions_accepts_the_compiled_build(box: Path) -> None:
    """`AIOWHEEL_REQUIRE_EXTENSIONS` raises no error if compiled modules are present."""
    result = python(box, "import box; print(box.accelerated())", AIOWHEEL_REQUIRE_EXTENSIONS="1")

    assert result.stdout.strip() == "True"


def test_require_extensions_refuses_a_pure_install(box: Path) -> None:
    """The import fails with an error that names the missing extensions."""
    (box / "box" / STAMP).unlink()

    result = python(box, "import box", AIOWHEEL_REQUIRE_EXTENSIONS="1")

    assert result.stderr.splitlines()[-1].startswith(
        "ImportError: AIOWHEEL_REQUIRE_EXTENSIONS=1 is set, but this install has no compiled"
    )


def test_both_switches_contradict_each_other(box: Path) -> None:
    """Setting both switches is an error that names both."""
    result = python(box, "import box", AIOWHEEL_NO_EXTENSIONS="1", AIOWHEEL_REQUIRE_EXTENSIONS="1")

    assert all(switch in result.stderr.splitlines()[-1] for switch in SWITCHES)


def test_the_command_reports_the_contradiction_in_one_line(box: Path) -> None:
    """The command's script prints one line; `python -m` has its own text for an import error."""
    shutil.copy(ROOT / "aiowheel/__main__.py", box / "box")
    (box / "bin").mkdir()
    (box / "bin" / "box").write_text("from box.__main__ import main\n")
    program = "import runpy, sys; sys.argv = ['bin/box']; runpy.run_path('bin/box')"

    result = python(box, program, AIOWHEEL_NO_EXTENSIONS="1", AIOWHEEL_REQUIRE_EXTENSIONS="1")

    assert result.returncode == 1
    (line,) = result.stderr.splitlines()
    assert line.startswith("box: AIOWHEEL_REQUIRE_EXTENSIONS=1 is set, but AIOWHEEL_NO")


def test_an_edited_source_is_never_shadowed(box: Path) -> None:
    """After an edit the source runs, a warning is issued, and the build report names the module."""
    (box / "box/_hot.py").write_text("SPEED = 'edited'\n")
    program = "import box, box._hot; print(box._hot.SPEED, *box.build_info().stale)"

    result = python(box, program)

    assert result.stdout.split() == ["edited", "box._hot"]
    assert "RuntimeWarning: box runs uncompiled: edited after compiling: box._hot" in result.stderr


def test_an_edited_source_is_refused_where_extensions_are_required(box: Path) -> None:
    """A benchmark that requires the compiled build never measures the source."""
    (box / "box/_hot.py").write_text("SPEED = 'edited'\n")

    result = python(box, "import box", AIOWHEEL_REQUIRE_EXTENSIONS="1")

    assert "edited after compiling: box._hot" in result.stderr.splitlines()[-1]


def test_an_edit_of_equal_size_and_time_is_found(box: Path) -> None:
    """A copying tool may restore the modification time, but not the time of the last change."""
    hot = box / "box/_hot.py"
    status = hot.stat()
    hot.write_text("SPEED = 'edited'\n")
    os.utime(hot, ns=(status.st_atime_ns, status.st_mtime_ns))

    result = python(box, "import box, box._hot; print(box._hot.SPEED)")

    assert hot.stat().st_size == status.st_size
    assert result.stdout.strip() == "edited"


def test_changed_times_alone_are_not_an_edit(box: Path) -> None:
    """A checkout changes the times of unchanged files; only the content counts."""
    (box / "box/_hot.py").touch()

    result = python(box, "import box; print(box.accelerated(), box.build_info().stale)")

    assert (result.stdout.strip(), result.stderr) == ("True ()", "")


def test_an_unchanged_tree_is_not_hashed(box: Path) -> None:
    """Equal sizes and times prove that nothing was edited, so an import reads no source."""
    program = "import sys, box; print(box.accelerated(), 'hashlib' in sys.modules)"

    result = python(box, program)

    assert result.stdout.strip() == "True False"


def test_a_missing_source_is_an_edit(box: Path) -> None:
    """An extension without its source is not a working install of an editable tree."""
    (box / "box/_hot.py").unlink()

    result = python(box, "import box; print(box.accelerated(), *box.build_info().stale)")

    assert result.stdout.strip() == "False box._hot"


def test_a_wheel_is_not_checked_for_edits(box: Path) -> None:
    """Importing an installed wheel hashes no file."""
    write_stamp(box, "wheel", "-")
    (box / "box/_hot.py").write_text("SPEED = 'edited'\n")

    result = python(box, "import box; print(box.accelerated(), box.build_info().stale)")

    assert result.stdout.strip() == "True ()"


def test_an_archive_runs_the_source(box: Path) -> None:
    """Python imports packages from zip files, from which it cannot load extensions."""
    with zipfile.ZipFile(box / "box.zip", "w") as archive:
        for source in (box / "box").glob("*.py"):
            archive.write(source, f"box/{source.name}")
    program = "import sys; sys.path[0] = 'box.zip'; import box, box._hot; print(box._hot.SPEED)"

    result = python(box, f"{program}; print(box.build_info().reason)")

    assert result.stdout.splitlines()[0] == "source", result.stderr
    assert "no compiled modules" in result.stdout


def test_a_subinterpreter_runs_the_source(box: Path) -> None:
    """Compiled modules belong to the main interpreter; Python 3.11 has no cheap way to ask."""
    program = "import _thread; _thread._is_main_interpreter = lambda: False; import box, box._hot"

    result = python(box, f"{program}; print(box._hot.SPEED, box.build_info().reason)")
    required = python(box, program, AIOWHEEL_REQUIRE_EXTENSIONS="1")

    assert result.stdout.startswith("source this is a subinterpreter"), result.stderr
    assert "this is a subinterpreter" in required.stderr.splitlines()[-1]


@pytest.mark.skipif(sys.version_info < (3, 12), reason="compiled modules run in each interpreter")
def test_a_real_subinterpreter_runs_the_source(box: Path) -> None:
    """As above, with the interpreters of the standard library."""
    result = python(box, SUBINTERPRETER)

    assert result.stdout.split() == ["source"], result.stderr


SUBINTERPRETER = """
import os
try:
    import _interpreters as interpreters
except ImportError:
    import _xxsubinterpreters as interpreters
program = f"import sys; sys.path[:0] = [{os.getcwd()!r}]; import box._hot; print(box._hot.SPEED)"
interpreters.run_string(interpreters.create(), program + "; sys.stdout.flush()")
"""


def test_this_run_has_no_stale_module() -> None:
    """The suite never runs an extension that is older than its source."""
    assert build_info().stale == ()


def test_the_reported_build_is_the_loaded_one() -> None:
    """`accelerated` agrees with the files from which the hot modules were loaded."""
    info = build_info()
    loaded = {
        name: Path(str(module.__file__)).name.endswith(SUFFIX)
        for name, module in sys.modules.items()
        if name in info.compiled
    }

    assert aiowheel.accelerated == info.accelerated
    assert set(loaded.values()) <= {info.accelerated}


def collected(folder: str) -> tuple[list[str], dict[str, Path]]:
    """Run PyInstaller's hook in *folder*; return the modules and the files that it adds."""
    hook = runpy.run_path(f"{folder}/hook-aiowheel.py")
    files = {f"{to}/{Path(path).name}": Path(path) for path, to in hook["datas"]}
    return hook["hiddenimports"], files


def test_pyinstaller_finds_the_hook() -> None:
    """The entry point leads to the hook, which names modules and files of this install."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    (name, value), *others = project["entry-points"]["pyinstaller40"].items()
    (folder,) = EntryPoint(name, value, "pyinstaller40").load()()

    modules, files = collected(folder)

    assert (name, others) == ("hook-dirs", [])
    assert all(find_spec(module) for module in modules)
    assert all(path == ROOT / to for to, path in files.items())
    assert all(path.is_file() for path in files.values())
    assert {*(ROOT / "aiowheel/dashboard/page").iterdir()} <= {*files.values()}


def test_a_frozen_program_has_what_the_choice_of_the_build_reads(tmp_path: Path) -> None:
    """PyInstaller collects neither mypyc's shared library, nor the stamp, nor compiled sources."""
    shutil.copytree(ROOT / "aiowheel/_pyinstaller", tmp_path / "aiowheel/_pyinstaller")
    (tmp_path / "aiowheel/timer").mkdir()
    for name in (f"_core__mypyc{SUFFIX}", STAMP, "timer/_hot.py", f"timer/_hot{SUFFIX}", "pure.py"):
        (tmp_path / "aiowheel" / name).touch()

    modules, files = collected(f"{tmp_path}/aiowheel/_pyinstaller")

    assert modules == ["aiowheel._core__mypyc"]
    assert set(files) == {f"aiowheel/{STAMP}", "aiowheel/timer/_hot.py"}


def test_a_frozen_program_has_every_subcommand() -> None:
    """The command line imports them by name, which PyInstaller cannot see."""
    hook = runpy.run_path(f"{ROOT}/aiowheel/_pyinstaller/hook-aiowheel.cli.py")

    found = {name.rpartition(".")[2] for name in hook["hiddenimports"]}
    assert found == {*COMMANDS} - CHECKOUT_COMMANDS.keys()
    assert all(find_spec(name) for name in hook["hiddenimports"])


def test_a_frozen_program_has_every_job() -> None:
    """`aiowheel.jobs` imports them by name as well; PyInstaller reads the imports for checkers."""
    source = (ROOT / "aiowheel/jobs/__init__.py").read_text("utf-8")
    imported = {
        node.module for node in ast.walk(ast.parse(source)) if isinstance(node, ast.ImportFrom)
    }

    assert {f"aiowheel.jobs.{home}" for home in aiowheel.jobs._HOMES.values()} <= imported


def make_project(folder: Path, **modules: str) -> Path:
    """Create a small project with the same package name and our build hook."""
    (folder / "aiowheel").mkdir()
    (folder / "aiowheel/__init__.py").write_text("")
    for name, text in modules.items():
        (folder / f"aiowheel/{name}.py").write_text(text)
    for hook in ("hatch_build.py", "hatch_c.py"):
        shutil.copy(ROOT / hook, folder)
    listed = ", ".join(f'"aiowheel/{name}.py"' for name in modules)
    (folder / "pyproject.toml").write_text(
        '[build-system]\nrequires = ["hatchling"]\nbuild-backend = "hatchling.build"\n'
        '[project]\nname = "aiowheel"\nversion = "1"\nrequires-python = ">=3.11"\n'
        '[tool.hatch.build]\ndev-mode-dirs = ["."]\n'
        "[tool.hatch.build.targets.wheel.hooks.custom]\n"
        f'path = "hatch_build.py"\ncompile = [{listed}, "aiowheel/none/_*.py"]\n'
    )
    return folder


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project with one module to compile."""
    return make_project(tmp_path, _hot="def double(n: int) -> int:\n    return 2 * n\n")


STAMPED = """
from pathlib import Path
import hatch_build
hot, build = Path("aiowheel/_hot.py"), Path("build").resolve()
hatch_build.copy_for_mypyc(Path.cwd(), build)
for _ in range(2):
    stamp = hatch_build.write_stamp(Path.cwd(), [str(hot)], build, editable=True)
    print(stamp.read_text().splitlines()[1].split()[1] != "-")
    hot.write_text("edited")
"""


def test_replaced_type_aliases_are_no_edit(project: Path) -> None:
    """The replaced type aliases are no edit; an edit during compilation is one."""
    (project / "aiowheel/_hot.py").write_text(
        "from typing import TypeAlias\n\nCount: TypeAlias = int\n"
    )

    assert python(project, STAMPED).stdout.split() == ["True", "False"]


BUILD = "from hatchling.build import build_wheel; print(build_wheel('.'))"


def test_an_older_python_is_refused_in_one_line(project: Path) -> None:
    """Pip compares `requires-python` of an sdist only after the build hook."""
    settings = project / "pyproject.toml"
    settings.write_text(settings.read_text().replace(">=3.11", ">=3.99"))

    result = python(project, BUILD)

    running = ".".join(map(str, sys.version_info[:3]))
    assert result.returncode == 1
    assert result.stderr == f"aiowheel needs Python >=3.99, this is {running}\n"


def members(project: Path, wheel: str) -> list[str]:
    """Return the file names inside a wheel."""
    with zipfile.ZipFile(project / wheel) as archive:
        return archive.namelist()


def test_the_wheel_has_only_the_package_and_the_sdist_all() -> None:
    """Users install no benchmark and no example; the sdist has both."""
    wheel, sdist = (
        {file.distribution_path for file in builder(str(ROOT)).recurse_included_files()}
        for builder in (WheelBuilder, SdistBuilder)
    )

    assert {name.partition("/")[0] for name in wheel} == {"aiowheel", "_aiowheel_pytestplugin.py"}
    assert {"aiowheel/__main__.py", "aiowheel/cli/_checkout.py"} <= wheel
    assert {"benchmarks/commands.py", "examples/demo/command.py"} <= sdist
    assert wheel <= sdist


HOT = '''"""A module."""


def double(n: int) -> int:
    """Return *n* "twice".

    Two lines, a \\\\ and an é.
    """
    return 2 * n


def silent(n: int) -> int:
    return n


class Box:
    """A class."""

    def __init__(self, n: int) -> None:
        self._n = n

    @property
    def half(self) -> int:
        """A property."""
        return self._n // 2

    def plus(self, m: int = 1) -> int:
        """A method."""
        return self._n + m
'''

CALLED = """
def bundle(first: object, *rest: object, last: object = None) -> object:
    return first, rest, last


def pick(first: object, *, last: object = None) -> object:
    return first, last


class Pair:
    def __init__(self, first: object, *, last: object = None) -> None:
        self.both = (first, last)

    def __repr__(self) -> str:
        return str(self.both)
"""


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project with its compiled wheel in its folder, unpacked in `installed`."""
    other = "from aiowheel._hot import double\n"
    folder = make_project(tmp_path_factory.mktemp("built"), _hot=HOT, _other=other, _called=CALLED)
    result = python(folder, BUILD, AIOWHEEL_REQUIRE_EXTENSIONS="1")
    if "no working C compiler" in result.stderr:
        pytest.skip("this machine has no C compiler")
    with zipfile.ZipFile(folder / result.stdout.splitlines()[-1]) as archive:
        archive.extractall(folder / "installed")
    return folder


@pytest.mark.slow
def test_a_compiled_wheel_carries_extensions_and_a_platform_tag(built: Path) -> None:
    """The wheel holds the module, mypyc's shared library and the stamp, and names its platform."""
    (wheel,) = (path.name for path in built.glob("*.whl"))

    assert not wheel.endswith("-none-any.whl")
    assert {f"aiowheel/_hot{SUFFIX}", f"aiowheel/_core__mypyc{SUFFIX}", f"aiowheel/{STAMP}"} <= set(
        members(built, wheel)
    )


@pytest.mark.slow
def test_compiled_code_keeps_its_docstrings_and_its_files(built: Path) -> None:
    """`help` shows signature and text; `__file__` names the loaded extension."""
    described = {}
    for folder in ("installed", "."):
        answer = python(built, DESCRIBE.replace("FOLDER", folder))
        assert answer.stderr == ""
        described[folder], files = answer.stdout.rsplit("\n--\n")
        suffix = SUFFIX if folder == "installed" else ".py"
        assert files.split() == [f"_hot{suffix}", "True", f"_other{suffix}", "True"]

    assert 'double(n)\n    Return *n* "twice".' in described["installed"]
    assert described["installed"] == described["."]


DESCRIBE = """
import inspect, os, pydoc, sys
sys.path.insert(0, "FOLDER")
from aiowheel import _other, _hot
Box = _hot.Box
print(inspect.signature(_hot.double).parameters.keys())
for each in (_hot, _hot.double, _hot.silent, Box, Box.half, Box.plus):
    print(inspect.getdoc(each) or None)
print("double(n)\\n    " + inspect.getdoc(_hot.double))
print("--")
for module in (_hot, _other):
    print(os.path.basename(module.__file__), os.path.exists(module.__file__))
"""

CALLS = """
import sys
sys.path.insert(0, "installed")
from aiowheel import _called
print(_called.__file__.endswith(".py"))
for call in ("1", "1, 2, 3", "1, last=4", "1, 2, last=4", "first=1, last=4", "first=1", "", "x=4"):
    for name in ("bundle", "pick", "Pair"):
        try:
            print(name, call, eval(f"_called.{name}({call})"))
        except TypeError:
            print(name, call, "TypeError")
"""


@pytest.mark.slow
def test_a_short_cut_past_the_argument_parser_changes_no_call(built: Path) -> None:
    """Constructors and functions with `*args` or keyword-only arguments accept the same calls."""
    generated = "".join(path.read_text() for path in (built / "build").rglob("*.c"))
    compiled = python(built, CALLS).stdout
    interpreted = python(built, CALLS.replace('"installed"', '"."')).stdout

    assert generated.count("if (kwnames == NULL && nargs == 1)") == 2
    # One for `Pair`, and one for `Box` in the other module.
    assert generated.count("if (kw == NULL && PyTuple_GET_SIZE(args) == 1)") == 2
    assert compiled.startswith(
        "False\nbundle 1 (1, (), None)\npick 1 (1, None)\nPair 1 (1, None)\n"
    )
    assert interpreted == compiled.replace("False", "True", 1)


@pytest.mark.slow
def test_the_wheel_holds_the_package_and_the_pytest_plugin(tmp_path: Path) -> None:
    """The plugin stands beside the package, so a list of packages would miss it."""
    program = f"from hatchling.build import build_wheel; print(build_wheel({str(tmp_path)!r}))"

    result = python(ROOT, program, AIOWHEEL_NO_EXTENSIONS="1")

    names = members(tmp_path, result.stdout.splitlines()[-1])
    assert {"aiowheel/__init__.py", "aiowheel/py.typed", "_aiowheel_pytestplugin.py"} <= {*names}
    assert {name.partition("/")[0] for name in names} == {
        "aiowheel",
        "_aiowheel_pytestplugin.py",
        f"aiowheel-{aiowheel.__version__}.dist-info",
    }


def test_a_build_without_extensions_is_for_any_platform(project: Path) -> None:
    """The switch works at build time as well, and the build prints that it is pure."""
    result = python(project, BUILD, AIOWHEEL_NO_EXTENSIONS="1")
    wheel = result.stdout.splitlines()[-1]

    assert wheel == "aiowheel-1-py3-none-any.whl"
    assert "WITHOUT compiled modules: AIOWHEEL_NO_EXTENSIONS=1 is set" in result.stderr
    assert [name for name in members(project, wheel) if "_hot" in name] == ["aiowheel/_hot.py"]


@pytest.mark.slow
def test_a_machine_without_a_compiler_gets_the_pure_build(project: Path) -> None:
    """If the compiler cannot start, the build continues and is pure."""
    result = python(project, BUILD, CC="/nonexistent/cc")

    assert result.stdout.splitlines()[-1] == "aiowheel-1-py3-none-any.whl"
    assert "WITHOUT compiled modules: no working C compiler was found" in result.stderr


HALF_A_COMPILER = """#!/bin/sh
for word in "$@"; do
    case "$word" in *__native*) echo "cc: out of memory" >&2; exit 1 ;; esac
done
exec cc "$@"
"""


@pytest.fixture
def half_a_compiler(tmp_path: Path) -> str:
    """A C compiler that builds the probe and fails at the real code."""
    if shutil.which("cc") is None:
        pytest.skip("this machine has no C compiler")
    compiler = tmp_path / "half-cc"
    compiler.write_text(HALF_A_COMPILER)
    compiler.chmod(0o755)
    return str(compiler)


@pytest.mark.thorough
def test_a_compiler_that_fails_half_way_leaves_the_pure_build(
    project: Path, half_a_compiler: str
) -> None:
    """The wheel is pure, holds no partial product, and the notice names the failed step."""
    result = python(project, BUILD, CC=half_a_compiler)

    wheel = result.stdout.splitlines()[-1]
    assert wheel == "aiowheel-1-py3-none-any.whl"
    assert [name for name in members(project, wheel) if "_hot" in name] == ["aiowheel/_hot.py"]
    assert not list((project / "build").glob("mypyc*"))
    assert "WITHOUT compiled modules: the C compiler failed at the generated code" in result.stderr


@pytest.mark.slow
def test_a_compiler_that_fails_half_way_leaves_a_pure_tree(
    project: Path, half_a_compiler: str
) -> None:
    """An editable install also removes the extensions of an earlier build."""
    (project / "aiowheel" / f"_hot{SUFFIX}").write_bytes(b"of an earlier build")
    (project / "aiowheel" / STAMP).write_text("editable\n")

    result = python(project, BUILD.replace("build_wheel", "build_editable"), CC=half_a_compiler)

    assert result.returncode == 0, result.stderr
    assert sorted(path.name for path in (project / "aiowheel").iterdir()) == [
        "__init__.py",
        "_hot.py",
    ]


@pytest.mark.thorough
def test_a_required_compiler_that_fails_half_way_fails_the_build(
    project: Path, half_a_compiler: str
) -> None:
    """The error names the step that failed."""
    result = python(project, BUILD, CC=half_a_compiler, AIOWHEEL_REQUIRE_EXTENSIONS="1")

    assert result.returncode != 0
    assert result.stderr.splitlines()[-1].startswith(
        "AIOWHEEL_REQUIRE_EXTENSIONS=1, but the C compiler failed at the generated code"
    )


FREE_THREADED = "import sysconfig; sysconfig.get_config_vars()['Py_GIL_DISABLED'] = 1; "


def test_a_free_threaded_python_gets_the_pure_build(project: Path) -> None:
    """The code that mypyc generates relies on the GIL, so nothing is compiled for such a Python."""
    result = python(project, FREE_THREADED + BUILD)

    assert result.stdout.splitlines()[-1] == "aiowheel-1-py3-none-any.whl"
    assert "WITHOUT compiled modules: this Python is free-threaded" in result.stderr


def test_a_free_threaded_python_reports_why_it_runs_the_sources(box: Path) -> None:
    """The build report, which `aiowheel doctor` prints, does not name the compiler as the cause."""
    (box / "box" / STAMP).unlink()

    result = python(box, FREE_THREADED + "import box; print(box.build_info().reason)")

    assert result.stdout.startswith("this Python is free-threaded")


def test_a_required_compiler_that_is_missing_fails_the_build(project: Path) -> None:
    """With `AIOWHEEL_REQUIRE_EXTENSIONS` the build fails instead of making a pure wheel."""
    result = python(project, BUILD, CC="/nonexistent/cc", AIOWHEEL_REQUIRE_EXTENSIONS="1")

    assert result.returncode != 0
    assert result.stderr.splitlines()[-1].startswith(
        "AIOWHEEL_REQUIRE_EXTENSIONS=1, but no working C compiler was found"
    )


def run_make(tmp_path: Path, pythons: str) -> subprocess.CompletedProcess[str]:
    """Run `make test-all-pythons` for *pythons*, with `echo` in place of the tests."""
    if shutil.which("make") is None:
        pytest.skip("this machine has no make")
    path = f"{sys.base_prefix}/bin{os.pathsep}{os.environ['PATH']}"
    return subprocess.run(
        # The suite may run inside another make, and make then prints the folders that it enters.
        ["make", "--no-print-directory", "test-all-pythons", "MAKE=echo", f"PYTHONS={pythons}"],
        cwd=ROOT,
        env=os.environ | {"PATH": path, "PYENV_ROOT": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
        timeout=200,
    )


def test_the_matrix_runs_the_pythons_that_are_found(tmp_path: Path) -> None:
    """A missing interpreter is named and does not stop the run."""
    own = f"{sys.version_info.major}.{sys.version_info.minor}"
    result = run_make(tmp_path, f"9.8 {own} 9.9")
    if "not found" in result.stderr:
        pytest.skip("this interpreter cannot make environments")

    first, *rest = result.stdout.splitlines()
    assert first.endswith(f"test-python-{own}")
    assert rest == [
        f"tested: Python {own}",
        "NOT tested: Python 9.8: not found, neither through pyenv nor on PATH",
        "NOT tested: Python 9.9: not found, neither through pyenv nor on PATH",
    ]
    assert result.returncode == 0


def test_a_matrix_without_any_python_fails(tmp_path: Path) -> None:
    """A run that tested nothing must fail."""
    result = run_make(tmp_path, "9.8 9.9")

    assert result.returncode != 0
    assert "Python 9.8 9.9: not found" in result.stderr


@pytest.mark.parametrize(
    "edited", ["hatch_build.py", "hatch_c.py", "pyproject.toml", "aiowheel/wheel/_wheel.py"]
)
def test_an_edit_of_what_the_build_reads_compiles_again(tmp_path: Path, edited: str) -> None:
    """With `--question` make runs nothing and exits with 1 if the target is out of date."""
    if shutil.which("make") is None:
        pytest.skip("this machine has no make")
    for stamp in ("venv", "deps", "build"):
        (tmp_path / f".stamp-{stamp}").touch()
    question = [
        "make",
        "--question",
        f"VENV={tmp_path}",
        "PYTHON=python",
        f"{tmp_path}/.stamp-build",
    ]

    codes = [
        subprocess.run([*question, *edit], cwd=ROOT, check=False, timeout=200).returncode
        for edit in ([], [f"--what-if={edited}"])
    ]

    assert codes == [0, 1]


def test_clean_removes_every_folder_that_a_target_creates() -> None:
    """Environments have names in the Makefile; `.gitignore` lists the other folders."""
    if shutil.which("make") is None:
        pytest.skip("this machine has no make")
    makefile = (ROOT / "Makefile").read_text()
    created = set(
        re.findall(r"VENV=(\.venv-[a-z]+)|^\w+ := (\.venv-[a-z]+)$", makefile, re.MULTILINE)
    )
    ignored = re.findall(r"^/?([\w.-]+)/$", (ROOT / ".gitignore").read_text(), re.MULTILINE)

    shown = subprocess.run(
        ["make", "--dry-run", "PYTHON=python", "clean"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
        timeout=200,
    )

    folders = {name for names in created for name in names if name} | set(ignored)
    assert {".venv-debug", "build", "aiowheel-bench"} <= folders
    assert folders - set(shown.stdout.split()) == set()


def test_a_listed_module_that_is_missing_fails_the_build(project: Path) -> None:
    """A misspelt name in the list must not silently ship an uncompiled module."""
    (project / "aiowheel/_hot.py").unlink()

    result = python(project, BUILD, AIOWHEEL_REQUIRE_EXTENSIONS="1")

    assert result.returncode != 0
    assert "lists aiowheel/_hot.py for compiling" in result.stderr or "C compiler" in result.stderr
