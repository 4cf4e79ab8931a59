"""The Prometheus metrics of the service. Rank 5; needs the `metrics` extra.

With several workers, the worker that gets a scrape collects the metrics of all workers. Each
sample, except those of the store, then has a label `worker`. Without the label, a restarted worker
would lower the sum of the counters, and Prometheus would count the old values again.
"""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Iterable, Iterator
from pathlib import Path

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from starlette.responses import Response

from aiowheel._siblings import Json, Siblings
from aiowheel.instrumentation.prometheus import AiowheelCollector
from aiowheel.serve._service import NO_STORE, Service
from aiowheel.serve._topic_store import Totals
from aiowheel.timer import Timer

_PATIENCE = 2.0  # seconds to wait for the answers of the other workers


class Metrics:
    """The metrics of timer, purgatory, service and store, read at each scrape.

    Args:
        service: The service; its purgatory is open.
        timer: The service's timer; it is open.
        worker: For one of several workers, the folder of the workers' sockets and the number of
            this worker. None: there is one process.
    """

    def __init__(self, service: Service, timer: Timer, worker: tuple[Path, int] | None) -> None:
        self._wheel = AiowheelCollector()
        self._wheel.add_timer(timer, "serve")
        self._wheel.add_purgatory(service.purgatory)
        self._waiters = service.waiters
        self._siblings: Siblings | None = None
        if worker is not None:
            folder, number = worker
            # A process id, so that a restarted worker does not reuse the name of a dead socket.
            name = f"{number}-{os.getpid()}"
            self._siblings = Siblings(folder / "metrics", name, self._answer_sibling)

    async def answer(self, totals: Totals | None) -> Response:
        """Return all metrics in Prometheus' text format; None leaves out *totals*."""
        families = list(self._own()) if self._siblings is None else await self._of_all()
        registry = CollectorRegistry()
        registry.register(_Families([*families, *_of_store(totals)]))
        text = generate_latest(registry)
        return Response(text, headers=NO_STORE, media_type=CONTENT_TYPE_LATEST)

    def close(self) -> None:
        """Stop answering the other workers."""
        if self._siblings is not None:
            self._siblings.close()

    def _own(self) -> Iterator[Metric]:
        yield from self._wheel.collect()
        waiters = self._waiters
        for name, text, value in (
            ("waiters", "Waiting long polls and subscriptions.", len(waiters)),
            ("waiting_clients", "Client addresses with waiting requests.", waiters.clients),
        ):
            yield GaugeMetricFamily(f"aiowheel_serve_{name}", text, value)

    async def _answer_sibling(self, _question: Json) -> AsyncGenerator[Json]:
        yield {"families": [_as_json(family) for family in self._own()]}

    async def _of_all(self) -> list[Metric]:
        assert self._siblings is not None
        found = await self._siblings.ask_all({"ask": "metrics"}, _PATIENCE)
        # While workers are being replaced, two have the same number; one of them counts.
        answers = {name.partition("-")[0]: answer for name, answer in found.items()}
        families: dict[str, Metric] = {}
        for worker, answer in answers.items():
            for each in answer["families"]:
                family = families.setdefault(
                    each["name"], Metric(each["name"], each["text"], each["type"])
                )
                for sample, labels, value in each["samples"]:
                    family.add_sample(sample, {**labels, "worker": worker}, value)
        text = "Workers that this scrape covers."
        return [*families.values(), GaugeMetricFamily("aiowheel_serve_workers", text, len(answers))]


class _Families(Collector):
    """A Prometheus collector that returns metric families that were collected before."""

    def __init__(self, families: Iterable[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterable[Metric]:
        return self._families


def _as_json(family: Metric) -> Json:
    return {
        "name": family.name,
        "text": family.documentation,
        "type": family.type,
        "samples": [[each.name, each.labels, each.value] for each in family.samples],
    }


def _of_store(totals: Totals | None) -> Iterator[Metric]:
    if totals is None:
        return
    for name, text, value in (
        ("topics", "Existing topics.", totals.topics),
        ("kept_bytes", "Size of all kept messages.", totals.size),
    ):
        yield GaugeMetricFamily(f"aiowheel_serve_{name}", text, value)
    for name, text, value in (
        ("published", "Published messages.", totals.published),
        ("dropped", "Messages dropped by size or by age.", totals.dropped),
        ("expired", "Topics removed because they were unused.", totals.expired),
    ):
        yield CounterMetricFamily(f"aiowheel_serve_{name}", text, value)
