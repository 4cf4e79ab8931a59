"""OpenTelemetry's instruments have the numbers of the statistics."""

from __future__ import annotations

import pytest

from aiowheel import DelayedOperation, ManualTimer, Purgatory, Timer

pytest.importorskip("opentelemetry.sdk.metrics")

from opentelemetry.sdk.metrics import MeterProvider, ObservableCounter
from opentelemetry.sdk.metrics.export import AggregationTemporality, InMemoryMetricReader

from aiowheel.instrumentation.opentelemetry import (
    observe_purgatory,
    observe_shared,
    observe_timer,
)
from aiowheel.shared import SharedCounters
from aiowheel.testing import MemoryCounters

pytestmark = pytest.mark.one_build


class Never(DelayedOperation[None]):
    """An operation that waits for its timeout."""

    def try_complete(self) -> bool:
        """Return False."""
        return False


def collected(reader: InMemoryMetricReader) -> dict[tuple[str, str], float]:
    """Return all data points by metric name and quantile; "" stands for no quantile."""
    points: dict[tuple[str, str], float] = {}
    data = reader.get_metrics_data()
    assert data is not None
    for resource in data.resource_metrics:
        for scope in resource.scope_metrics:
            for metric in scope.metrics:
                for point in metric.data.data_points:
                    assert point.attributes is not None
                    quantile = str(point.attributes.get("quantile", ""))
                    points[metric.name, quantile] = point.value  # type: ignore[union-attr]
    return points


def test_timer_and_purgatory_are_observed_when_collected() -> None:
    """Counts are read at each collection; lateness has quantiles in seconds."""
    reader = InMemoryMetricReader()
    meter = MeterProvider([reader]).get_meter("test")
    timer = ManualTimer(tick=0.01)
    purgatory = Purgatory("fetch", timer=timer)
    observe_timer(meter, timer, "main")
    observe_purgatory(meter, purgatory)

    purgatory.try_complete_else_watch(Never(0.095), ["k"])
    purgatory.try_complete_else_watch(Never(60), ["k"])
    timer.advance(0.1)

    points = collected(reader)
    assert points["aiowheel.timer.fired", ""] == 1
    assert points["aiowheel.timer.pending", ""] == 1
    assert points["aiowheel.purgatory.expired", ""] == 1
    assert points["aiowheel.purgatory.pending", ""] == 1
    assert points["aiowheel.timer.lateness", "1"] == pytest.approx(0.005)
    assert points["aiowheel.purgatory.lateness", "0.5"] == pytest.approx(0.005)


def test_a_timer_that_is_not_entered_is_skipped(caplog: pytest.LogCaptureFixture) -> None:
    """The SDK logs no error, which it would if the callback raised."""
    reader = InMemoryMetricReader()
    meter = MeterProvider([reader]).get_meter("test")
    observe_timer(meter, Timer(), "later")
    observe_timer(meter, ManualTimer(), "now")

    assert collected(reader)["aiowheel.timer.fired", ""] == 0
    assert caplog.records == []


def test_every_timer_and_purgatory_of_a_meter_is_observed() -> None:
    """Each has its name; a meter keeps only the first of several instruments with one name."""
    reader = InMemoryMetricReader()
    meter = MeterProvider([reader]).get_meter("test")
    timer = ManualTimer()
    for name in ("first", "second"):
        observe_timer(meter, timer, f"{name} timer")
        observe_purgatory(meter, Purgatory(f"{name} purgatory", timer=timer))

    data = reader.get_metrics_data()
    assert data is not None
    names = {
        metric.name: [(point.attributes or {})["name"] for point in metric.data.data_points]
        for metric in data.resource_metrics[0].scope_metrics[0].metrics
    }

    assert names["aiowheel.timer.fired"] == ["first timer", "second timer"]
    assert names["aiowheel.timer.lateness"] == ["first timer"] * 4 + ["second timer"] * 4
    assert names["aiowheel.purgatory.completed"] == ["first purgatory", "second purgatory"]


def test_the_name_of_a_closed_timer_can_be_reused(caplog: pytest.LogCaptureFixture) -> None:
    """An open timer keeps its name; the instruments stay the same."""
    reader = InMemoryMetricReader()
    meter = MeterProvider([reader]).get_meter("test")
    timer, again = ManualTimer(), ManualTimer()
    observe_timer(meter, timer, "main")
    with pytest.raises(ValueError, match="a timer is reported as 'main' already"):
        observe_timer(meter, again, "main")

    timer.close_with_loop()
    observe_timer(meter, again, "main")
    again.call_later(60, print)

    assert collected(reader)["aiowheel.timer.scheduled", ""] == 1
    assert caplog.records == []


def test_counters_go_on_when_a_closed_timer_is_replaced() -> None:
    """The sum never falls, and each fire is in one difference; gauges show the new timer."""
    differences = InMemoryMetricReader({ObservableCounter: AggregationTemporality.DELTA})
    sums = InMemoryMetricReader()
    meter = MeterProvider([differences, sums]).get_meter("test")
    fired: list[tuple[float, float]] = []
    for count in (20, 3, 2):
        timer = ManualTimer()
        observe_timer(meter, timer, "main")
        for delay in (1, 60):
            for _ in range(count):
                timer.call_later(delay, int)
        timer.advance(1)
        points = collected(sums)
        assert points["aiowheel.timer.pending", ""] == count
        name = "aiowheel.timer.fired", ""
        fired.append((collected(differences)[name], points[name]))
        timer.close_with_loop()

    assert fired == [(20, 20), (3, 23), (2, 25)]


def test_a_closed_timer_is_no_longer_observed_and_its_counts_are_kept(
    now: list[float], caplog: pytest.LogCaptureFixture
) -> None:
    """The next timer of the name goes on from them; the instruments stay the same."""
    differences = InMemoryMetricReader({ObservableCounter: AggregationTemporality.DELTA})
    sums = InMemoryMetricReader()
    meter = MeterProvider([differences, sums]).get_meter("test")
    name = "aiowheel.timer.fired", ""
    fired: list[tuple[float, float]] = []
    for count in (20, 3, 2):
        timer = ManualTimer()
        observe_timer(meter, timer, "main")
        for _ in range(count):
            timer.call_later(1, int)
        timer.advance(1)
        timer.close_with_loop()
        fired.append((collected(differences)[name], collected(sums)[name]))
        now[0] += 121
        assert sums.get_metrics_data() is None

    assert fired == [(20, 20), (3, 23), (2, 25)]
    assert caplog.records == []


async def test_shared_counters_are_observed() -> None:
    """They have the name of their purgatory."""
    reader = InMemoryMetricReader()
    meter = MeterProvider([reader]).get_meter("test")
    async with (
        Purgatory("docs") as purgatory,
        SharedCounters(purgatory, MemoryCounters()) as shared,
    ):
        observe_shared(meter, shared)
        await shared.advance("doc", 1)
        points = collected(reader)
    assert points["aiowheel.shared.publishes", ""] == 1
    assert points["aiowheel.shared.waiting", ""] == 0
