"""The reference pages: every public name is documented under the name that users import."""

import ast
import re
from pathlib import Path

import pytest

import aiowheel

pytestmark = pytest.mark.one_build

ROOT = Path(__file__).parents[2]
PAGES = sorted((ROOT / "docs/reference").glob("*.md"))
ENTRIES = [
    name for page in PAGES for name in re.findall(r"^::: (\S+)$", page.read_text(), re.MULTILINE)
]


def public_names() -> dict[str, tuple[str, ...]]:
    """Return the `__all__` of every module without an underscore, by the module's name."""
    found: dict[str, tuple[str, ...]] = {}
    for path in sorted((ROOT / "aiowheel").rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        module = ".".join(part for part in parts if part != "__init__")
        if "cli" in parts or "._" in module:  # commands, and no modules to import
            continue
        for node in ast.parse(path.read_text("utf-8")).body:
            if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
                found[module] = ast.literal_eval(node.value)
    return found


@pytest.mark.parametrize("name", aiowheel.__all__)
def test_a_public_name_has_one_entry(name: str) -> None:
    """`::: aiowheel.Timer`, not `::: aiowheel.timer.Timer`."""
    assert ENTRIES.count(f"aiowheel.{name}") == 1
    assert [each for each in ENTRIES if each.endswith(f"._{name}")] == []


@pytest.mark.parametrize("entry", ENTRIES)
def test_an_entry_shows_no_private_module(entry: str) -> None:
    """Readers import by the documented path."""
    assert not re.search(r"\._(?!_)", entry)


@pytest.mark.parametrize(("module", "names"), public_names().items())
def test_every_name_of_a_module_has_an_entry(module: str, names: tuple[str, ...]) -> None:
    """The entry is under that module, or under the module from which users import the name."""
    documented = {entry.rpartition(".")[2] for entry in ENTRIES}
    missing = {name for name in names if f"{module}.{name}" not in ENTRIES}

    assert missing - documented - {name for name in names if name.startswith("__")} == set()
