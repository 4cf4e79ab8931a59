"""Fixtures of the benchmarks' tests: tiny sizes, and a folder for the output."""

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder to which the programs write their measurements."""
    monkeypatch.chdir(tmp_path)
    return tmp_path
