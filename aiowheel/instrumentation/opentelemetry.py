"""Timers, purgatories, counters and durable timers for OpenTelemetry. Rank 4; extra `metrics`.

The SDK's reader reads the statistics when it collects; timers and purgatories do no extra work.
This module needs only the API of OpenTelemetry, and sets no provider.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from weakref import WeakKeyDictionary

from aiowheel.durable import DurableTimers
from aiowheel.errors import MissingExtraError
from aiowheel.instrumentation._readings import (
    READINGS,
    Distribution,
    Number,
    Subject,
    Subjects,
    durable_subject,
    purgatory_subject,
    shared_subject,
    timer_subject,
)
from aiowheel.purgatory import Purgatory
from aiowheel.shared import SharedCounters
from aiowheel.timer import Timer

try:
    from opentelemetry.metrics import CallbackOptions, Meter, Observation
except ImportError as _error:
    raise MissingExtraError("metrics") from _error

_QUANTILES = (0.5, 0.9, 0.99, 1.0)


def observe_timer(meter: Meter, timer: Timer, name: str) -> None:
    """Create observable instruments for *timer* on *meter*, with the attribute `name`.

    Counts become counters such as `aiowheel.timer.fired`; if a closed timer had the name before,
    they go on from its counts. The lateness histogram becomes a gauge of its quantiles, with the
    attribute `quantile`. A closed timer is observed for two more minutes. Pass the same meter
    object to all calls: until the application has set its provider, `get_meter` returns a new
    object each time, and after that the SDK keeps the instruments of the first one only.

    Raises:
        ValueError: Another timer that is not closed has the name on this meter.
    """
    _observe(meter, timer_subject(timer, name))


def observe_durable(meter: Meter, timers: DurableTimers, name: str) -> None:
    """Create observable instruments for *timers* on *meter*, with the attribute `name`.

    They are called `aiowheel.durable.fired` and so on; see `observe_timer`.

    Raises:
        ValueError: Other durable timers that are not closed have the name on this meter.
    """
    _observe(meter, durable_subject(timers, name))


def observe_purgatory(meter: Meter, purgatory: Purgatory) -> None:
    """Create observable instruments for *purgatory* on *meter*, with its own name.

    They are called `aiowheel.purgatory.completed` and so on; see `observe_timer`.

    Raises:
        ValueError: Another purgatory that is not closed has the name on this meter.
    """
    _observe(meter, purgatory_subject(purgatory))


def observe_shared(meter: Meter, shared: SharedCounters) -> None:
    """Create observable instruments for *shared* on *meter*, with the name of its purgatory.

    They are called `aiowheel.shared.publishes` and so on; see `observe_timer`.

    Raises:
        ValueError: Other shared counters that are not closed have the name on this meter.
    """
    _observe(meter, shared_subject(shared))


#: The subjects of each meter, by prefix. They share one set of instruments, because a meter keeps
#: only the first of several instruments with the same name.
_SUBJECTS: WeakKeyDictionary[Meter, dict[str, Subjects]] = WeakKeyDictionary()


def _observe(meter: Meter, subject: Subject) -> None:
    by_prefix = _SUBJECTS.setdefault(meter, {})
    subjects = by_prefix.get(subject.prefix)
    if subjects is not None:
        subjects.add(subject)
        return
    subjects = by_prefix[subject.prefix] = Subjects()
    subjects.add(subject)
    _create_instruments(meter, subject.prefix, subjects)


def _create_instruments(meter: Meter, subject_prefix: str, subjects: Subjects) -> None:
    _, numbers, distributions = READINGS[subject_prefix]
    prefix = subject_prefix.replace("_", ".")
    for number in numbers:
        create = (
            meter.create_observable_counter
            if number.monotonic
            else meter.create_observable_up_down_counter
        )
        create(f"{prefix}.{number.name}", [_counting(subjects, number)], description=number.text)
    for distribution in distributions:
        meter.create_observable_gauge(
            f"{prefix}.{distribution.name.removesuffix('_seconds')}",
            [_quantiles(subjects, distribution)],
            unit="s",
            description=distribution.text,
        )


def _counting(
    subjects: Subjects, number: Number
) -> Callable[[CallbackOptions], Iterable[Observation]]:
    def observe(_: CallbackOptions) -> Iterable[Observation]:
        for subject in subjects.reported():
            snapshot = subject.read()
            if snapshot is not None:
                # A sum that falls would be exported as a negative difference.
                yield Observation(subject.total(number, snapshot), {"name": subject.label})

    return observe


def _quantiles(
    subjects: Subjects, distribution: Distribution
) -> Callable[[CallbackOptions], Iterable[Observation]]:
    def observe(_: CallbackOptions) -> Iterable[Observation]:
        for subject in subjects.reported():
            snapshot = subject.read()
            if snapshot is None:
                continue
            histogram = distribution.read(snapshot)
            for q in _QUANTILES:
                labels = {"name": subject.label, "quantile": f"{q:g}"}
                yield Observation(histogram.quantile(q), labels)

    return observe
