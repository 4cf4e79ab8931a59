"""Fuzz targets: seconds to nanoseconds and back, the wheel beside a heap, tokens of counters."""

from __future__ import annotations

import math
from datetime import timedelta
from fractions import Fraction

from aiowheel._units import (
    FOREVER,
    clock_to_ns,
    delay_to_ns,
    ns_to_alarm,
    ns_to_seconds,
)
from aiowheel.shared._tokens import parsed_token, token_of
from aiowheel.wheel import HeapWheel, TimerEntry, TimingWheel
from aiowheel.wheel._heap import HeapEntry

from .draw import Draw, check_reason

LATEST = 2**61 - 1  # the latest time of a wheel


def units(data: bytes) -> None:
    """Seconds of every type convert to the nearest nanosecond; an alarm is never early."""
    draw = Draw(data)
    kind = draw.number(0, 2)
    seconds: float | timedelta = draw.real()
    if kind == 1:
        seconds = draw.number(-(2**80), 2**80)
    elif kind == 2:
        seconds = timedelta(microseconds=draw.number(-(10**17), 10**17))
    if isinstance(seconds, float) and math.isnan(seconds):
        try:
            delay_to_ns("delay", seconds)
        except ValueError as error:
            check_reason(error, "NaN")
            return
        raise AssertionError("NaN is no number of seconds")
    _check_nanoseconds(seconds, int(delay_to_ns("delay", seconds)))


def _check_nanoseconds(seconds: float | timedelta, ns: int) -> None:
    assert -FOREVER <= ns <= FOREVER
    value = seconds.total_seconds() if isinstance(seconds, timedelta) else seconds
    if math.isinf(value) or abs(value) >= 2.305843009e9:
        assert abs(ns) == FOREVER
        assert (ns > 0) == (value > 0)
        return
    exact = Fraction(value) * 10**9
    assert abs(ns - exact) <= Fraction(1, 2) + abs(exact) / 2**52
    assert abs(int(clock_to_ns(ns_to_seconds(ns))) - ns) <= max(1, abs(ns) >> 52)
    assert clock_to_ns(ns_to_alarm(ns)) >= ns


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

    def run(self, draw: Draw) -> None:
        """Make the calls that *draw* chooses."""
        calls = (self._schedule, self._cancel, self._move, self._advance, self._step)
        while draw.more() and self._number < 200:
            self._number += 1
            draw.choice(calls)(draw)
            assert len(self._wheel) == len(self._heap)
        self._wheel.check_invariants()
        self._compare(LATEST)

    def _time(self, draw: Draw) -> int:
        blocks = int(self._block ** draw.number(0, 3)) * draw.number(0, 3)
        return min(self._heap.now + blocks + draw.number(-3, 3), LATEST)

    def _schedule(self, draw: Draw) -> None:
        deadline = self._time(draw)
        payload = self._number
        self._entries.append(
            (self._wheel.schedule(deadline, payload), self._heap.schedule(deadline, payload))
        )

    def _cancel(self, draw: Draw) -> None:
        if self._entries:
            entry, twin = self._entries.pop(draw.number(0, len(self._entries) - 1))
            assert entry.cancel() == twin.cancel()

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
            assert self._wheel.now <= upcoming <= earliest
            self._compare(upcoming)

    def _compare(self, now: int) -> None:
        entries, twins = self._wheel.advance(now), self._heap.advance(now)
        assert all(entry.deadline <= now and not entry.pending for entry in entries)
        ours = sorted(entry.deadline for entry in entries)
        assert ours == sorted(twin.deadline for twin in twins)


def tokens(data: bytes) -> None:
    """Parsing a token returns its parts, or raises."""
    text = data.decode("utf-8", "surrogateescape")
    try:
        epoch, value = parsed_token(text)
    except ValueError as error:
        check_reason(error)
        return
    assert epoch
    assert parsed_token(token_of(epoch, None if value < 0 else value)) == (epoch, value)
