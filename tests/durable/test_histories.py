"""Random histories of several processes hold what the guarantees say."""

from __future__ import annotations

import os

import pytest

from .histories import play

pytestmark = [pytest.mark.one_build, pytest.mark.realtime, pytest.mark.slow]

HISTORIES = int(os.environ.get("AIOWHEEL_HISTORIES", "60"))
GROUP = 20


@pytest.mark.timeout(600)
@pytest.mark.parametrize("first", range(0, HISTORIES, GROUP))
def test_a_random_history_has_no_flaw(first: int) -> None:
    """Nothing is early, lost, or fired after its end; each fire keeps its id."""
    found = {seed: play(seed) for seed in range(first, min(first + GROUP, HISTORIES))}

    assert {seed: flaws for seed, flaws in found.items() if flaws} == {}
