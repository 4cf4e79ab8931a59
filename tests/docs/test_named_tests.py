"""The tests that pages name exist."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

pytestmark = pytest.mark.one_build

ROOT = Path(__file__).parent.parent.parent
PAGES = [
    ROOT / "SECURITY.md",
    ROOT / "docs/explanation/guarantees.md",
    ROOT / "docs/explanation/shared-counters.md",
    ROOT / "docs/explanation/tested-scenarios.md",
    ROOT / "docs/explanation/timing-guarantees.md",
    ROOT / "docs/explanation/durable-guarantees.md",
    ROOT / "docs/explanation/what-breaks.md",
]
NAMED = re.compile(r"`([\w/]+\.py)::(\w+)`")
WITHOUT_FILE = re.compile(r"held by `([\w/]+\.py)::`")
BARE = re.compile(r"\| `(test_\w+)` \|")


@cache
def names_in(path: Path) -> set[str]:
    """Return top-level functions, classes and assigned names of a test file."""
    names: set[str] = set()
    for node in ast.parse(path.read_text("utf-8")).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Assign):
            names |= {target.id for target in node.targets if isinstance(target, ast.Name)}
    return names


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_test_a_page_names_exists(page: Path) -> None:
    """Renaming a test requires renaming it on the page of its guarantee."""
    text = page.read_text("utf-8")
    named = set(NAMED.findall(text))
    for file in WITHOUT_FILE.findall(text):
        named |= {(file, name) for name in BARE.findall(text)}

    missing = {
        f"{file}::{name}" for file, name in named if name not in names_in(ROOT / "tests" / file)
    }

    assert len(named) > 20
    assert missing == set()
