"""The planted bugs fit the sources; `make planted` shows that each one is found."""

from __future__ import annotations

import ast

import pytest

from aiowheel.testing.simulation._command import world_named

from .patches import ROOT, Planted, all_planted

pytestmark = pytest.mark.one_build

PLANTED = all_planted()


def test_there_are_at_least_forty_planted_bugs() -> None:
    """With an empty list, the tests below would pass."""
    assert len(PLANTED) >= 40


@pytest.mark.parametrize("planted", PLANTED, ids=lambda planted: planted.name)
def test_a_planted_bug_fits(planted: Planted) -> None:
    """The patch applies, the result is Python, and the world and the test files exist."""
    source = (ROOT / planted.file).read_text(encoding="utf-8")
    changed = planted.applied(source)

    assert changed != source
    ast.parse(changed)
    assert planted.bug.endswith(".")
    assert planted.world == "none" or world_named(planted.world)
    assert all((ROOT / each).exists() for each in planted.suite.split())


def test_a_patch_that_does_not_fit_is_refused() -> None:
    """A patch is refused if its lines are missing or occur twice."""
    planted = Planted("n", "b.", "none", "", "f", (("a\n", "b\n"),))

    assert planted.applied("c\na\n") == "c\nb\n"
    for source in ("", "a\na\n"):
        with pytest.raises(ValueError, match="the place must be in f once"):
            planted.applied(source)
