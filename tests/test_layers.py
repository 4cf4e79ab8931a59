"""The import rules of the package, as tests: a module imports only its own rank or lower ones."""

import ast
import re
import sys
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

pytestmark = pytest.mark.one_build

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "aiowheel"
MODULES = sorted(PACKAGE.rglob("*.py"))

RANK = {
    "_arguments": 0,
    "_build": 0,
    "_callbacks": 0,
    "_coroutine_function": 0,
    "_printable": 0,
    "_types": 0,
    "_units": 0,
    "abc": 0,
    "errors": 0,
    "rules": 0,
    "wheel": 0,
    "_events": 1,  # it imports structlog
    "timer": 1,
    "purgatory": 2,
    "loop": 3,
    "recipes": 3,
    "__init__": 3,  # `import aiowheel` loads ranks 0 to 3
    "_asyncpg": 4,
    "_background": 4,
    "_bells": 4,
    "_open_files": 4,
    "_outputs": 4,
    "_postgres_transaction": 4,
    "_siblings": 4,
    "_signals": 4,
    "_sqlite": 4,
    "client": 4,
    "dashboard": 4,
    "durable": 4,
    "instrumentation": 4,
    "integrations": 4,
    "readers": 4,
    "shared": 4,
    "testing": 4,
    "trace": 4,
    "_progress": 5,
    "_pyinstaller": 5,
    "jobs": 5,
    "serve": 5,
    "cli": 5,
    "__main__": 5,
}
OFF_LIMITS_AT_RANK_0 = {"asyncio", "anyio", "time", "logging", "structlog", "threading"}
# What `import aiowheel` may load. uvloop is imported when a loop is created, not before.
CORE_DEPENDENCIES = {"aiowheel", "anyio", "mypy_extensions", "structlog", "uvloop"}


def relative(path: Path) -> str:
    """Return the path relative to the root, as test ids show it."""
    return path.relative_to(ROOT).as_posix()


def rank_of(name: str) -> int:
    """Return the rank of a dotted module name; `aiowheel` itself is the package's `__init__`."""
    parts = name.split(".")
    key = parts[1] if len(parts) > 1 else "__init__"
    return RANK[key if key in RANK else "__init__"]


@cache
def module_name(path: Path) -> str:
    """Return the dotted name of a file of the package."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports(path: Path, tree: ast.Module | None = None) -> Iterator[str]:
    """Yield the dotted names that a file imports anywhere; `from x import y` gives x.y."""
    package = module_name(path).split(".")
    if path.name != "__init__.py":
        package = package[:-1]
    for node in ast.walk(parsed(path) if tree is None else tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            parents = package[: len(package) - node.level + 1] if node.level else []
            stem = ".".join([*parents, *([node.module] if node.module else [])])
            yield from (f"{stem}.{alias.name}" for alias in node.names)


@cache
def parsed(path: Path) -> ast.Module:
    """Return the cached syntax tree of a file; callers must not change it."""
    return ast.parse(path.read_text(encoding="utf-8"))


@pytest.fixture(scope="module", autouse=True)
def trees_for_this_module_only() -> Iterator[None]:
    """Drop the trees afterwards: every garbage collection of a later test would traverse them."""
    yield
    parsed.cache_clear()


def without_type_checking(tree: ast.Module) -> ast.Module:
    """Remove the blocks that only type checkers read from the tree, in place, and return it."""
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING"):
            node.body = [ast.Pass()]
    return tree


NAMES = {module_name(path) for path in MODULES}


def imported_modules(path: Path) -> set[str]:
    """Return the modules of the package that a file imports at run time, also inside functions."""
    found = {
        name if name in NAMES else name.rpartition(".")[0]
        for name in imports(path, without_type_checking(ast.parse(path.read_text("utf-8"))))
    }
    return (found & NAMES) - {module_name(path)}


def circles(graph: dict[str, set[str]]) -> list[str]:
    """Return the modules that are on, or between, circles of imports."""
    left = dict(graph)
    while free := {name for name, uses in left.items() if not uses & left.keys()}:
        for name in free:
            del left[name]
    while tips := left.keys() - set[str]().union(*left.values()):  # they only lead to a circle
        for name in tips:
            del left[name]
    return sorted(left)


@cache
def home_of(path: Path) -> str:
    """Return the subpackage, or the single file, that a module belongs to."""
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def private_names(tree: ast.Module) -> set[str]:
    """Return the underscore names of methods and attributes that the classes of a file define."""
    found: set[str] = set()
    for owner in ast.walk(tree):
        if not isinstance(owner, ast.ClassDef):
            continue
        for node in ast.walk(owner):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                found.add(node.name)
            elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
                found.update([node.attr] if ast.unparse(node.value) in {"self", "cls"} else [])
            elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                found.add(node.id)
    return {name for name in found if name.startswith("_") and not name.endswith("__")}


def foreign_reads(tree: ast.Module, foreign: set[str]) -> list[str]:
    """Return the places where a file reads one of these names on an object other than its own."""
    return [
        f"line {node.lineno}: {ast.unparse(node)}"
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
        and node.attr in foreign
        and ast.unparse(node.value) not in {"self", "cls", "super()"}
    ]


def imported_tops(rank: int) -> set[str]:
    """Return the top-level packages that files of that rank or a lower one import."""
    paths = [path for path in MODULES if rank_of(module_name(path)) <= rank]
    return {name.split(".")[0] for path in paths for name in imports(path)}


def test_the_package_has_modules() -> None:
    """An empty list would make every test below pass."""
    assert PACKAGE / "_build.py" in MODULES


def test_every_module_has_a_rank() -> None:
    """A new package or module needs a rank before it has code."""
    assert {home_of(path) for path in MODULES} - RANK.keys() == set()


def test_the_page_of_the_layers_names_every_rank() -> None:
    """Its table has every package and module, in the row of its rank."""
    page = (ROOT / "docs/explanation/layers.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (\d) \| (.*?) \|", page, re.MULTILINE)
    named = {name: int(rank) for rank, names in rows for name in re.findall("`(.*?)`", names)}

    assert named == {name: rank for name, rank in RANK.items() if not name.startswith("__")}


def test_imports_point_down() -> None:
    """A module imports only its own rank or lower ones."""
    upward = [
        f"{relative(path)}: {name}"
        for path in MODULES
        for name in imports(path)
        if name.split(".")[0] == "aiowheel" and rank_of(name) > rank_of(module_name(path))
    ]

    assert upward == []


def test_rank_0_imports_no_loop_and_no_clock() -> None:
    """The wheel receives the time as an argument."""
    assert imported_tops(0) & OFF_LIMITS_AT_RANK_0 == set()


def test_the_core_needs_only_the_core_dependencies() -> None:
    """Ranks 0 to 3 can be imported without any extra installed."""
    assert imported_tops(3) - sys.stdlib_module_names - CORE_DEPENDENCIES == set()


def test_the_package_imports_no_other_folder_of_the_checkout() -> None:
    """The wheel has only the package; the command line finds the other folders by their paths."""
    folders = {"benchmarks", "examples", "tests", "tools"}

    assert {path.name for path in ROOT.iterdir()} >= folders
    assert imported_tops(max(RANK.values())) & folders == set()


def test_every_module_has_a_docstring() -> None:
    """Every file begins with a docstring."""
    silent = [relative(path) for path in MODULES if not ast.get_docstring(parsed(path))]

    assert silent == []


def test_no_circle_of_imports() -> None:
    """The modules have an order in which each one imports only earlier ones."""
    graph = {module_name(path): imported_modules(path) for path in MODULES}

    assert circles(graph) == []


def test_a_circle_is_found() -> None:
    """The search reports the modules of a circle and no others."""
    graph = {"a": {"b"}, "b": {"c"}, "c": {"b", "d"}, "d": set[str](), "e": {"a"}}

    assert circles(graph) == ["b", "c"]


def test_no_package_reads_the_underscore_attributes_of_another() -> None:
    """Every attribute that other packages read has a public name."""
    own: defaultdict[str, set[str]] = defaultdict(set)
    for path in MODULES:
        own[home_of(path)] |= private_names(parsed(path))
    everywhere = set[str]().union(*own.values())
    reads = {
        relative(path): foreign_reads(parsed(path), everywhere - own[home_of(path)])
        for path in MODULES
    }

    assert {path: found for path, found in reads.items() if found} == {}


def test_a_read_of_a_foreign_attribute_is_found() -> None:
    """Reads on `self`, `cls` and `super()` are a class's own, inherited attributes included."""
    tree = ast.parse("self._a; super()._a; wheel._a; wheel._b; wheel.overdue._a()")

    assert foreign_reads(tree, {"_a"}) == ["line 1: wheel._a", "line 1: wheel.overdue._a"]
