"""Timers, purgatories, shared counters and durable timers for Prometheus. Rank 4; extra `metrics`.

A scrape reads the statistics; timers and purgatories do no extra work. Importing this module
registers nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from aiowheel.durable import DurableTimers
from aiowheel.errors import MissingExtraError
from aiowheel.instrumentation._readings import (
    READINGS,
    Number,
    Statistics,
    Subjects,
    cumulative,
    durable_subject,
    purgatory_subject,
    shared_subject,
    timer_subject,
)
from aiowheel.purgatory import Purgatory
from aiowheel.shared import SharedCounters
from aiowheel.timer import Histogram, Timer

try:
    from prometheus_client.core import (
        CounterMetricFamily,
        GaugeMetricFamily,
        HistogramMetricFamily,
        Metric,
    )
    from prometheus_client.registry import Collector
except ImportError as _error:
    raise MissingExtraError("metrics") from _error


class AiowheelCollector(Collector):
    """A collector of the metrics of timers, purgatories, shared counters and durable timers.

    Register it with the application's registry: `registry.register(collector)`. The metrics are
    called `aiowheel_timer_...`, `aiowheel_purgatory_...`, `aiowheel_shared_...` and
    `aiowheel_durable_...` and have the label `name`. Two open subjects of one kind must not have
    the same name. A closed subject is reported for two more minutes, and then removed. A bucket of
    a histogram may leave out durations that are at most 4 % below its `le`.
    """

    def __init__(self) -> None:
        self._subjects = Subjects()

    def add_timer(self, timer: Timer, name: str) -> None:
        """Report *timer* as *name*, as soon as it is entered.

        Raises:
            ValueError: Another timer that is not closed has the name.
        """
        self._subjects.add(timer_subject(timer, name))

    def add_durable(self, timers: DurableTimers, name: str) -> None:
        """Report *timers* as *name*.

        Raises:
            ValueError: Other durable timers that are not closed have the name.
        """
        self._subjects.add(durable_subject(timers, name))

    def add_purgatory(self, purgatory: Purgatory) -> None:
        """Report *purgatory* by its own name.

        Raises:
            ValueError: Another purgatory that is not closed has the name.
        """
        self._subjects.add(purgatory_subject(purgatory))

    def add_shared(self, shared: SharedCounters) -> None:
        """Report *shared* by the name of its purgatory.

        Raises:
            ValueError: Other shared counters that are not closed have the name.
        """
        self._subjects.add(shared_subject(shared))

    def describe(self) -> Iterator[Metric]:
        """Return every metric without samples.

        A registry uses the names to select metrics, and to refuse a second collector.
        """
        for prefix in READINGS:
            yield from _families(prefix, [])

    def collect(self) -> Iterator[Metric]:
        """Read every subject once. The registry calls this on each scrape."""
        in_order = sorted(self._subjects.reported(), key=lambda subject: subject.prefix)
        for prefix, subjects in groupby(in_order, key=lambda subject: subject.prefix):
            readings = [(subject.label, subject.read()) for subject in subjects]
            snapshots = [(label, reading) for label, reading in readings if reading is not None]
            yield from _families(prefix, snapshots)


def _families(prefix: str, snapshots: Sequence[tuple[str, Statistics]]) -> Iterator[Metric]:
    _, numbers, distributions = READINGS[prefix]
    for number in numbers:
        family = _family(prefix, number)
        for label, snapshot in snapshots:
            family.add_metric([label], number.read(snapshot))
        yield family
    for distribution in distributions:
        text = f"{distribution.text} Durations at most 4 % below an edge may be in the next bucket."
        histograms = HistogramMetricFamily(f"{prefix}_{distribution.name}", text, labels=["name"])
        for label, snapshot in snapshots:
            _add(histograms, label, distribution.read(snapshot))
        yield histograms


def _family(prefix: str, number: Number) -> CounterMetricFamily | GaugeMetricFamily:
    kind = CounterMetricFamily if number.monotonic else GaugeMetricFamily
    return kind(f"{prefix}_{number.name}", number.text, labels=["name"])


def _add(family: HistogramMetricFamily, label: str, histogram: Histogram) -> None:
    buckets = [(str(edge), float(count)) for edge, count in cumulative(histogram)]
    buckets.append(("+Inf", float(histogram.count)))
    family.add_metric([label], buckets, sum_value=histogram.total)
