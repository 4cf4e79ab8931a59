"""The statistics of a session's streams for Prometheus. Rank 5; extra `metrics`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from aiowheel.errors import MissingExtraError

try:
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
    from prometheus_client.registry import Collector
except ImportError as _error:
    raise MissingExtraError("metrics") from _error

from aiowheel.jobs.spark.listener import StreamListener

_COUNTERS: Final = {
    "batches": "Micro-batches that ended",
    "rows": "Rows read",
    "rejected_rows": "Rows that cannot be used",
    "late_rows": "Rows that came later than allowed, and are lost",
    "failures": "Runs of the query that ended by an error",
}
_GAUGES: Final = {
    "batch_seconds": "Duration of the last micro-batch",
    "watermark_seconds": "The watermark, in seconds since 1970",
}


class StreamCollector(Collector):
    """A collector of the statistics of *listener*: ``registry.register(collector)``.

    The metrics are named ``aiowheel_stream_...`` and have the label ``query``.

    Args:
        listener: The listener of one session.
    """

    def __init__(self, listener: StreamListener) -> None:
        self._listener = listener

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics; the registry calls this for a scrape."""
        statistics = self._listener.statistics()
        for texts, family in ((_COUNTERS, CounterMetricFamily), (_GAUGES, GaugeMetricFamily)):
            for name, text in texts.items():
                metric = family(f"aiowheel_stream_{name}", text, labels=["query"])
                for query, numbers in statistics.items():
                    value = getattr(numbers, name)
                    if value is not None:
                        metric.add_metric([query], value)
                yield metric
