"""What the service reports to Prometheus. Rank 5; needs the `metrics` extra."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from starlette.responses import Response

from aiowheel.instrumentation.prometheus import AiowheelCollector
from aiowheel.serve._service import Service
from aiowheel.serve._topic_store import Totals
from aiowheel.timer import Timer


class Metrics:
    """The timer's, the purgatory's and the service's own metrics, read when they are scraped."""

    def __init__(self, service: Service, timer: Timer) -> None:
        wheel = AiowheelCollector()
        wheel.add_timer(timer, "serve")
        wheel.add_purgatory(service.purgatory)
        self._registry = CollectorRegistry()
        self._registry.register(wheel)
        self._service = _ServiceCollector(service)
        self._registry.register(self._service)

    def answer(self, totals: Totals | None) -> Response:
        """In Prometheus' text format, without what the store holds if that is not known."""
        self._service.totals = totals
        return Response(generate_latest(self._registry), media_type=CONTENT_TYPE_LATEST)


class _ServiceCollector(Collector):
    """Reads the counts of the service.

    Attributes:
        totals: What the store holds; None if it does not answer.
    """

    def __init__(self, service: Service) -> None:
        self._crowd = service.crowd
        self.totals: Totals | None = None

    def collect(self) -> Iterator[Metric]:
        crowd, totals = self._crowd, self.totals
        gauges = {
            "waiters": ("Long polls and subscriptions that wait.", len(crowd)),
            "waiting_clients": ("Addresses that wait.", crowd.clients),
        }
        counters: dict[str, tuple[str, int]] = {}
        if totals is not None:
            gauges |= {
                "topics": ("Topics that exist.", totals.topics),
                "kept_bytes": ("What the kept messages count.", totals.size),
            }
            counters = {
                "published": ("Messages ever published.", totals.published),
                "dropped": ("Messages ever dropped, to make room or by age.", totals.dropped),
                "expired": ("Topics ever removed because they were not used.", totals.expired),
            }
        for name, (text, value) in gauges.items():
            yield GaugeMetricFamily(f"aiowheel_serve_{name}", text, value)
        for name, (text, value) in counters.items():
            yield CounterMetricFamily(f"aiowheel_serve_{name}", text, value)
