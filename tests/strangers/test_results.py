"""The page shows the figures of recorded runs, and every difference has a reason."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from .compare_suites import DIFFERENCES, RESULTS, Row

pytestmark = pytest.mark.one_build

PAGE = Path(__file__).parents[2] / "docs/explanation/other-suites.md"
ROWS = [Row(**row) for row in json.loads(RESULTS.read_text("utf-8"))]


def test_the_table_is_that_of_the_runs() -> None:
    """The rows below the two heading lines are equal."""
    table = [line for line in PAGE.read_text("utf-8").splitlines() if line.startswith("|")]

    assert table[2:] == [str(row) for row in ROWS]


def test_every_difference_is_explained() -> None:
    """Every reason belongs to a recorded difference."""
    found = {(row.project.split()[0], test) for row in ROWS for test in row.differences}

    assert all(reason for row in ROWS for reason in row.differences.values())
    assert set(DIFFERENCES) == found
