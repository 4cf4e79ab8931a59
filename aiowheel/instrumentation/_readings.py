"""What timers and purgatories report, before any monitoring system's own terms. Rank 4."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from aiowheel.errors import TimerClosedError
from aiowheel.purgatory import Purgatory, PurgatoryStatistics
from aiowheel.timer import Histogram, Timer, TimerStatistics

#: Upper edges of the published histograms, in seconds: a tick and less up to an hour.
EDGES = (
    0.0001,
    0.0005,
    0.001,
    0.002,
    0.005,
    0.01,
    0.02,
    0.05,
    0.1,
    0.5,
    1.0,
    5.0,
    10.0,
    30.0,
    60.0,
    600.0,
    3600.0,
)


@dataclass(frozen=True, slots=True)
class Number:
    """One metric that is a number.

    Attributes:
        name: Without prefix, with unit.
        text: What it counts.
        monotonic: Whether it only grows.
        read: Takes it out of a snapshot.
    """

    name: str
    text: str
    monotonic: bool
    read: Callable[[TimerStatistics | PurgatoryStatistics], int]


@dataclass(frozen=True, slots=True)
class Distribution:
    """One metric that is a histogram of seconds; attributes as of `Number`."""

    name: str
    text: str
    read: Callable[[TimerStatistics | PurgatoryStatistics], Histogram]


def _number(field: str, text: str, *, monotonic: bool = True) -> Number:
    return Number(field, text, monotonic, lambda snapshot: int(getattr(snapshot, field)))


def _distribution(field: str, name: str, text: str) -> Distribution:
    def read(snapshot: TimerStatistics | PurgatoryStatistics) -> Histogram:
        histogram = getattr(snapshot, field)
        assert isinstance(histogram, Histogram)
        return histogram

    return Distribution(name, text, read)


TIMER_NUMBERS: Sequence[Number] = (
    _number("pending", "Deadlines that wait.", monotonic=False),
    _number("scheduled", "Deadlines ever armed."),
    _number("fired", "Deadlines ever fired."),
    _number("cancelled", "Deadlines ever cancelled or dropped."),
    _number("rescheduled", "Deadlines ever moved."),
    _number("wakeups", "Times the driver woke up."),
    _number("cascaded", "Times a deadline was filed again."),
    _number("callback_errors", "Callbacks that raised."),
)
TIMER_DISTRIBUTIONS: Sequence[Distribution] = (
    _distribution("lateness", "lateness_seconds", "Fired minus deadline."),
)
PURGATORY_NUMBERS: Sequence[Number] = (
    _number("pending", "Operations that wait.", monotonic=False),
    _number("watched", "Links between an operation and a key.", monotonic=False),
    _number("keys", "Keys with at least one link.", monotonic=False),
    _number("estimated_total", "Estimated operations in watch lists.", monotonic=False),
    _number("completed", "Operations completed by condition or force."),
    _number("expired", "Operations expired."),
    _number("cancelled", "Operations cancelled."),
    _number("failed", "Operations that raised."),
    _number("checks", "Times an operation was asked."),
    _number("purges", "Times the watch lists were purged."),
)
PURGATORY_DISTRIBUTIONS: Sequence[Distribution] = (
    _distribution("lateness", "lateness_seconds", "Expired minus deadline."),
    _distribution("durations", "duration_seconds", "Completed minus created."),
)


@dataclass(frozen=True, slots=True)
class Subject:
    """One timer or purgatory and what it is called in the metrics.

    Attributes:
        prefix: `aiowheel_timer` or `aiowheel_purgatory`.
        label: The value of the label `name`.
        snapshot: Reads its statistics.
        closed: Whether it is over, so that another may have its name.
        numbers: What to report of it.
        distributions: What histograms to report of it.
    """

    prefix: str
    label: str
    snapshot: Callable[[], TimerStatistics | PurgatoryStatistics]
    closed: Callable[[], bool]
    numbers: Sequence[Number]
    distributions: Sequence[Distribution]

    def read(self) -> TimerStatistics | PurgatoryStatistics | None:
        """A snapshot; None of a timer not entered yet, which must not hide all the others."""
        try:
            return self.snapshot()
        except TimerClosedError:
            return None


def timer_subject(timer: Timer, label: str) -> Subject:
    """*timer*, called *label*."""

    def closed() -> bool:
        driver = timer._driver
        return driver is not None and driver.closed

    return Subject(
        "aiowheel_timer", label, timer.statistics, closed, TIMER_NUMBERS, TIMER_DISTRIBUTIONS
    )


def purgatory_subject(purgatory: Purgatory) -> Subject:
    """*purgatory*, called by its own name."""
    return Subject(
        "aiowheel_purgatory",
        purgatory.name,
        purgatory.statistics,
        lambda: purgatory.closed,
        PURGATORY_NUMBERS,
        PURGATORY_DISTRIBUTIONS,
    )


def enlist(subject: Subject, subjects: list[Subject]) -> None:
    """Add *subject*; where a closed one had its name, in that one's place.

    Of two samples of one name a monitoring system keeps the first, which would be the closed one's.

    Raises:
        ValueError: One that is not closed has the name.
    """
    for index, other in enumerate(subjects):
        if (other.prefix, other.label) == (subject.prefix, subject.label):
            if not other.closed():
                kind = subject.prefix.removeprefix("aiowheel_")
                raise ValueError(
                    f"a {kind} is reported as {subject.label!r} already: "
                    "close it first, or give the new one another name"
                )
            subjects[index] = subject
            return
    subjects.append(subject)


def cumulative(histogram: Histogram) -> list[tuple[float, int]]:
    """How many durations lie at or below each of `EDGES`; none above its edge by more than 6.25 %.

    A bucket of the fine histogram belongs to the first edge that its own upper edge does not pass.
    """
    fine = list(histogram.buckets())
    return [(edge, sum(count for upper, count in fine if upper <= edge)) for edge in EDGES]
