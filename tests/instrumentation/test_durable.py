"""Durable timers as metrics and log events."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from aiowheel.durable import DurableTimers, Fire, MemoryStore, Retry
from aiowheel.instrumentation._readings import Subjects, durable_subject

pytestmark = [pytest.mark.one_build, pytest.mark.virtual_time]


def fail(fire: Fire) -> None:
    """Raise for one name."""
    if fire.name == "bad":
        raise ValueError("no")


async def test_prometheus_reports_durable_timers() -> None:
    """Counts, gauges and histograms are reported before, during and after the open state."""
    pytest.importorskip("prometheus_client")
    from prometheus_client import CollectorRegistry, generate_latest

    from aiowheel.instrumentation.prometheus import AiowheelCollector

    timers = DurableTimers(MemoryStore())
    timers.handler("h", retry=Retry(2, backoff=1))(fail)
    collector = AiowheelCollector()
    collector.add_durable(timers, "reminders")
    with pytest.raises(ValueError, match="a set of durable timers is reported as 'reminders'"):
        collector.add_durable(DurableTimers(MemoryStore()), "reminders")
    registry = CollectorRegistry()
    registry.register(collector)
    assert (
        'aiowheel_durable_fired_total{name="reminders"} 0.0' in generate_latest(registry).decode()
    )
    async with timers:
        for name in ("good", "bad", "far"):
            due = timedelta(hours=1) if name == "far" else timedelta(seconds=1)
            await timers.schedule(name, "h", due=due)
        await asyncio.sleep(60)
        lines = generate_latest(registry).decode()

    for line in (
        'scheduled_total{name="reminders"} 3.0',
        'fired_total{name="reminders"} 3.0',
        'acknowledged_total{name="reminders"} 1.0',
        'retried_total{name="reminders"} 1.0',
        'dead_total{name="reminders"} 1.0',
        'resident{name="reminders"} 1.0',
        'lateness_seconds_count{name="reminders"} 3.0',
        'lease_changes_total{name="reminders"} 4.0',
    ):
        assert f"aiowheel_durable_{line}" in lines


async def test_opentelemetry_reports_durable_timers() -> None:
    """The instruments are created on the application's meter."""
    pytest.importorskip("opentelemetry.sdk")
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import InMemoryMetricReader

    from aiowheel.instrumentation.opentelemetry import observe_durable

    reader = InMemoryMetricReader()
    meter = MeterProvider([reader]).get_meter("test")
    timers = DurableTimers(MemoryStore())
    timers.handler("h")(fail)
    async with timers:
        observe_durable(meter, timers, "reminders")
        await timers.schedule("good", "h", due=timedelta(seconds=1))
        await asyncio.sleep(60)
        data = reader.get_metrics_data()
    assert data is not None
    text = data.to_json()

    assert '"aiowheel.durable.acknowledged"' in text
    assert '"aiowheel.durable.lateness"' in text


async def test_timers_that_are_entered_again_can_be_added_again() -> None:
    """A program adds them at each start; their counts go on, and appear once."""
    pytest.importorskip("prometheus_client")
    pytest.importorskip("opentelemetry.sdk")
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import InMemoryMetricReader
    from prometheus_client import CollectorRegistry, generate_latest

    from aiowheel.instrumentation.opentelemetry import observe_durable
    from aiowheel.instrumentation.prometheus import AiowheelCollector

    collector, registry = AiowheelCollector(), CollectorRegistry()
    registry.register(collector)
    reader = InMemoryMetricReader()
    meter = MeterProvider([reader]).get_meter("test")
    timers = DurableTimers(MemoryStore())
    timers.handler("h")(fail)
    for is_first in (True, False):
        if is_first:
            observe_durable(meter, timers, "reminders")
        async with timers:
            collector.add_durable(timers, "reminders")
            observe_durable(meter, timers, "reminders")
            await timers.schedule("good", "h", due=timedelta(seconds=1))
            await asyncio.sleep(60)
        collector.add_durable(timers, "reminders")
        observe_durable(meter, timers, "reminders")

    lines = generate_latest(registry).decode().splitlines()
    assert [line for line in lines if line.startswith("aiowheel_durable_fired_total")] == [
        'aiowheel_durable_fired_total{name="reminders"} 2.0'
    ]
    data = reader.get_metrics_data()
    assert data is not None
    (fired,) = (
        metric
        for metric in data.resource_metrics[0].scope_metrics[0].metrics
        if metric.name == "aiowheel.durable.fired"
    )
    assert [point.value for point in fired.data.data_points] == [2]  # type: ignore[union-attr]


async def test_closed_timers_stay_because_they_can_be_entered_again(
    now: list[float],
) -> None:
    """Other closed objects are removed after two minutes."""
    subjects = Subjects()
    timers = DurableTimers(MemoryStore())
    async with timers:
        subjects.add(durable_subject(timers, "reminders"))
    for _ in range(3):
        assert [subject.of for subject in subjects.reported()] == [timers]
        now[0] += 121


async def test_structlog_gets_the_events() -> None:
    """The events concern retries, dead letters and leases."""
    import structlog
    from structlog.testing import capture_logs

    structlog.configure()
    try:
        with capture_logs() as logs:
            timers = DurableTimers(MemoryStore())
            timers.handler("h", retry=Retry(2, backoff=1))(fail)
            async with timers:
                await timers.schedule("bad", "h", due=timedelta(seconds=1))
                await asyncio.sleep(60)
    finally:
        structlog.reset_defaults()

    assert [entry["event"] for entry in logs] == [
        "aiowheel.durable_leases_changed",
        "aiowheel.durable_retry",
        "aiowheel.durable_dead_letter",
    ]
    assert logs[-1]["timer"] == "bad"
    assert logs[-1]["error"] == repr(logs[-1]["exc_info"])
