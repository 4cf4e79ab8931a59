"""Services built on a purgatory keep their rules in a simulation, whichever clients leave."""

from __future__ import annotations

import pytest

from aiowheel.testing.simulation import explore

pytestmark = [pytest.mark.one_build, pytest.mark.slow]


def test_a_long_poll_service_keeps_its_rules() -> None:
    """Every client gets an answer, and no client waits although there is a new version."""
    pytest.importorskip("starlette")
    from .long_poll import LongPollWorld

    found = explore(LongPollWorld, seeds=range(10))

    assert found.faults["hangup"] > 0


def test_a_broker_keeps_its_rules() -> None:
    """Acknowledged records are on every follower, although followers crash."""
    from .broker import BrokerWorld

    found = explore(BrokerWorld, seeds=range(5))

    assert found.faults["follower crash"] > 0
