"""Asserts compare something: `assert a == b if c else d` means `(a == b) if c else d`."""

import ast
import re
from pathlib import Path

import pytest

pytestmark = pytest.mark.one_build

ROOT = Path(__file__).parents[1]
PROGRAMS = sorted(
    path
    for folder in ("aiowheel", "benchmarks", "examples", "tests")
    for path in (ROOT / folder).rglob("*.py")
)
# An assert and an `else` before the next blank line; parsing the other files would take seconds.
PERHAPS = re.compile(r"\bassert\b(?:(?!\n[ \t]*\n).)*?\belse\b", re.DOTALL)
LITERALS = (ast.Constant, ast.Dict, ast.List, ast.Set, ast.Tuple)


def choices_of_a_literal(source: str) -> list[int]:
    """Return the lines of the asserts that have a literal as their whole condition in one case."""
    return [
        node.lineno
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Assert) and isinstance(node.test, ast.IfExp)
        if isinstance(node.test.body, LITERALS) or isinstance(node.test.orelse, LITERALS)
    ]


def test_no_assert_chooses_a_literal() -> None:
    """Such an assert compares nothing in one of its two cases."""
    sources = {path: path.read_text("utf-8") for path in PROGRAMS}
    found = [
        f"{path.relative_to(ROOT)}:{line}"
        for path, source in sources.items()
        if PERHAPS.search(source)
        for line in choices_of_a_literal(source)
    ]

    assert len(PROGRAMS) > 500
    assert found == []


@pytest.mark.parametrize(
    ("source", "lines"),
    [
        ("assert a == [1] if b else [2]", [1]),
        ("assert a == ([1] if b else [2])", []),
        ("assert a == c if b else a == d", []),
        ("assert 'a' if b else a == c", [1]),
    ],
)
def test_a_choice_of_a_literal_is_found(source: str, lines: list[int]) -> None:
    """With a rule that finds nothing, the test above would pass."""
    assert PERHAPS.search(source)
    assert choices_of_a_literal(source) == lines
