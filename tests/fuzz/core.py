"""Fuzz targets: seconds to nanoseconds and back, the wheel beside a heap, tokens of counters."""

from __future__ import annotations

import math
from collections.abc import Callable
from copy import copy
from datetime import timedelta
from fractions import Fraction
from typing import Any

import numpy as np

from aiowheel._units import (
    FOREVER,
    checked_seconds,
    clock_to_ns,
    delay_to_ns,
    ns_to_alarm,
    ns_to_seconds,
)
from aiowheel.shared._tokens import parsed_token, token_of
from aiowheel.wheel import HeapWheel, TimerEntry, TimingWheel
from aiowheel.wheel._heap import HeapEntry
from aiowheel.wheel._wheel import REFILES_PER_STEP

from .draw import Draw, check_reason

LATEST = 2**61 - 1  # the latest time of a wheel
#: No numbers of seconds, although most of them convert to a float.
NO_SECONDS = (None, True, "1", np.bool_(True), np.str_("1"), np.timedelta64(1, "s"))


def units(data: bytes) -> None:
    """Seconds of every type convert to the nearest nanosecond; an alarm is never early."""
    draw = Draw(data)
    seconds = _seconds(draw)
    least, most = draw.number(-3, 3), draw.number(-3, 3)
    try:
        ns = int(delay_to_ns("delay", seconds))
    except ValueError as error:
        assert isinstance(seconds, float)
        assert math.isnan(seconds)
        check_reason(error, "NaN")
        return
    except TypeError as error:
        assert any(seconds is each for each in NO_SECONDS)
        check_reason(error, "delay must be a number of seconds")
        return
    _check_nanoseconds(seconds, ns)
    try:
        checked = checked_seconds("delay", seconds, least, most)
    except ValueError as error:
        check_reason(error, f"delay must be from {least} to {most} seconds")
        assert not least <= ns_to_seconds(ns) <= most
    else:
        assert least <= checked <= most
    _check_alarm(draw.number(-FOREVER, FOREVER))


def _seconds(draw: Draw) -> object:
    """Return a number of seconds of any type, or something else."""
    kind = draw.number(0, 5)
    if kind == 1:
        return draw.number(-(2**80), 2**80)
    if kind == 2:
        return timedelta(microseconds=draw.number(-(10**17), 10**17))
    if kind == 3:
        return Fraction(draw.number(-(2**50), 2**50), draw.number(1, 2**20))
    if kind == 4:
        return draw.choice((-1, 1)) * 10 ** draw.number(0, 400)
    return draw.choice(NO_SECONDS) if kind == 5 else draw.real()


def _check_nanoseconds(seconds: object, ns: int) -> None:
    assert -FOREVER <= ns <= FOREVER
    value: Any = seconds.total_seconds() if isinstance(seconds, timedelta) else seconds
    if abs(value) >= 2.305843009e9:
        assert abs(ns) == FOREVER
        assert (ns > 0) == (value > 0)
    else:
        exact = Fraction(float(value)) * 10**9
        assert abs(ns - exact) <= Fraction(1, 2) + abs(exact) / 2**52
    _check_alarm(ns)


def _check_alarm(ns: int) -> None:
    assert clock_to_ns(ns_to_alarm(ns)) >= ns
    seconds = ns_to_seconds(ns)
    assert math.isinf(seconds) == (ns == FOREVER)
    assert seconds == math.inf or abs(int(clock_to_ns(seconds)) - ns) <= 1 + (abs(ns) >> 52)


def wheel(data: bytes) -> None:
    """For any calls the wheel and a heap return the same entries, and the structure is sound."""
    draw = Draw(data)
    tick = draw.choice((1, 2, 7, 10, 1000, 1_000_000))
    size = draw.choice((2, 3, 4, 7, 20, 64, 256))
    start = draw.number(-(2**55), 2**55)
    Pair(TimingWheel(tick, size, start), HeapWheel(tick, size, start), tick * size).run(draw)


class Pair:
    """A wheel and a heap that receive the same calls."""

    def __init__(self, wheel: TimingWheel, heap: HeapWheel, block: int) -> None:
        self._wheel = wheel
        self._heap = heap
        self._block = block
        self._entries: list[tuple[TimerEntry, HeapEntry]] = []
        self._number = 0
        self._observed = False  # whether time has moved past buckets that no pass has visited
        self._calls: list[Callable[[Draw], None]] = [
            *(self._schedule, self._cancel, self._move, self._advance, self._step, self._arm),
            *(self._observe, self._pass, self._sort, self._look, self._misuse, self._flood),
            self._clear,
        ]

    def run(self, draw: Draw) -> None:
        """Make the calls that *draw* chooses."""
        while draw.more() and self._number < 200:
            self._number += 1
            draw.choice(self._calls)(draw)
            assert len(self._wheel) == len(self._heap)
            assert self._wheel.now == self._heap.now
        self._wheel.check_invariants()
        self._compare(LATEST)

    def _time(self, draw: Draw) -> int:
        blocks = int(self._block ** draw.number(0, 3)) * draw.number(0, 3)
        return min(self._heap.now + blocks + draw.number(-3, 3), LATEST)

    def _schedule(self, draw: Draw) -> None:
        self._add(self._time(draw))

    def _add(self, deadline: int) -> None:
        payload = self._number
        self._entries.append(
            (self._wheel.schedule(deadline, payload), self._heap.schedule(deadline, payload))
        )

    def _cancel(self, draw: Draw) -> None:
        if self._entries:
            entry, twin = self._entries.pop(draw.number(0, len(self._entries) - 1))
            was_pending = twin.cancel()
            assert entry.cancel() == was_pending
            assert not (was_pending and entry.payload is not None)
            assert "finished" in repr(entry)

    def _move(self, draw: Draw) -> None:
        if self._entries:
            entry, twin = draw.choice(self._entries)
            deadline = self._time(draw)
            self._wheel.reschedule(entry, deadline)
            self._heap.reschedule(twin, deadline)

    def _advance(self, draw: Draw) -> None:
        self._compare(max(self._heap.now, self._time(draw)))

    def _step(self, _: Draw) -> None:
        upcoming, earliest = self._wheel.next_expiration(), self._heap.next_expiration()
        assert (upcoming is None) == (earliest is None)
        if upcoming is not None and earliest is not None:
            assert upcoming <= earliest
            assert self._observed or upcoming >= self._wheel.now
            # The last tick may end after the latest time.
            self._compare(min(max(upcoming, self._wheel.now), LATEST))

    def _arm(self, draw: Draw) -> None:
        """Add an entry as a driver that has slept; the wheel's time may move."""
        now = max(self._heap.now, self._time(draw))
        entry = TimerEntry(self._time(draw), self._number)
        self._observed = True
        due = self._wheel.arm(entry, now)
        assert self._heap.now <= self._wheel.now <= now
        assert due == self._wheel.due_at(entry)
        assert due == self._wheel.now or 0 <= entry.late_at(due) < self._wheel.tick
        self._heap.now = self._wheel.now
        self._entries.append((entry, self._heap.schedule(entry.deadline, self._number)))

    def _observe(self, draw: Draw) -> None:
        now = self._time(draw)
        self._observed = True
        self._wheel.observe_now(now)
        self._heap.now = max(self._heap.now, now)

    def _pass(self, draw: Draw) -> None:
        """Return due entries one by one, as a driver; one may be taken before its turn."""
        now = max(self._heap.now, self._time(draw))
        self._wheel.open_pass(now)
        entry, twin = draw.choice(self._entries) if self._entries else (None, None)
        if entry is not None and twin is not None and entry.pending and entry.deadline <= now:
            self._wheel.take(entry)
            assert twin.cancel()
        entries: list[TimerEntry] = []
        while self._wheel.pass_is_open():
            popped = self._wheel.pop_due()
            entries += [] if popped is None else [popped]
        self._check_returned(entries, now)

    def _sort(self, _: Draw) -> None:
        self._wheel.sort_overdue()

    def _look(self, draw: Draw) -> None:
        """The wheel counts its entries in several ways."""
        most = draw.number(1, 255)
        rings = self._wheel.occupancy(most)
        level, slot = draw.number(0, len(rings) - 1), draw.number(0, len(rings[0].counts) - 1)
        assert self._wheel.count_bucket(level, slot, most) == rings[level].counts[slot]
        assert sum(sum(ring.counts) for ring in rings) <= len(self._heap)
        assert self._wheel.statistics().levels == len(rings)
        assert self._wheel.statistics().pending == len(self._wheel.pending()) == len(self._heap)

    def _misuse(self, draw: Draw) -> None:
        """A wrong call raises, and changes nothing."""
        call, expected = draw.choice(WRONG_CALLS)
        try:
            call(self._wheel)
        except expected as error:
            check_reason(error)
        else:
            raise AssertionError("a wrong call must raise")

    def _flood(self, _: Draw) -> None:
        """Fill one bucket with more entries than one step of a pass files again; once per input."""
        self._calls.remove(self._flood)
        deadline = min(self._heap.now + self._block * 3 - 1, LATEST)
        for _number in range(REFILES_PER_STEP + 1):
            self._add(deadline)

    def _clear(self, _: Draw) -> None:
        ours = sorted(entry.deadline for entry in self._wheel.clear())
        twins = [twin for _, twin in self._entries if twin.pending]
        assert ours == sorted(twin.deadline for twin in twins)
        assert all(twin.cancel() for twin in twins)
        assert not any(entry.pending for entry, _ in self._entries)

    def _compare(self, now: int) -> None:
        self._check_returned(self._wheel.advance(now), now)

    def _check_returned(self, entries: list[TimerEntry], now: int) -> None:
        twins = self._heap.advance(now)
        assert all(entry.deadline <= now and not entry.pending for entry in entries)
        ours = sorted(entry.deadline for entry in entries)
        assert ours == sorted(twin.deadline for twin in twins)


OTHER = TimingWheel()
FOREIGN = OTHER.schedule(0)
#: Calls that raise, and what they raise.
WRONG_CALLS: tuple[tuple[Callable[[Any], object], type[Exception]], ...] = (
    (lambda _: TimingWheel(0), ValueError),
    (lambda _: TimingWheel(counts=0), TypeError),  # type: ignore[arg-type]
    (copy, TypeError),
    (lambda _: copy(TimerEntry(0, None)), TypeError),
    (lambda wheel: wheel.schedule(1.0), TypeError),
    (lambda wheel: wheel.schedule(2**61), OverflowError),
    (lambda wheel: wheel.reschedule(None, 0), TypeError),
    (lambda wheel: wheel.reschedule(FOREIGN, 0), ValueError),
    (lambda wheel: wheel.advance(True), TypeError),
    (lambda wheel: wheel.advance(wheel.now - 1), ValueError),
    (lambda wheel: wheel.advance(2**61), OverflowError),
    (lambda wheel: wheel.occupancy(0), ValueError),
    (lambda wheel: wheel.count_bucket(0, -1, 1), ValueError),
)


def tokens(data: bytes) -> None:
    """Parsing a token returns its parts, or raises; only text is a token."""
    draw = Draw(data)
    kind = draw.number(0, 3)
    text = draw.rest().decode("utf-8", "surrogateescape")
    token = text if kind < 2 else (data, None)[kind - 2]
    try:
        epoch, value = parsed_token(token)
    except ValueError as error:
        check_reason(error, "token must be")
        return
    except TypeError as error:
        check_reason(error, "token must be a str")
        assert kind >= 2
        return
    assert kind < 2
    assert epoch
    assert parsed_token(token_of(epoch, None if value < 0 else value)) == (epoch, value)
