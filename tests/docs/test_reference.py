"""The reference pages: every public name is documented under the name that users import."""

import re
from pathlib import Path

import pytest

import aiowheel

pytestmark = pytest.mark.one_build

PAGES = sorted((Path(__file__).parents[2] / "docs/reference").glob("*.md"))
ENTRIES = [
    name for page in PAGES for name in re.findall(r"^::: (\S+)$", page.read_text(), re.MULTILINE)
]


@pytest.mark.parametrize("name", aiowheel.__all__)
def test_a_public_name_has_one_entry(name: str) -> None:
    """`::: aiowheel.Timer`, not `::: aiowheel.timer.Timer`."""
    assert ENTRIES.count(f"aiowheel.{name}") == 1
    assert [each for each in ENTRIES if each.endswith(f"._{name}")] == []


@pytest.mark.parametrize("entry", ENTRIES)
def test_an_entry_shows_no_private_module(entry: str) -> None:
    """Readers import by the path that they see."""
    assert not re.search(r"\._(?!_)", entry)
