"""The reports of a stream's listener, without Spark."""

from types import SimpleNamespace
from typing import Any

import pytest
from structlog.testing import capture_logs

pytest.importorskip("pyspark")
pytest.importorskip("prometheus_client")

import structlog
from prometheus_client import CollectorRegistry
from pyspark.sql import Row

from aiowheel.jobs.spark.listener import StreamListener, StreamStatistics
from aiowheel.jobs.spark.metrics import StreamCollector

pytestmark = pytest.mark.one_build


def progress(number: int, **more: Any) -> Any:
    """Return the event of a micro-batch."""
    batch = {
        "name": "aiowheel-idle /out/checkpoint",
        "id": "q1",
        "batchId": number,
        "numInputRows": 4,
        "durationMs": {"addBatch": 900, "triggerExecution": 1_500},
        "observedMetrics": {},
        "stateOperators": [],
        "eventTime": {},
    }
    return SimpleNamespace(progress=SimpleNamespace(**batch | more))


def event(**values: Any) -> Any:
    """Return any other event."""
    return SimpleNamespace(id="q1", runId="r1", **values)


@pytest.fixture
def structlog_configured() -> Any:
    """Configure structlog as an application does."""
    structlog.configure()
    yield
    structlog.reset_defaults()


@pytest.mark.usefixtures("structlog_configured")
def test_a_batch_is_logged_and_counted() -> None:
    """Lost rows are logged as an additional warning."""
    listener = StreamListener()
    registry = CollectorRegistry()
    registry.register(StreamCollector(listener))
    observed = {
        "touches": Row(rejected=2, irregular=0),
        "touches_packed": Row(packs=[Row(number=0, count=5), Row(number=2**33, count=3)]),
        "taken": Row(shards=[Row(shard=0, taken=4), Row(shard=1, taken=3)]),
    }
    time = {"watermark": "2026-01-01T00:00:00.000Z"}

    with capture_logs() as logs:
        listener.onQueryProgress(progress(3, observedMetrics=observed, eventTime=time))
        listener.onQueryProgress(progress(4, durationMs={"triggerExecution": 1}))  # without a batch

    counts = {"query": "aiowheel-idle /out/checkpoint", "batch": 3, "rejected": 2, "late": 1}
    assert logs == [
        {
            "event": "aiowheel.stream_batch",
            "log_level": "info",
            "rows": 10,
            "seconds": 1.5,
            "watermark": "2026-01-01T00:00:00+00:00",
            **counts,
        },
        {"event": "aiowheel.stream_rows_lost", "log_level": "warning", **counts},
    ]
    numbers = {"batches": 1, "rows": 10, "rejected_rows": 2, "late_rows": 1}
    labels = {"query": "aiowheel-idle /out/checkpoint"}
    for name, value in numbers.items():
        assert registry.get_sample_value(f"aiowheel_stream_{name}_total", labels) == value
    assert registry.get_sample_value("aiowheel_stream_batch_seconds", labels) == 1.5
    assert registry.get_sample_value("aiowheel_stream_watermark_seconds", labels) == 1_767_225_600


def test_a_stream_of_other_code_has_sparks_counts() -> None:
    """Its operators drop late rows; a watermark of 1970 means none."""
    listener = StreamListener()
    states = [SimpleNamespace(numRowsDroppedByWatermark=2) for _ in range(2)]
    time = {"watermark": "1970-01-01T00:00:00.000Z"}

    for number in range(2):
        listener.onQueryProgress(progress(number, name=None, stateOperators=states, eventTime=time))

    assert listener.statistics() == {
        "q1": StreamStatistics(batches=2, rows=8, late_rows=8, batch_seconds=1.5)
    }


@pytest.mark.parametrize(
    "observed",
    [
        {"events": Row(n=4)},
        {"operations": Row(rejected=3)},
        {"touches": {"rejected": 3}, "touches_packed": {"packs": 2}},
        {"taken": Row(n=4)},
        {"events": Row(n=4), "taken": {"shards": 3}},
    ],
)
def test_other_code_may_use_the_names_of_observations(observed: dict[str, Any]) -> None:
    """An observation of other code has other columns, or is not on the output of shards."""
    listener = StreamListener()

    listener.onQueryProgress(progress(0, observedMetrics=observed))

    assert listener.statistics() == {
        "aiowheel-idle /out/checkpoint": StreamStatistics(batches=1, rows=4, batch_seconds=1.5)
    }


def test_other_observations_in_a_query_of_aiowheel_are_left_out() -> None:
    """A query may observe the rows of a transform under the name of a table."""
    listener = StreamListener()
    observed = {
        "operations_packed": Row(packs=[Row(number=0, count=5)]),
        "touches": Row(n=4),
        "events": Row(n=4),
        "events_packed": Row(n=4),
        "taken": Row(shards=[Row(shard=0, taken_operations=3, taken_events=0)]),
    }

    listener.onQueryProgress(progress(0, observedMetrics=observed))

    assert listener.statistics() == {
        "aiowheel-idle /out/checkpoint": StreamStatistics(
            batches=1, rows=5, late_rows=2, batch_seconds=1.5
        )
    }


@pytest.mark.usefixtures("structlog_configured")
def test_a_failure_is_logged_by_the_name_of_its_query() -> None:
    """A stopped query is not a failure."""
    listener = StreamListener()

    with capture_logs() as logs:
        for exception in (None, "[BAD] it broke\nat java.lang"):
            listener.onQueryStarted(event(name="mine"))
            listener.onQueryTerminated(event(exception=exception))

    assert logs == [
        {
            "event": "aiowheel.stream_failed",
            "log_level": "warning",
            "query": "mine",
            "reason": "[BAD] it broke",
        }
    ]
    assert listener.statistics()["mine"].failures == 1
