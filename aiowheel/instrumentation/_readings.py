"""Metrics of timers, purgatories, shared counters and durable timers. Rank 4; needs no extra."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from threading import Lock
from time import monotonic
from typing import Final, NamedTuple, TypeAlias

from aiowheel._arguments import checked_str, safe_repr
from aiowheel.durable import DurableStatistics, DurableTimers
from aiowheel.errors import TimerClosedError
from aiowheel.purgatory import Purgatory, PurgatoryStatistics
from aiowheel.shared import SharedCounters, SharedStatistics
from aiowheel.timer import Histogram, Timer, TimerStatistics

Statistics: TypeAlias = TimerStatistics | PurgatoryStatistics | SharedStatistics | DurableStatistics

#: Seconds for which a closed subject is still reported. A monitoring system that collects every
#: minute reads its last counts, and so does a second one that collects a little later.
CLOSED_FOR: Final = 120.0

#: Maximum number of names without a reported subject whose counts are kept.
KEPT_NAMES: Final = 10_000

#: Upper edges of the published histograms, in seconds.
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
        name: The name of the metric without its prefix.
        text: The description of the metric.
        monotonic: Whether the number only grows.
        read: Reads the number from a snapshot.
    """

    name: str
    text: str
    monotonic: bool
    read: Callable[[Statistics], int]


@dataclass(frozen=True, slots=True)
class Distribution:
    """One metric that is a histogram of seconds; its attributes are those of `Number`."""

    name: str
    text: str
    read: Callable[[Statistics], Histogram]


def _number(field: str, text: str, *, monotonic: bool = True, name: str | None = None) -> Number:
    return Number(name or field, text, monotonic, lambda snapshot: int(getattr(snapshot, field)))


def _distribution(field: str, name: str, text: str) -> Distribution:
    def read(snapshot: Statistics) -> Histogram:
        histogram = getattr(snapshot, field)
        assert isinstance(histogram, Histogram)
        return histogram

    return Distribution(name, text, read)


_TIMER_NUMBERS: Sequence[Number] = (
    _number("pending", "Pending deadlines.", monotonic=False),
    _number("scheduled", "Deadlines armed."),
    _number("fired", "Deadlines fired."),
    _number("cancelled", "Deadlines cancelled or dropped."),
    _number("rescheduled", "Deadlines moved."),
    _number("wakeups", "Wake-ups of the driver."),
    _number("cascaded", "Deadlines moved to a finer level of the wheel."),
    _number("callback_errors", "Callbacks that raised."),
)
_TIMER_DISTRIBUTIONS: Sequence[Distribution] = (
    _distribution("lateness", "lateness_seconds", "Fired minus deadline."),
)
_PURGATORY_NUMBERS: Sequence[Number] = (
    _number("pending", "Pending operations.", monotonic=False),
    _number("watched", "Links between pending operations and keys.", monotonic=False),
    _number("keys", "Keys with at least one link.", monotonic=False),
    _number(
        "estimated_total",
        "Estimated operations in watch lists.",
        monotonic=False,
        name="estimated_operations",  # Prometheus reserves `_total` for counters
    ),
    _number("completed", "Operations completed by their condition or by force."),
    _number("expired", "Operations expired."),
    _number("cancelled", "Operations cancelled."),
    _number("failed", "Operations that raised."),
    _number("checks", "Checks of an operation's condition."),
    _number("purges", "Purges of the watch lists."),
)
_PURGATORY_DISTRIBUTIONS: Sequence[Distribution] = (
    _distribution(
        "lateness",
        "lateness_seconds",
        "Expired minus deadline, without operations that closing ended before it.",
    ),
    _distribution("durations", "duration_seconds", "Completed minus created."),
)
_SHARED_NUMBERS: Sequence[Number] = (
    _number("keys", "Keys whose values this process keeps up to date.", monotonic=False),
    _number("waiting", "Pending waits for counters.", monotonic=False),
    _number("publishes", "Calls of advance and check_and_complete."),
    _number("writes", "Writes to the store."),
    _number("retries", "Writes and reads that were repeated."),
    _number("hints", "Values that arrived as hints."),
    _number("gaps", "Times that hints may have been lost."),
    _number("reads", "Reads of the store."),
    _number("epochs", "Times that the store had lost its history."),
)

_DURABLE_NUMBERS: Sequence[Number] = (
    _number("resident", "Timers in memory that have not begun to fire.", monotonic=False),
    _number("ready", "Timers in memory that are due.", monotonic=False),
    _number("in_flight", "Fires whose end is not committed.", monotonic=False),
    _number(
        "partitions",
        "Partitions that this process owns; 0 after its lease has ended.",
        monotonic=False,
    ),
    _number("scheduled", "Timers written, also in transactions that were rolled back."),
    _number("cancelled", "Timers cancelled."),
    _number("rescheduled", "Timers moved."),
    _number("fired", "Fires begun, repeats and retries included."),
    _number("acknowledged", "Fires whose success was committed."),
    _number("retried", "Fires that failed and are tried again."),
    _number("dead", "Fires that became dead letters."),
    _number("skipped", "Missed occurrences that were skipped."),
    _number("stale", "Ends of fires that were refused."),
    _number("commits", "Group commits."),
    _number("committed", "Operations in group commits."),
    _number("lease_changes", "Partitions gained and lost."),
    _number("store_errors", "Calls of the store that failed."),
)
_DURABLE_DISTRIBUTIONS: Sequence[Distribution] = (
    _distribution("lateness", "lateness_seconds", "Begun minus due."),
    _distribution("commit_times", "commit_seconds", "Duration of a group commit."),
)


class Readings(NamedTuple):
    """The metrics of one kind of subject."""

    kind: str  # for errors
    numbers: Sequence[Number]
    distributions: Sequence[Distribution]


#: The metrics of each kind of subject, by the prefix of their names.
READINGS: Final[Mapping[str, Readings]] = {
    "aiowheel_timer": Readings("timer", _TIMER_NUMBERS, _TIMER_DISTRIBUTIONS),
    "aiowheel_durable": Readings("set of durable timers", _DURABLE_NUMBERS, _DURABLE_DISTRIBUTIONS),
    "aiowheel_purgatory": Readings("purgatory", _PURGATORY_NUMBERS, _PURGATORY_DISTRIBUTIONS),
    "aiowheel_shared": Readings("set of shared counters", _SHARED_NUMBERS, ()),
}


@dataclass(frozen=True, slots=True)
class Subject:
    """One timer, purgatory, set of shared counters or `DurableTimers`, and its name in the metrics.

    Attributes:
        of: The timer, purgatory, shared counters or durable timers.
        prefix: One of `READINGS`.
        label: The value of the label `name`.
        snapshot: Reads the statistics.
        closed: Returns whether the subject is closed; another subject can then take its name.
        ended: Returns whether the subject is closed for good and has nothing left to do.
        earlier: The counts of the closed subjects that had the name before, by name of the number.
    """

    of: object
    prefix: str
    label: str
    snapshot: Callable[[], Statistics]
    closed: Callable[[], bool]
    ended: Callable[[], bool]
    earlier: Mapping[str, int] = field(default_factory=dict[str, int])

    def read(self) -> Statistics | None:
        """Return a snapshot, or None for a timer that was not entered yet.

        It does not raise, because an error would hide the metrics of all other subjects.
        """
        try:
            return self.snapshot()
        except TimerClosedError:
            return None

    def totals(self) -> Mapping[str, int]:
        """Return the monotonic numbers, with those of the earlier subjects."""
        snapshot = self.read()
        if snapshot is None:
            return self.earlier
        return {
            number.name: self.total(number, snapshot)
            for number in READINGS[self.prefix].numbers
            if number.monotonic
        }

    def total(self, number: Number, snapshot: Statistics) -> int:
        """Return *number* of *snapshot* plus that of the earlier subjects."""
        return number.read(snapshot) + self.earlier.get(number.name, 0)


#: The prefix and the name of a subject.
_Key: TypeAlias = tuple[str, str]


def timer_subject(timer: Timer, label: str) -> Subject:
    """Return the subject of *timer*, with the name *label*."""
    if not isinstance(timer, Timer):  # pyright: ignore[reportUnnecessaryIsInstance] - users pass anything
        raise TypeError(f"timer must be a Timer, got {safe_repr(timer)}")
    label = checked_str("name", label)
    return _subject(timer, "aiowheel_timer", label, timer.statistics, lambda: timer.closed)


def purgatory_subject(purgatory: Purgatory) -> Subject:
    """Return the subject of *purgatory*, with its own name."""
    if not isinstance(purgatory, Purgatory):  # pyright: ignore[reportUnnecessaryIsInstance] - users pass anything
        raise TypeError(f"purgatory must be a Purgatory, got {safe_repr(purgatory)}")
    return Subject(
        purgatory,
        "aiowheel_purgatory",
        purgatory.name,
        purgatory.statistics,
        closed=lambda: purgatory.closed,
        # `aclose(drain="wait")` waits for the pending operations after it has begun to close.
        ended=lambda: purgatory.closed and len(purgatory) == 0,
    )


def shared_subject(shared: SharedCounters) -> Subject:
    """Return the subject of *shared*, with the name of its purgatory."""
    if not isinstance(shared, SharedCounters):  # pyright: ignore[reportUnnecessaryIsInstance] - users pass anything
        raise TypeError(f"shared must be a SharedCounters, got {safe_repr(shared)}")
    return _subject(
        shared, "aiowheel_shared", shared.name, shared.statistics, lambda: shared.closed
    )


def durable_subject(timers: DurableTimers, label: str) -> Subject:
    """Return the subject of *timers*, with the name *label*."""
    if not isinstance(timers, DurableTimers):  # pyright: ignore[reportUnnecessaryIsInstance] - users pass anything
        raise TypeError(f"timers must be a DurableTimers, got {safe_repr(timers)}")
    label = checked_str("name", label)
    return Subject(
        timers,
        "aiowheel_durable",
        label,
        timers.statistics,
        closed=lambda: timers.closed,
        ended=lambda: False,  # they may be entered again
    )


def _subject(
    of: object,
    prefix: str,
    label: str,
    snapshot: Callable[[], Statistics],
    closed: Callable[[], bool],
) -> Subject:
    return Subject(of, prefix, label, snapshot, closed=closed, ended=closed)


class Subjects:
    """The subjects that one collector or one meter reports, by prefix and name.

    A closed subject is removed `CLOSED_FOR` seconds after a call has found it closed, so that
    short-lived subjects do not accumulate. Only its counts are kept, for the next subject with its
    name. Durable timers stay, because they can be entered again.

    All methods may be called from any thread, because monitoring systems collect in threads of
    their own.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._reported: dict[_Key, Subject] = {}
        self._closed_since: dict[_Key, float] = {}
        self._counts: dict[_Key, Mapping[str, int]] = {}  # of removed subjects; oldest first

    def add(self, subject: Subject) -> None:
        """Report *subject*, in the place of a closed one with the same name.

        A monitoring system keeps the first of two samples with one name, which would be that of the
        closed subject. An object that has the name already is not added again: durable timers can
        be entered several times.

        Raises:
            ValueError: Another subject that is not closed has the name.
        """
        key = subject.prefix, subject.label
        with self._lock:
            self._remove_closed()
            other = self._reported.get(key)
            if other is None:
                earlier = self._counts.pop(key, {})
            elif other.of is subject.of:
                return
            elif other.closed():
                earlier = other.totals()
            else:
                raise ValueError(
                    f"a {READINGS[subject.prefix].kind} is reported as {subject.label!r} already: "
                    "close it first, or give the new one another name"
                )
            self._closed_since.pop(key, None)
            self._reported[key] = replace(subject, earlier=earlier)

    def reported(self) -> list[Subject]:
        """Return the subjects to report now, in the order in which they were added."""
        with self._lock:
            self._remove_closed()
            return list(self._reported.values())

    def _remove_closed(self) -> None:
        now = monotonic()
        for key, subject in list(self._reported.items()):
            if not subject.ended():
                self._closed_since.pop(key, None)
            elif now - self._closed_since.setdefault(key, now) > CLOSED_FOR:
                del self._reported[key], self._closed_since[key]
                self._keep_counts(key, subject)

    def _keep_counts(self, key: _Key, subject: Subject) -> None:
        """Keep the counts of a removed subject, because a sum must not fall (OpenTelemetry)."""
        self._counts[key] = subject.totals()
        if len(self._counts) > KEPT_NAMES:
            del self._counts[next(iter(self._counts))]


def cumulative(histogram: Histogram) -> list[tuple[float, int]]:
    """Return the number of durations at or below each of `EDGES`.

    Each bucket of the fine histogram counts for the first edge at or above its own upper edge. The
    number may leave out durations that are at most 4 % below the edge, because the edges of the
    fine histogram at or below `EDGES` are that close.
    """
    fine = list(histogram.buckets())
    return [(edge, sum(count for upper, count in fine if upper <= edge)) for edge in EDGES]
