"""Benchmarks in tests: tiny sizes, one folder for what they write."""

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the programs write what they measured."""
    monkeypatch.chdir(tmp_path)
    return tmp_path
