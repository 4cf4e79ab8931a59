"""Timers and purgatories as OpenTelemetry metrics. Rank 4; extra `metrics`, the API only.

Read by the SDK's reader when it collects, never on the hot path. No provider is set here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from weakref import WeakKeyDictionary

from opentelemetry.metrics import CallbackOptions, Meter, Observation

from aiowheel.instrumentation._readings import (
    Distribution,
    Number,
    Subject,
    enlist,
    purgatory_subject,
    timer_subject,
)
from aiowheel.purgatory import Purgatory
from aiowheel.timer import Timer

_QUANTILES = (0.5, 0.9, 0.99, 1.0)


def observe_timer(meter: Meter, timer: Timer, name: str) -> None:
    """Create observable instruments for *timer* on *meter*, with the attribute `name`.

    Counts are counters `aiowheel.timer.fired` and so on; the lateness histogram is a gauge of its
    quantiles, by the attribute `quantile`. Give one meter object to all calls: before the
    application has set its provider `get_meter` makes another each time, and afterwards the SDK
    keeps the instruments of the first alone.

    Raises:
        ValueError: Another timer that is not closed has the name on this meter.
    """
    _observe(meter, timer_subject(timer, name))


def observe_purgatory(meter: Meter, purgatory: Purgatory) -> None:
    """As `observe_timer`: `aiowheel.purgatory.completed` and so on, by the purgatory's name."""
    _observe(meter, purgatory_subject(purgatory))


#: What each meter reports, by prefix. One set of instruments for all: of several instruments of
#: one name a meter keeps the first, and never calls the others back.
_SUBJECTS: WeakKeyDictionary[Meter, dict[str, list[Subject]]] = WeakKeyDictionary()


def _observe(meter: Meter, subject: Subject) -> None:
    subjects = _SUBJECTS.setdefault(meter, {}).setdefault(subject.prefix, [])
    is_first = not subjects
    enlist(subject, subjects)
    if is_first:
        _create_instruments(meter, subjects)


def _create_instruments(meter: Meter, subjects: list[Subject]) -> None:
    subject = subjects[0]
    prefix = subject.prefix.replace("_", ".")
    for number in subject.numbers:
        create = (
            meter.create_observable_counter
            if number.monotonic
            else meter.create_observable_up_down_counter
        )
        create(f"{prefix}.{number.name}", [_counting(subjects, number)], description=number.text)
    for distribution in subject.distributions:
        meter.create_observable_gauge(
            f"{prefix}.{distribution.name.removesuffix('_seconds')}",
            [_quantiles(subjects, distribution)],
            unit="s",
            description=distribution.text,
        )


def _counting(
    subjects: Sequence[Subject], number: Number
) -> Callable[[CallbackOptions], Iterable[Observation]]:
    def observe(_: CallbackOptions) -> Iterable[Observation]:
        for subject in subjects:
            snapshot = subject.read()
            if snapshot is not None:
                yield Observation(number.read(snapshot), {"name": subject.label})

    return observe


def _quantiles(
    subjects: Sequence[Subject], distribution: Distribution
) -> Callable[[CallbackOptions], Iterable[Observation]]:
    def observe(_: CallbackOptions) -> Iterable[Observation]:
        for subject in subjects:
            snapshot = subject.read()
            if snapshot is None:
                continue
            histogram = distribution.read(snapshot)
            for q in _QUANTILES:
                labels = {"name": subject.label, "quantile": f"{q:g}"}
                yield Observation(histogram.quantile(q), labels)

    return observe
