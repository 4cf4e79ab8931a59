"""What the service reports to Prometheus. Rank 5; needs the `metrics` extra."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from starlette.responses import Response

from aiowheel.instrumentation.prometheus import AiowheelCollector
from aiowheel.serve._service import Service
from aiowheel.timer import Timer


class Metrics:
    """The timer's, the purgatory's and the service's own metrics, read when they are scraped."""

    def __init__(self, service: Service, timer: Timer) -> None:
        wheel = AiowheelCollector()
        wheel.add_timer(timer, "serve")
        wheel.add_purgatory(service.purgatory)
        self._registry = CollectorRegistry()
        self._registry.register(wheel)
        self._registry.register(_ServiceCollector(service))

    def answer(self) -> Response:
        """In Prometheus' text format."""
        return Response(generate_latest(self._registry), media_type=CONTENT_TYPE_LATEST)


class _ServiceCollector(Collector):
    def __init__(self, service: Service) -> None:
        self._service = service

    def collect(self) -> Iterator[Metric]:
        topics, crowd = self._service.topics, self._service.crowd
        gauges = {
            "topics": ("Topics that exist.", len(topics)),
            "kept_bytes": ("What the kept messages count.", topics.size),
            "waiters": ("Long polls and subscriptions that wait.", len(crowd)),
            "waiting_clients": ("Addresses that wait.", crowd.clients),
        }
        counters = {
            "published": ("Messages ever published.", topics.published),
            "dropped": ("Messages ever dropped, to make room or by age.", topics.dropped),
            "expired": (
                "Topics ever removed because they were not used.",
                self._service.expiry.expired,
            ),
        }
        for name, (text, value) in gauges.items():
            yield GaugeMetricFamily(f"aiowheel_serve_{name}", text, value)
        for name, (text, value) in counters.items():
            yield CounterMetricFamily(f"aiowheel_serve_{name}", text, value)
