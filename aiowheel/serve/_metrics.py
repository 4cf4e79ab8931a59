"""What the service reports to Prometheus. Rank 5; needs the `metrics` extra.

Of several workers each answers a scrape for all. Every sample but those of the store then has a
label `worker`, so that a worker that is started again begins its own counters at zero and not the
sum of all, which Prometheus would take for growth.
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
from aiowheel.serve._service import Service
from aiowheel.serve._topic_store import Totals
from aiowheel.timer import Timer

_PATIENCE = 2.0  # seconds for another worker to answer


class Metrics:
    """The timer's, the purgatory's and the service's own metrics, read when they are scraped.

    Args:
        service: Its purgatory is open.
        timer: Open.
        worker: Where this process is one of several workers, the folder by which they find each
            other, and its number.
    """

    def __init__(self, service: Service, timer: Timer, worker: tuple[Path, int] | None) -> None:
        self._wheel = AiowheelCollector()
        self._wheel.add_timer(timer, "serve")
        self._wheel.add_purgatory(service.purgatory)
        self._crowd = service.crowd
        self._siblings: Siblings | None = None
        if worker is not None:
            folder, number = worker
            # The socket of a dead worker must not have the name of the next one.
            name = f"{number}-{os.getpid()}"
            self._siblings = Siblings(folder / "metrics", name, self._answer_sibling)

    async def answer(self, totals: Totals | None) -> Response:
        """Return all metrics in Prometheus' text format, without *totals* if these are None."""
        families = list(self._own()) if self._siblings is None else await self._of_all()
        registry = CollectorRegistry()
        registry.register(_Families([*families, *_of_store(totals)]))
        return Response(generate_latest(registry), media_type=CONTENT_TYPE_LATEST)

    def close(self) -> None:
        """Answer the other workers no more."""
        if self._siblings is not None:
            self._siblings.close()

    def _own(self) -> Iterator[Metric]:
        yield from self._wheel.collect()
        crowd = self._crowd
        for name, text, value in (
            ("waiters", "Long polls and subscriptions that wait.", len(crowd)),
            ("waiting_clients", "Addresses that wait.", crowd.clients),
        ):
            yield GaugeMetricFamily(f"aiowheel_serve_{name}", text, value)

    async def _answer_sibling(self, _question: Json) -> AsyncGenerator[Json]:
        yield {"families": [_as_json(family) for family in self._own()]}

    async def _of_all(self) -> list[Metric]:
        assert self._siblings is not None
        found = await self._siblings.ask_all({"ask": "metrics"}, _PATIENCE)
        # One of each number: while the workers are replaced, there are two.
        answers = {name.partition("-")[0]: answer for name, answer in found.items()}
        families: dict[str, Metric] = {}
        for worker, answer in answers.items():
            for each in answer["families"]:
                family = families.setdefault(
                    each["name"], Metric(each["name"], each["text"], each["type"])
                )
                for sample, labels, value in each["samples"]:
                    family.add_sample(sample, {**labels, "worker": worker}, value)
        text = "Workers whose numbers are in this answer."
        return [*families.values(), GaugeMetricFamily("aiowheel_serve_workers", text, len(answers))]


class _Families(Collector):
    """A collector of what was collected already."""

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
        ("topics", "Topics that exist.", totals.topics),
        ("kept_bytes", "What the kept messages count.", totals.size),
    ):
        yield GaugeMetricFamily(f"aiowheel_serve_{name}", text, value)
    for name, text, value in (
        ("published", "Messages ever published.", totals.published),
        ("dropped", "Messages ever dropped, to make room or by age.", totals.dropped),
        ("expired", "Topics ever removed because they were not used.", totals.expired),
    ):
        yield CounterMetricFamily(f"aiowheel_serve_{name}", text, value)
