"""`tools/bench_compare.py`: its workloads, and how it reads and shows its measurements.

A complete run compiles two trees and takes minutes: `make bench-compare BASE=...`.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tools import bench_compare as compare

pytestmark = pytest.mark.one_build


@pytest.mark.parametrize("name", compare.WORKLOADS)
def test_a_workload_runs_any_number_of_operations(name: str) -> None:
    """A run of 0 operations is subtracted, so it must work as well."""
    for count in (0, 100):
        assert compare.run_workload(name, count) >= 0.0


def test_the_count_of_callgrind_is_read_from_its_output() -> None:
    """The formats are those of valgrind 3.19 and 3.22; without a count the error has a reason."""
    printed = "==7== Events    : Ir\n==7== Collected : 123456789\n==7== \n"

    assert compare.collected(printed) == 123_456_789
    with pytest.raises(ValueError, match="printed no count: ==7== Killed"):
        compare.collected("==7== Killed")


def test_a_row_shows_medians_and_the_median_of_the_ratios() -> None:
    """A round in which the machine was twice as slow for both sides changes no ratio."""
    base, here = [1e-6, 2e-6, 1e-6], [1.1e-6, 2.2e-6, 1.1e-6]

    row = compare.row_of("churn", base, here, [1_000.0, 900.0])

    assert row == ["churn", "1,000", "1,100", "+10.0 %", "1,000", "900", "-10.0 %"]


def test_a_machine_without_valgrind_has_times_alone() -> None:
    """The columns stay, so that tables can be compared."""
    lines = compare.table([compare.row_of("fire", [1e-6], [1e-6], [])]).splitlines()

    assert lines[1].split() == ["fire", "1,000", "1,000", "+0.0", "%", "-", "-", "-"]


def test_an_unknown_commit_is_named() -> None:
    """The error comes before anything is compiled."""
    with pytest.raises(SystemExit, match="must be a commit of this repository, got 'no-such'"):
        compare.checked_out("no-such")


def test_a_commit_that_cannot_be_checked_out_has_the_reason_of_git(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Here a file is in the way of the folder."""
    author = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
    for words in (["init", "--quiet"], [*author, "commit", "--quiet", "--allow-empty", "-m", "a"]):
        subprocess.run(["git", *words], cwd=tmp_path, check=True, timeout=200)
    (tmp_path / "file").touch()
    monkeypatch.setattr(compare, "ROOT", tmp_path)
    monkeypatch.setattr(compare, "FOLDER", tmp_path / "file")

    with pytest.raises(SystemExit, match=r"(?s)bench-compare: git worktree add: .*base-tree"):
        compare.checked_out("HEAD")
