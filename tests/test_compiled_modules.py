"""Rules for the source of the compiled modules."""

import ast
import tomllib
from pathlib import Path

import pytest

pytestmark = pytest.mark.one_build

ROOT = Path(__file__).parent.parent


def compiled_modules() -> list[Path]:
    """Return the files that pyproject.toml lists for compilation."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    hook = project["tool"]["hatch"]["build"]["targets"]["wheel"]["hooks"]["custom"]
    return sorted(path for pattern in hook["compile"] for path in ROOT.glob(pattern))


@pytest.mark.parametrize("path", compiled_modules(), ids=lambda path: path.name)
def test_no_compiled_coroutine_suspends(path: Path) -> None:
    """A compiled coroutine throws into its awaitable with a call that Python 3.12 deprecates.

    Where warnings are errors, a cancellation would arrive as a DeprecationWarning.
    """
    nodes = ast.walk(ast.parse(path.read_text(encoding="utf-8")))

    assert [
        n.lineno for n in nodes if isinstance(n, ast.Await | ast.AsyncFor | ast.AsyncWith)
    ] == []


def test_there_are_compiled_modules() -> None:
    """An empty list would make the test above pass."""
    assert "_timer.py" in {path.name for path in compiled_modules()}
