"""The public packages: each exports what its `__all__` names and imports only what it needs."""

import inspect
import os
import subprocess
import sys
import typing
import unittest
from importlib import import_module
from pathlib import Path

import pytest

import aiowheel
from aiowheel import _build
from aiowheel.errors import MissingExtraError

PACKAGE = Path(__file__).parent.parent / "aiowheel"
PUBLIC = sorted(
    ".".join(init.parent.relative_to(PACKAGE.parent).parts)
    for init in PACKAGE.rglob("__init__.py")
    if "__all__" in init.read_text(encoding="utf-8")
)
# Modules that only some processes use; each takes a millisecond or more to import.
SELDOM_USED = (
    "aiowheel.loop",
    "anyio",
    "dataclasses",
    "datetime",
    "hashlib",
    "importlib.resources",
    "json",
    "pathlib",
    "platform",
    "random",
    "structlog",
    "sysconfig",
    "tempfile",
)
HEAVY = ("matplotlib", "pandas", "pyarrow", "pyspark", "rich", "starlette", "typer", "uvloop")


def ran(program: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a program in a new process of Python, whose modules no test has loaded."""
    return subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=True,
        timeout=200,
        env=os.environ | environment,
    )


def has_new_times() -> bool:
    """Return whether a compiled source has other times than at its build, as after a checkout.

    The import then needs hashlib, to compare the content.
    """
    editable, sources = _build._read_stamp()
    root = PACKAGE.parent
    return editable and any(
        _build.fingerprint(str(root / source.path)) != source.fingerprint for source in sources
    )


def by_kind(name: str) -> tuple[int, str]:
    """Return the sort key of the linter: constants, classes, functions, each by name."""
    kind = 0 if name.isupper() else 1 if name[0].isupper() else 2
    return kind, name


@pytest.mark.one_build
@pytest.mark.parametrize("name", PUBLIC)
def test_all_is_a_sorted_tuple_of_existing_names(name: str) -> None:
    """`__all__` is sorted, has no repeated name, and every name exists."""
    module = import_module(name)
    names: tuple[str, ...] = module.__all__

    assert type(names) is tuple
    assert list(names) == sorted(set(names), key=by_kind)
    assert [each for each in names if not hasattr(module, each)] == []


def test_the_package_itself_is_public() -> None:
    """An empty list would make the test above pass."""
    assert "aiowheel" in PUBLIC


def called() -> dict[str, object]:
    """Return the public classes, their own methods and the public functions, by name."""
    found: dict[str, object] = {}
    for name in aiowheel.__all__:
        value: object = getattr(aiowheel, name)
        if callable(value):
            found[name] = value
        if isinstance(value, type):
            public = [each for each in vars(value) if not each.startswith("_")]
            found |= {f"{name}.{each}": getattr(value, each) for each in public}
    return {name: value for name, value in found.items() if callable(value)}


CALLED = called()  # before a fixture replaces a method


@pytest.mark.parametrize("name", CALLED)
def test_every_public_callable_has_a_docstring(name: str) -> None:
    """Compiled code keeps its docstrings, so that `help()` shows them."""
    docstring = inspect.getdoc(CALLED[name])

    assert docstring
    assert "mypyc" not in docstring


def test_the_file_of_a_module_exists() -> None:
    """Tools open the file that `__file__` names, also for a compiled module."""
    files = {
        name: str(module.__file__)
        for name, module in sys.modules.items()
        if name.partition(".")[0] == "aiowheel"
    }

    assert [name for name, file in files.items() if not Path(file).exists()] == []
    assert "aiowheel._units" in files


@pytest.mark.one_build
def test_importing_the_package_loads_nothing_heavy() -> None:
    """`import aiowheel` imports no extra."""
    program = f"import aiowheel, sys; print([m for m in {HEAVY!r} if m in sys.modules])"

    loaded = ran(program)

    assert loaded.stdout.strip() == "[]"


@pytest.mark.one_build
@pytest.mark.parametrize("build", ["present", "pure"])
def test_importing_the_package_loads_no_seldom_used_module(build: str) -> None:
    """`import aiowheel` imports no seldom used module besides those of asyncio."""
    pure = {"AIOWHEEL_NO_EXTENSIONS": "1", "AIOWHEEL_REQUIRE_EXTENSIONS": "0"}
    environment = pure if build == "pure" else {}
    allowed = {"hashlib"} if build == "present" and has_new_times() else set[str]()
    program = (
        "import asyncio, sys; before = {*sys.modules}; import aiowheel;"
        f"print([m for m in {SELDOM_USED!r} if m in {{*sys.modules}} - before - {allowed!r}])"
    )

    loaded = ran(program, **environment)

    assert loaded.stdout.strip() == "[]"


@pytest.mark.one_build
@pytest.mark.parametrize(
    ("package", "extras"),
    [
        ("aiohttp", {"integrations.aiohttp": "aiohttp"}),
        ("httpx", {"client": "client"}),
        ("numpy", {"trace": "trace"}),
        ("opentelemetry", {"instrumentation.opentelemetry": "metrics"}),
        (
            "prometheus_client",
            {
                "instrumentation.prometheus": "metrics",
                "jobs.spark.metrics": "metrics",
                "serve": "web,metrics",
            },
        ),
        (
            "pyarrow",
            {"jobs.operations.frames": "spark", "jobs.spark.values": "spark", "trace": "trace"},
        ),
        (
            "pyspark",
            {
                "jobs.idle.stream": "spark",
                "jobs.report.job": "spark",
                "jobs.spark.listener": "spark",
                "jobs.spark.sources": "spark",
                "jobs.spark.targets": "spark",
            },
        ),
        ("starlette", {"integrations.asgi": "web", "serve": "web,metrics"}),
        ("typer", {"cli": "cli"}),
        ("uvicorn", {"serve": "web,metrics"}),
    ],
)
def test_a_module_without_its_package_names_the_extra(package: str, extras: dict[str, str]) -> None:
    """The error of the import is the command that installs the package."""
    program = (
        f"import importlib, sys; sys.modules[{package!r}] = None\n"
        "from aiowheel.errors import MissingExtraError\n"
        f"for module in {[*extras]!r}:\n"
        "    try: importlib.import_module(f'aiowheel.{module}')\n"
        "    except MissingExtraError as error: print(module, error, sep=': ')"
    )

    printed = ran(program)

    assert printed.stdout.splitlines() == [
        f"{module}: this needs: pip install 'aiowheel[{extra}]'" for module, extra in extras.items()
    ]


@pytest.mark.one_build
@pytest.mark.parametrize("package", ["numpy", "pyarrow", "pyspark"])
def test_the_jobs_without_a_package_name_the_extra(package: str) -> None:
    """Each name of the package is imported on first use; `pip install` takes the extra."""
    program = (
        f"import sys; sys.modules[{package!r}] = None\n"
        "import aiowheel.jobs\n"
        "from aiowheel.errors import MissingExtraError\n"
        "for name in aiowheel.jobs.__all__:\n"
        "    try: getattr(aiowheel.jobs, name)\n"
        "    except MissingExtraError as error: print(error)"
    )

    lines = ran(program).stdout.splitlines()

    assert set(lines) == {"this needs: pip install 'aiowheel[spark]'"}


@pytest.mark.one_build
def test_a_missing_extra_names_a_cause_that_pip_does_not_mend() -> None:
    """pytest.importorskip skips for a missing module alone, and a broken one is not missing."""
    missing, broken = MissingExtraError("trace"), MissingExtraError("trace")
    missing.__cause__ = ModuleNotFoundError("No module named 'pyarrow'")
    broken.__cause__ = ImportError("libarrow.so: no such file")

    assert isinstance(missing, ModuleNotFoundError)
    assert str(missing) == "this needs: pip install 'aiowheel[trace]'"
    assert str(broken) == f"{missing} (ImportError: libarrow.so: no such file)"


@pytest.mark.one_build
def test_the_help_text_loads_nothing_heavy() -> None:
    """`aiowheel --help` imports typer, but neither Spark nor Arrow."""
    program = (
        "import sys; from aiowheel.cli import run; code = run(['--help']);"
        f"print([m for m in {HEAVY!r} if m in sys.modules and m not in ('rich', 'typer')],"
        "file=sys.stderr)"
    )

    answer = ran(program)

    assert answer.stderr.strip() == "[]"
    assert "doctor" in answer.stdout


def test_type_hints_of_public_functions_can_be_evaluated() -> None:
    """Tools for dependency injection and checks at run time evaluate them."""
    for name in aiowheel.__all__:
        each = getattr(aiowheel, name)
        if inspect.isroutine(each):
            typing.get_type_hints(each)


def test_closing_methods_are_coroutine_functions() -> None:
    """Frameworks that call such a method as a hook await it only then."""
    found: set[str] = set()
    for package in PUBLIC:
        try:
            module = import_module(package)
        except MissingExtraError:
            continue
        for name in module.__all__:
            for method in ("aclose", "__aexit__"):
                function = getattr(getattr(module, name), method, None)
                if inspect.isclass(getattr(module, name)) and function is not None:
                    found.add(f"{name}.{method}")
                    # The exit of a timeout takes effect at the call.
                    is_plain = issubclass(getattr(module, name), aiowheel.Timeout)
                    assert inspect.iscoroutinefunction(function) or is_plain, name

    assert {"Timer.aclose", "Purgatory.__aexit__", "ManualTimer.__aexit__"} <= found


@pytest.mark.filterwarnings("error")
def test_hooks_of_unittest_close_timers_and_purgatories() -> None:
    """Its stack of contexts and its clean-up await coroutine functions only."""
    opened: list[aiowheel.Timer | aiowheel.Purgatory] = []

    class Hooks(unittest.IsolatedAsyncioTestCase):
        async def runTest(self) -> None:  # noqa: N802 - its name in unittest
            timer = await self.enterAsyncContext(aiowheel.Timer())
            other = await aiowheel.Timer().__aenter__()
            purgatory = aiowheel.Purgatory("p", timer=timer)
            self.addAsyncCleanup(purgatory.aclose)
            self.addAsyncCleanup(other.aclose)
            opened.extend([timer, other, purgatory])

    result = Hooks().run()

    assert result is not None
    assert result.wasSuccessful()
    assert [each.closed for each in opened] == [True, True, True]
