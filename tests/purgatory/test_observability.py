"""What a purgatory reports: counts, histograms, events, instruments."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator

import pytest
import structlog

from aiowheel import DelayedOperation, ManualTimer, Purgatory, PurgatoryFullError
from aiowheel._types import Delay, Drain
from aiowheel.abc import FinishedOperation, Instrument


class Gate(DelayedOperation[None]):
    """An operation that completes once it is opened, or raises."""

    def __init__(self, timeout: Delay | None = 30.0) -> None:
        super().__init__(timeout)
        self.open = False
        self.fail = False

    def try_complete(self) -> bool:
        """Return whether the gate is open."""
        return self.open

    def on_complete(self) -> None:
        """Raise if the test says so."""
        if self.fail:
            raise ZeroDivisionError


def watch(purgatory: Purgatory, *keys: object, timeout: Delay | None = 30.0) -> Gate:
    """Watch a new operation."""
    gate = Gate(timeout)
    purgatory.try_complete_else_watch(gate, keys)
    return gate


def end_in_every_way(purgatory: Purgatory, timer: ManualTimer) -> None:
    """Two operations complete; one expires, one is cancelled, one fails, one stays pending."""
    gates = [watch(purgatory, "k", number) for number in range(4)]
    watch(purgatory, "late", timeout=1.0)
    watch(purgatory, "pending")
    gates[0].open = True
    timer.advance(0.5)
    purgatory.check_and_complete("k")
    gates[1].force_complete()
    gates[2].cancel()
    gates[3].fail = True
    gates[3].force_complete()
    with pytest.raises(ExceptionGroup):
        timer.advance(0.5)


def test_statistics_count_every_end(purgatory: Purgatory, timer: ManualTimer) -> None:
    """Each operation counts once; the snapshot does not change afterwards."""
    end_in_every_way(purgatory, timer)

    statistics = purgatory.statistics()

    assert (statistics.completed, statistics.expired) == (2, 1)
    assert (statistics.cancelled, statistics.failed) == (1, 1)
    assert (statistics.pending, statistics.watched, statistics.keys) == (1, 1, 1)
    assert statistics.checks == 6 * 2 + 4
    assert statistics.estimated_total == 1
    assert statistics.purges == 0
    watch(purgatory, "more").force_complete()
    assert (statistics.completed, statistics.durations.count) == (2, 2)


class CallingKey:
    """A key whose hash runs code while the statistics are read, as another thread might."""

    def __init__(self) -> None:
        self.hook: Callable[[], object] = bool

    def __hash__(self) -> int:
        hook, self.hook = self.hook, bool
        hook()
        return 1


async def test_statistics_are_read_while_keys_come_and_go(purgatory: Purgatory) -> None:
    """A monitoring thread reads between two steps of the loop's thread."""
    keys = [CallingKey() for _ in range(3)]
    watch(purgatory, *keys)
    for key in keys:
        purgatory.wait_until({key: 1}, timeout=30)

    def hook() -> None:
        for number in range(100):
            watch(purgatory, number)
            purgatory.wait_until({number: 1}, timeout=30)

    keys[0].hook = hook

    assert purgatory.statistics().keys == 3
    assert purgatory.statistics().keys == 103


async def test_keys_are_counted_once_and_only_with_waiters(purgatory: Purgatory) -> None:
    """A key counts for a condition, a counter or both; a counter without waiters does not count."""

    def counted() -> int:
        keys = purgatory.statistics().keys
        assert keys == len(purgatory.top_keys(100))
        return keys

    gates = [watch(purgatory, "a", "b") for _ in range(2)]
    assert counted() == 2
    waits = [purgatory.wait_until({"b": 5, "c": 5}, timeout=30) for _ in range(2)]
    assert counted() == 3
    gates[0].cancel()
    assert counted() == 3
    gates[1].cancel()
    assert counted() == 2
    purgatory.advance("b", 5)
    assert counted() == 1
    watch(purgatory, "c")
    assert counted() == 1
    purgatory.advance("c", 5)
    assert [await each for each in waits] == [True, True]
    assert counted() == 1
    purgatory.wait_until({"b": 6, "d": 1}, timeout=30, mode="any")
    assert counted() == 3
    purgatory.cancel_for_key("d")
    purgatory.cancel_for_key("c")
    assert counted() == 0


async def test_a_key_counts_until_its_last_waiter_ends(purgatory: Purgatory) -> None:
    """A waiter that is cancelled takes only itself out of the count."""
    waits = [purgatory.wait_until({"k": 1, "other": 1}, 30) for _ in range(3)]
    counts: list[int] = []
    for operation in purgatory.pending():
        counts.append(purgatory.statistics().keys)
        operation.cancel()

    assert [*counts, purgatory.statistics().keys] == [2, 2, 2, 0]
    assert all(each.cancelled() for each in waits)


class ChangingKey:
    """A key whose hash changes."""

    shift = 0

    def __hash__(self) -> int:
        return 1 + self.shift


async def test_an_empty_list_of_a_changed_key_does_not_count(purgatory: Purgatory) -> None:
    """The list is not found when its last operation ends; the key counts for its counter."""
    key = ChangingKey()
    gate = watch(purgatory, key)
    watch(purgatory, "other")
    key.shift = 1
    gate.cancel()
    key.shift = 0
    assert purgatory.statistics().keys == 1

    purgatory.wait_until({key: 1}, 30)

    assert purgatory.statistics().keys == len(purgatory.top_keys()) == 2


def test_histograms_report_durations_and_lateness(purgatory: Purgatory, timer: ManualTimer) -> None:
    """Durations cover completed operations, lateness covers expired ones, both in seconds."""
    for seconds in (1, 2, 3):
        gate = watch(purgatory, "k")
        timer.advance(seconds)
        gate.force_complete()
    watch(purgatory, "k", timeout=0.0105)  # half a tick beyond the tick of the deadline
    timer.advance(1)

    statistics = purgatory.statistics()

    assert (statistics.durations.count, statistics.durations.maximum) == (3, 3.0)
    assert statistics.durations.quantile(0.5) == pytest.approx(2.0, rel=0.0625)
    assert statistics.lateness.count == 1
    assert statistics.lateness.maximum == pytest.approx(0.0005)


@pytest.mark.parametrize("delay", [60, None])
async def test_operations_that_closing_ends_early_have_no_lateness(
    purgatory: Purgatory, timer: ManualTimer, delay: Delay | None
) -> None:
    """They count as expired, but their deadline did not end them."""
    watch(purgatory, "k", timeout=1)
    timer.advance(1)
    watch(purgatory, "k", timeout=delay)
    await purgatory.aclose()

    statistics = purgatory.statistics()

    assert statistics.expired == 2
    assert (statistics.lateness.count, statistics.lateness.maximum) == (1, 0.0)


def test_top_keys_have_most_watchers(purgatory: Purgatory) -> None:
    """The keys come in descending order, as many as requested."""
    for number in range(10):
        for _ in range(number + 1):
            watch(purgatory, number)

    assert purgatory.top_keys(3) == [(9, 10), (8, 9), (7, 8)]
    assert purgatory.top_keys(0) == []
    for number in range(10, 20):
        watch(purgatory, number)
    assert len(purgatory.top_keys()) == 10


async def test_the_waiters_of_a_key_are_those_of_its_condition_and_its_counter(
    purgatory: Purgatory,
) -> None:
    """Each is counted once; the first ones come with their thresholds."""
    gates = [watch(purgatory, "k") for _ in range(3)]
    for least in (5, 7, 6):
        purgatory.wait_until({"k": least}, 30)
    purgatory.advance("k", 5)

    assert purgatory.waiters("k") == 5
    assert purgatory.waiters("unknown") == 0
    first = purgatory.first_waiters("k", 2)
    assert [operation for operation, _ in first[:2]] == gates[:2]
    assert [threshold for _, threshold in first] == [None, None, 7, 6]
    assert len(purgatory.first_waiters("k", 9)) == 5
    assert purgatory.first_waiters("k", 0) == purgatory.first_waiters("unknown", 9) == []
    purgatory.cancel_for_key("k")
    assert purgatory.waiters("k") == 0
    assert purgatory.value("k") == 5
    assert purgatory.value("unknown") is None


@pytest.mark.parametrize(
    ("start", "stop", "keys"),
    [
        (0, 9, ["a", "b", "c", "b", "d"]),
        (0, 2, ["a", "b"]),
        (2, 4, ["c", "b"]),
        (3, 4, ["b"]),
        (4, 5, ["d"]),
        (1, 1, []),
        (5, 9, []),
        (0, 0, []),
    ],
)
async def test_keys_are_read_in_parts(
    purgatory: Purgatory, start: int, stop: int, keys: list[str]
) -> None:
    """Keys with watchers come first, then those with counters."""
    watch(purgatory, "a", "b", "c")
    purgatory.wait_until({"b": 1, "d": 1}, 30)

    assert purgatory.key_range(start, stop) == (keys, 5)


class Recorder(Instrument):
    """An instrument that records its calls."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, str, object, int]] = []

    def operation_finished(self, purgatory: str, operation: FinishedOperation) -> None:
        """Read every field that an instrument may read."""
        assert operation.created <= operation.finished
        self.seen.append(
            (purgatory, str(operation.outcome), operation.completed_by, operation.checks)
        )


def test_instruments_are_called_once_for_every_operation(timer: ManualTimer) -> None:
    """This holds for every kind of end, first tries included."""
    recorder = Recorder()
    purgatory = Purgatory("room", timer=timer, instruments=[recorder])

    end_in_every_way(purgatory, timer)
    at_once = Gate()
    at_once.open = True
    purgatory.try_complete_else_watch(at_once, ["k"])

    assert recorder.seen == [
        ("room", "Outcome.COMPLETED", "k", 3),
        ("room", "Outcome.COMPLETED", None, 3),
        ("room", "Outcome.CANCELLED", None, 3),
        ("room", "Outcome.FAILED", None, 3),
        ("room", "Outcome.EXPIRED", None, 2),
        ("room", "Outcome.COMPLETED", None, 1),
    ]


def test_an_instrument_that_raises_stops_no_operation(timer: ManualTimer) -> None:
    """The operation ends as usual, the next instrument is called, the error is reported."""

    class Broken(Instrument):
        def operation_finished(self, purgatory: str, operation: FinishedOperation) -> None:
            raise ZeroDivisionError

    recorder = Recorder()
    purgatory = Purgatory("room", timer=timer, instruments=[Broken(), recorder])
    gates = [watch(purgatory, "k") for _ in range(2)]
    gates[0].open = gates[1].open = True

    assert purgatory.check_and_complete("k") == 2

    assert len(recorder.seen) == 2
    with pytest.raises(ExceptionGroup) as caught:
        timer.advance(0)
    assert len(caught.value.exceptions) == 2


# --- events --------------------------------------------------------------------------------------


@pytest.fixture
def events() -> Iterator[list[structlog.typing.EventDict]]:
    """The events that an application with a configured structlog receives."""
    structlog.configure(cache_logger_on_first_use=False)
    try:
        with structlog.testing.capture_logs() as captured:
            yield captured
    finally:
        structlog.reset_defaults()


def test_an_event_for_every_filling(
    events: list[structlog.typing.EventDict], timer: ManualTimer
) -> None:
    """There is one event while the purgatory stays full, and another after it was emptier."""
    purgatory = Purgatory("small", timer=timer, max_pending=1)

    for _ in range(2):
        gate = watch(purgatory, "k")
        for _ in range(3):
            with pytest.raises(PurgatoryFullError):
                watch(purgatory, "k")
        gate.cancel()

    full = {
        "event": "aiowheel.purgatory_full",
        "purgatory": "small",
        "max_pending": 1,
        "log_level": "warning",
    }
    assert events == [full, full]


@pytest.mark.parametrize(
    ("drain", "level"), [("expire", "info"), ("cancel", "warning"), ("wait", "warning")]
)
async def test_an_event_for_closing_with_pending(
    drain: Drain, level: str, events: list[structlog.typing.EventDict], timer: ManualTimer
) -> None:
    """There is one event with their number, and none without pending operations.

    If they expire, they end as at their timeouts: an orderly stop is no warning.
    """
    quiet, crowded = Purgatory("quiet", timer=timer), Purgatory("crowded", timer=timer)
    gates = [watch(crowded, "a", "b"), watch(crowded, "a")]

    await quiet.aclose()
    closing = asyncio.ensure_future(crowded.aclose(drain=drain))
    await asyncio.sleep(0)
    for gate in gates:
        gate.cancel()  # otherwise "wait" would wait for them
    await closing
    await crowded.aclose()
    assert crowded.statistics().purges == 0  # without lazy purging, the lists are empty already

    assert events == [
        {
            "event": "aiowheel.purgatory_closed_with_pending",
            "purgatory": "crowded",
            "pending": 2,
            "drain": drain,
            "log_level": level,
        }
    ]


def test_an_event_for_a_failed_operation(
    events: list[structlog.typing.EventDict], purgatory: Purgatory, timer: ManualTimer
) -> None:
    """The event has the operation and its keys."""
    gate = watch(purgatory, "k")
    gate.fail = True
    gate.force_complete()

    assert events == [
        {
            "event": "aiowheel.operation_failed",
            "purgatory": "test",
            "operation": "<Gate failed keys=('k',)>",
            "log_level": "warning",
        }
    ]
    with pytest.raises(ExceptionGroup):
        timer.advance(0)


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
def test_an_operation_that_ends_the_program_is_seen(
    events: list[structlog.typing.EventDict], timer: ManualTimer, error: type[BaseException]
) -> None:
    """Statistics, instruments and the log agree, and the exception still arrives."""

    class Ending(Gate):
        def on_complete(self) -> None:
            raise error

    recorder = Recorder()
    purgatory = Purgatory("room", timer=timer, instruments=[recorder])
    purgatory.try_complete_else_watch(Ending(1.0), ["k"])

    with pytest.raises(error):
        timer.advance(1)

    assert purgatory.statistics().failed == 1
    assert recorder.seen == [("room", "Outcome.FAILED", None, 2)]
    assert [event["event"] for event in events] == ["aiowheel.operation_failed"]


def test_events_are_silent_without_a_configured_logger(
    capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture, timer: ManualTimer
) -> None:
    """Nothing is printed; the standard library's logger receives the events."""
    assert not structlog.is_configured()
    purgatory = Purgatory("small", timer=timer, max_pending=1)
    watch(purgatory, "k")

    with caplog.at_level(logging.WARNING, "aiowheel"), pytest.raises(PurgatoryFullError):
        watch(purgatory, "k")

    assert capsys.readouterr() == ("", "")
    assert [record.name for record in caplog.records] == ["aiowheel"]
    assert caplog.messages == ["aiowheel.purgatory_full purgatory='small' max_pending=1"]
