"""The architecture, executable: imports point down."""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "aiowheel"
MODULES = sorted(PACKAGE.rglob("*.py"))

RANK = {
    "_build": 0,
    "_callbacks": 0,
    "_types": 0,
    "_units": 0,
    "abc": 0,
    "errors": 0,
    "rules": 0,
    "wheel": 0,
    "_events": 1,  # it logs
    "timer": 1,
    "purgatory": 2,
    "loop": 3,
    "recipes": 3,
    "__init__": 3,  # `import aiowheel` loads ranks 0 to 3
    "_signals": 4,
    "dashboard": 4,
    "instrumentation": 4,
    "integrations": 4,
    "readers": 4,
    "testing": 4,
    "trace": 4,
    "bench": 5,
    "pipeline": 5,
    "serve": 5,
    "cli": 5,
    "__main__": 5,
}
OFF_LIMITS_AT_RANK_0 = {"asyncio", "anyio", "time", "logging", "structlog", "threading"}
# What `import aiowheel` may load; uvloop is looked for when a loop is made, not before.
CORE_DEPENDENCIES = {"aiowheel", "anyio", "mypy_extensions", "structlog", "uvloop"}


def relative(path: Path) -> str:
    """Path as it stands in a test id."""
    return path.relative_to(ROOT).as_posix()


def rank_of(name: str) -> int:
    """Rank of a dotted module name; `aiowheel` itself is the package's own door."""
    parts = name.split(".")
    key = parts[1] if len(parts) > 1 else "__init__"
    return RANK[key if key in RANK else "__init__"]


def module_name(path: Path) -> str:
    """Dotted name of a file of the package."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports(path: Path) -> Iterator[str]:
    """Dotted names a file imports anywhere, relative ones resolved, `from x import y` as x.y."""
    package = module_name(path).split(".")
    if path.name != "__init__.py":
        package = package[:-1]
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            parents = package[: len(package) - node.level + 1] if node.level else []
            stem = ".".join([*parents, *([node.module] if node.module else [])])
            yield from (f"{stem}.{alias.name}" for alias in node.names)


def modules_up_to(rank: int) -> list[Path]:
    """Files of that rank or a lower one."""
    return [path for path in MODULES if rank_of(module_name(path)) <= rank]


def test_the_package_has_modules() -> None:
    """An empty list would make every test below pass."""
    assert PACKAGE / "_build.py" in MODULES


@pytest.mark.parametrize("path", MODULES, ids=relative)
def test_every_module_has_a_rank(path: Path) -> None:
    """A new package or module is given a place before it is given code."""
    top = path.relative_to(PACKAGE).parts[0].removesuffix(".py")

    assert top in RANK


@pytest.mark.parametrize("path", MODULES, ids=relative)
def test_imports_point_down(path: Path) -> None:
    """A module imports its own rank or a lower one."""
    own = rank_of(module_name(path))

    upward = [
        name for name in imports(path) if name.split(".")[0] == "aiowheel" and rank_of(name) > own
    ]

    assert upward == []


@pytest.mark.parametrize("path", modules_up_to(0), ids=relative)
def test_rank_0_knows_no_loop_and_no_clock(path: Path) -> None:
    """The wheel takes the time as an argument."""
    tops = {name.split(".")[0] for name in imports(path)}

    assert tops & OFF_LIMITS_AT_RANK_0 == set()


@pytest.mark.parametrize("path", modules_up_to(3), ids=relative)
def test_the_core_needs_only_the_core_dependencies(path: Path) -> None:
    """Whoever installs no extra can import ranks 0 to 3."""
    tops = {name.split(".")[0] for name in imports(path)}

    assert tops - sys.stdlib_module_names - CORE_DEPENDENCIES == set()


@pytest.mark.parametrize("path", MODULES, ids=relative)
def test_a_module_says_what_it_is(path: Path) -> None:
    """Every file opens with a docstring."""
    assert ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))
