"""The clock by which closed objects leave the metrics."""

import pytest


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Return a list whose only item is the time in seconds; a test moves it."""
    clock = [0.0]
    monkeypatch.setattr("aiowheel.instrumentation._readings.monotonic", lambda: clock[0])
    return clock
