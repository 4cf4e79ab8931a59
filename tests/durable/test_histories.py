"""Random histories of several processes keep the guarantees."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from . import processes
from .histories import play

pytestmark = [pytest.mark.one_build, pytest.mark.realtime, pytest.mark.slow]

HISTORIES = int(os.environ.get("AIOWHEEL_HISTORIES", "60"))
GROUP = 20
DATABASE_HISTORIES = int(os.environ.get("AIOWHEEL_DATABASE_HISTORIES", "20"))
AT_ONCE = 5


@pytest.mark.timeout(600)
@pytest.mark.parametrize("first", range(0, HISTORIES, GROUP))
def test_a_random_history_has_no_flaw(first: int) -> None:
    """No timer fires early or after its end, none is lost, and each fire keeps its id."""
    found = {seed: play(seed) for seed in range(first, min(first + GROUP, HISTORIES))}

    assert {seed: flaws for seed, flaws in found.items() if flaws} == {}


@pytest.mark.durable
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("database", ["sqlite", "postgres"])
@pytest.mark.parametrize("first", range(0, DATABASE_HISTORIES, AT_ONCE))
async def test_a_random_history_of_killed_processes_has_no_flaw(
    first: int, database: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """The guarantees also hold with real processes on real databases."""
    postgres = request.getfixturevalue("postgres") if database == "postgres" else ""
    seeds = range(first, min(first + AT_ONCE, DATABASE_HISTORIES))
    played = await asyncio.gather(*(processes.play(seed, tmp_path, postgres) for seed in seeds))

    assert {seed: flaws for seed, (flaws, _) in zip(seeds, played, strict=True) if flaws} == {}
