"""Timers and purgatories as OpenTelemetry metrics. Rank 4; extra `metrics`, the API only.

Read by the SDK's reader when it collects, never on the hot path. No provider is set here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from opentelemetry.metrics import CallbackOptions, Meter, Observation

from aiowheel.instrumentation._readings import (
    Distribution,
    Number,
    Subject,
    purgatory_subject,
    timer_subject,
)
from aiowheel.purgatory import Purgatory
from aiowheel.timer import Timer

_QUANTILES = (0.5, 0.9, 0.99, 1.0)


def observe_timer(meter: Meter, timer: Timer, name: str) -> None:
    """Create observable instruments for *timer* on *meter*, with the attribute `name`.

    Call it once for each timer and meter. Counts are counters `aiowheel.timer.fired` and so on;
    the lateness histogram is a gauge of its quantiles, by the attribute `quantile`.
    """
    _observe(meter, timer_subject(timer, name))


def observe_purgatory(meter: Meter, purgatory: Purgatory) -> None:
    """As `observe_timer`: `aiowheel.purgatory.completed` and so on, by the purgatory's name."""
    _observe(meter, purgatory_subject(purgatory))


def _observe(meter: Meter, subject: Subject) -> None:
    prefix = subject.prefix.replace("_", ".")
    for number in subject.numbers:
        create = (
            meter.create_observable_counter
            if number.monotonic
            else meter.create_observable_up_down_counter
        )
        create(f"{prefix}.{number.name}", [_counting(subject, number)], description=number.text)
    for distribution in subject.distributions:
        meter.create_observable_gauge(
            f"{prefix}.{distribution.name.removesuffix('_seconds')}",
            [_quantiles(subject, distribution)],
            unit="s",
            description=distribution.text,
        )


def _counting(
    subject: Subject, number: Number
) -> Callable[[CallbackOptions], Iterable[Observation]]:
    def observe(_: CallbackOptions) -> Iterable[Observation]:
        yield Observation(number.read(subject.snapshot()), {"name": subject.label})

    return observe


def _quantiles(
    subject: Subject, distribution: Distribution
) -> Callable[[CallbackOptions], Iterable[Observation]]:
    def observe(_: CallbackOptions) -> Iterable[Observation]:
        histogram = distribution.read(subject.snapshot())
        for q in _QUANTILES:
            yield Observation(histogram.quantile(q), {"name": subject.label, "quantile": f"{q:g}"})

    return observe
