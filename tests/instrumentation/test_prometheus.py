"""The Prometheus collector has the numbers of the statistics."""

from __future__ import annotations

import asyncio
import gc

import pytest

from aiowheel import DelayedOperation, ManualTimer, Purgatory, Timer

pytest.importorskip("prometheus_client")

from prometheus_client import CollectorRegistry, generate_latest

from aiowheel.instrumentation._readings import EDGES, Subjects, purgatory_subject
from aiowheel.instrumentation.prometheus import AiowheelCollector
from aiowheel.shared import SharedCounters
from aiowheel.testing import MemoryCounters

pytestmark = pytest.mark.one_build


class Ready(DelayedOperation[None]):
    """An operation that completes at the first check after its flag was set."""

    ready = False

    def try_complete(self) -> bool:
        """Complete if the flag is set."""
        return self.ready


def registered(collector: AiowheelCollector) -> CollectorRegistry:
    """Return a new registry with a collector."""
    registry = CollectorRegistry()
    registry.register(collector)
    return registry


def test_timer_counts_and_lateness_are_scraped() -> None:
    """Every number of the statistics is a sample with the timer's name."""
    timer = ManualTimer(tick=0.01)
    collector = AiowheelCollector()
    collector.add_timer(timer, "main")
    registry = registered(collector)

    timer.call_later(0.095, lambda: None)
    timer.call_later(60, lambda: None).cancel()
    timer.advance(0.1)

    value = registry.get_sample_value
    assert value("aiowheel_timer_fired_total", {"name": "main"}) == 1
    assert value("aiowheel_timer_cancelled_total", {"name": "main"}) == 1
    assert value("aiowheel_timer_pending", {"name": "main"}) == 0
    bucket = "aiowheel_timer_lateness_seconds_bucket"
    assert value(bucket, {"name": "main", "le": "0.002"}) == 0
    assert value(bucket, {"name": "main", "le": "0.01"}) == 1
    assert value(bucket, {"name": "main", "le": "+Inf"}) == 1
    total = value("aiowheel_timer_lateness_seconds_sum", {"name": "main"})
    assert total == pytest.approx(0.005)


@pytest.mark.parametrize("edge", EDGES)
def test_buckets_leave_out_only_durations_close_below_their_edge(edge: float) -> None:
    """The description names the error: at most 4 % below the edge, and none above it."""
    timer = ManualTimer(tick=1e-6)
    purgatory = Purgatory("fetch", timer=timer)
    collector = AiowheelCollector()
    collector.add_purgatory(purgatory)
    registry = registered(collector)
    counts: list[float | None] = []
    for share in (0.96, 1.0, 1.001):
        operation = Ready(None)
        purgatory.try_complete_else_watch(operation, ["a"])
        timer.advance(edge * share)
        operation.force_complete()
        bucket = "aiowheel_purgatory_duration_seconds_bucket"
        counts.append(registry.get_sample_value(bucket, {"name": "fetch", "le": str(edge)}))

    assert counts[0] == 1
    assert counts[1] in {1, 2}
    assert counts[2] == counts[1]
    assert (
        "# HELP aiowheel_purgatory_duration_seconds Completed minus created. "
        "Durations at most 4 % below an edge may be in the next bucket.\n"
    ) in generate_latest(registry).decode()


def test_two_purgatories_share_each_metric_family() -> None:
    """Labels distinguish them, because Prometheus refuses two families of one name."""
    timer = ManualTimer()
    collector = AiowheelCollector()
    fetch, produce = Purgatory("fetch", timer=timer), Purgatory("produce", timer=timer)
    collector.add_purgatory(fetch)
    collector.add_purgatory(produce)
    registry = registered(collector)

    operation = Ready(30)
    fetch.try_complete_else_watch(operation, ["a", "b"])
    timer.advance(2)
    operation.ready = True
    fetch.check_and_complete("a")
    produce.try_complete_else_watch(Ready(30), ["a"])

    value = registry.get_sample_value
    assert value("aiowheel_purgatory_completed_total", {"name": "fetch"}) == 1
    assert value("aiowheel_purgatory_completed_total", {"name": "produce"}) == 0
    assert value("aiowheel_purgatory_pending", {"name": "produce"}) == 1
    duration = "aiowheel_purgatory_duration_seconds_bucket"
    assert value(duration, {"name": "fetch", "le": "1.0"}) == 0
    assert value(duration, {"name": "fetch", "le": "5.0"}) == 1
    text = generate_latest(registry).decode()
    assert text.count("# TYPE aiowheel_purgatory_pending gauge") == 1


async def test_the_name_of_a_closed_purgatory_can_be_reused() -> None:
    """The samples of the closed one are removed, because Prometheus would keep the first of two."""
    collector = AiowheelCollector()
    async with Timer() as timer, Purgatory("fetch", timer=timer) as purgatory:
        collector.add_timer(timer, "main")
        collector.add_purgatory(purgatory)
        timer.call_later(60, print)
    again = ManualTimer()
    collector.add_timer(again, "main")
    collector.add_purgatory(Purgatory("fetch", timer=again))

    scraped = generate_latest(registered(collector)).decode().splitlines()

    assert scraped.count('aiowheel_timer_scheduled_total{name="main"} 0.0') == 1
    assert sum(line.startswith("aiowheel_timer_scheduled_total") for line in scraped) == 1
    assert sum(line.startswith("aiowheel_purgatory_pending") for line in scraped) == 1


async def test_a_closed_purgatory_is_reported_for_two_more_minutes(
    now: list[float],
) -> None:
    """Its last counts are scraped; then the series end, and the collector does not hold it."""
    collector = AiowheelCollector()
    registry = registered(collector)
    name = {"name": "tenant"}
    async with Timer() as timer:
        collector.add_timer(timer, "main")
        purgatory = Purgatory("tenant", timer=timer)
        collector.add_purgatory(purgatory)
        purgatory.try_complete_else_watch(Ready(30), ["a"])
        await purgatory.aclose()
        for after in (0, 60, 120):
            now[0] = float(after)
            assert registry.get_sample_value("aiowheel_purgatory_expired_total", name) == 1

        now[0] += 1
        lines = generate_latest(registry).decode().splitlines()

    assert [line for line in lines if "tenant" in line] == []
    assert any(line.startswith("aiowheel_timer_pending{") for line in lines)
    del purgatory
    gc.collect()
    assert not any(type(each) is Purgatory and each.name == "tenant" for each in gc.get_objects())


async def test_closed_purgatories_do_not_accumulate_without_scrapes(
    now: list[float],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A program may add short-lived ones while no monitoring system collects."""
    monkeypatch.setattr("aiowheel.instrumentation._readings.KEPT_NAMES", 10)
    subjects = Subjects()
    timer = ManualTimer()
    for number in range(100):
        now[0] += 30
        purgatory = Purgatory(f"tenant {number}", timer=timer)
        subjects.add(purgatory_subject(purgatory))
        await purgatory.aclose()

    assert [subject.label for subject in subjects.reported()] == [
        f"tenant {number}" for number in range(94, 100)
    ]
    assert len(subjects._counts) == 10


async def test_a_purgatory_that_drains_is_reported_until_its_last_operation_ends(
    now: list[float],
) -> None:
    """Closing may take longer than a closed purgatory is reported."""
    collector = AiowheelCollector()
    registry = registered(collector)
    timer = ManualTimer()
    purgatory = Purgatory("fetch", timer=timer)
    collector.add_purgatory(purgatory)
    purgatory.try_complete_else_watch(Ready(30), ["a"])
    closing = asyncio.ensure_future(purgatory.aclose("wait"))
    await asyncio.sleep(0)

    pending: list[float | None] = []
    for _ in range(2):
        pending.append(registry.get_sample_value("aiowheel_purgatory_pending", {"name": "fetch"}))
        now[0] += 1000
    assert purgatory.closed
    timer.advance(31)
    await closing
    for _ in range(2):
        pending.append(registry.get_sample_value("aiowheel_purgatory_pending", {"name": "fetch"}))
        now[0] += 1000

    assert pending == [1, 1, 0, None]


def test_a_registry_knows_the_metrics_by_name() -> None:
    """It can select metrics, as for `/metrics?name[]=...`, and refuses a second collector."""
    collector = AiowheelCollector()
    registry = registered(collector)
    collector.add_timer(ManualTimer(), "main")

    selected = registry.restricted_registry(["aiowheel_timer_pending"])
    text = generate_latest(selected).decode()
    assert [line for line in text.splitlines() if not line.startswith("#")] == [
        'aiowheel_timer_pending{name="main"} 0.0'
    ]
    with pytest.raises(ValueError, match="aiowheel_timer_pending"):
        registry.register(AiowheelCollector())


def test_only_counters_end_in_total() -> None:
    """`promtool check metrics` refuses a gauge or a histogram with that suffix."""
    families = list(AiowheelCollector().describe())

    assert families
    assert [
        family.name
        for family in families
        if family.type != "counter" and family.name.endswith("_total")
    ] == []


def test_two_open_timers_cannot_share_a_name() -> None:
    """The call raises; otherwise Prometheus would drop samples without an error here."""
    timer = ManualTimer()
    collector = AiowheelCollector()
    collector.add_timer(timer, "main")
    collector.add_timer(timer, "the same by another name")
    collector.add_purgatory(Purgatory("main", timer=timer))

    with pytest.raises(ValueError, match="a timer is reported as 'main' already: close it first"):
        collector.add_timer(Timer(), "main")
    with pytest.raises(ValueError, match="a purgatory is reported as 'main' already"):
        collector.add_purgatory(Purgatory("main", timer=timer))


@pytest.mark.parametrize(
    ("add", "arguments", "text"),
    [
        ("add_timer", (ManualTimer(), None), "name must be a str, got None"),
        ("add_timer", (None, "main"), "timer must be a Timer, got None"),
        ("add_purgatory", ("main",), "purgatory must be a Purgatory, got 'main'"),
        ("add_shared", (None,), "shared must be a SharedCounters, got None"),
        ("add_durable", (None, "main"), "timers must be a DurableTimers, got None"),
    ],
)
def test_a_wrong_argument_is_refused(add: str, arguments: tuple[object, ...], text: str) -> None:
    """A name that is no text would make every scrape fail, also of the other timers."""
    collector = AiowheelCollector()

    with pytest.raises(TypeError, match=text):
        getattr(collector, add)(*arguments)

    generate_latest(registered(collector))


def test_a_timer_not_entered_yet_hides_no_other() -> None:
    """An application may register a timer before it enters it."""
    collector = AiowheelCollector()
    collector.add_timer(Timer(), "later")
    collector.add_timer(ManualTimer(), "now")

    scraped = generate_latest(registered(collector)).decode()

    assert 'aiowheel_timer_fired_total{name="now"} 0.0' in scraped
    assert "later" not in scraped


async def test_shared_counters_are_scraped() -> None:
    """They have the name of their purgatory."""
    collector = AiowheelCollector()
    registry = registered(collector)
    async with Purgatory("docs") as purgatory:
        async with SharedCounters(purgatory, MemoryCounters()) as shared:
            collector.add_shared(shared)
            waiting = shared.wait_until({"doc": 1}, 30)
            await shared.advance("doc", 1)
            await waiting
            value = registry.get_sample_value
            assert value("aiowheel_shared_publishes_total", {"name": "docs"}) == 1
            assert value("aiowheel_shared_writes_total", {"name": "docs"}) == 1
            assert value("aiowheel_shared_keys", {"name": "docs"}) == 1
            with pytest.raises(ValueError, match="counters is reported as 'docs'"):
                collector.add_shared(SharedCounters(purgatory, MemoryCounters()))
        async with SharedCounters(purgatory, MemoryCounters()) as again:
            collector.add_shared(again)
