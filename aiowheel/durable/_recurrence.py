"""Recurrences of timers: intervals, and cron expressions in a time zone. Rank 4.

Source of cron's rules: Debian's cron, which the library cronsim follows.
"""

from __future__ import annotations

import json
import re
from abc import ABC, abstractmethod
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Literal, TypeAlias
from zoneinfo import ZoneInfo

from aiowheel._arguments import checked_choice, checked_int, checked_str, safe_repr
from aiowheel._units import FOREVER, delay_to_ns
from aiowheel.durable._instants import (
    FIRST_LOCAL_US,
    FIRST_US,
    LAST_LOCAL_US,
    LAST_US,
    to_datetime,
    to_us,
)
from aiowheel.errors import MissingExtraError

#: What happens to occurrences that came due while no process could fire them.
MissedOccurrences: TypeAlias = Literal["all", "latest", "skip"]

MISSED = ("all", "latest", "skip")
#: An occurrence that is later than this, or than its successor, is missed.
GRACE_US = 60_000_000
_DAY_US = 86_400_000_000
_MINUTE = timedelta(minutes=1)
_MICROSECOND = timedelta(microseconds=1)
#: The search for an occurrence ends after this, as that of cronsim.
_SEARCH_YEARS = 50
#: A range of one value with a step: cronsim continues such a range to the end of the field.
_STEPPED_VALUE = re.compile(r"(?<![^\s,])(\w+)-\1/0*[1-9][0-9]*(?![^\s,])")


class Rule(ABC):
    """A sequence of instants up to the year 9999, in microseconds on the store's clock."""

    @abstractmethod
    def after(self, us: int, *, occurrence: int | None = None) -> int | None:
        """Return the first instant after *us*, or None; *occurrence* is any instant of it."""

    @abstractmethod
    def latest(self, us: int, *, occurrence: int) -> int:
        """Return the last instant at or before *us*, but not one before *occurrence*."""

    @abstractmethod
    def as_json(self) -> dict[str, object]:
        """Return the rule as a store keeps it."""


class FixedInterval(Rule):
    """A fixed number of microseconds between occurrences, independent of time zones."""

    def __init__(self, period_us: int) -> None:
        self.period_us = period_us

    def after(self, us: int, *, occurrence: int | None = None) -> int | None:
        """Return the next occurrence; without *occurrence*, one period after *us*."""
        if occurrence is None:
            occurrence = us
        found = occurrence + ((us - occurrence) // self.period_us + 1) * self.period_us
        return found if found <= LAST_US else None

    def latest(self, us: int, *, occurrence: int) -> int:
        """Return the last occurrence."""
        periods = max(0, (us - occurrence) // self.period_us)
        return occurrence + periods * self.period_us

    def as_json(self) -> dict[str, object]:
        """Return the period."""
        return {"every_us": self.period_us}


class Cron(Rule):
    """A cron expression in a time zone.

    Five fields: minute, hour, day of month, month, day of week, with names, ranges, lists, steps,
    `L`, `LW` and `MON#2`, the second Monday. Sunday is 0 or 7. As in Debian's cron, a day must
    match one of the two fields of days if neither begins with `*`, and otherwise both. When clocks
    change:

    - An expression with a fixed hour and minute follows the wall clock. If the clock skips its time
      in spring, it occurs in the first minute after the gap. If the clock shows its time twice in
      autumn, it occurs only the first time.
    - An expression whose minute or hour begins with `*` follows elapsed time: it occurs in both of
      the repeated hours in autumn, and not in the skipped hour in spring.

    Args:
        expression: For example `"0 3 * * *"`, every day at three.
        tz: A name of the time zone database, for example `"Europe/Paris"`.

    Raises:
        TypeError: An argument is not a string.
        ValueError: The expression or the time zone does not exist, or never occurs.
        MissingExtraError: cronsim is not installed.
    """

    def __init__(self, expression: str, *, tz: str = "UTC") -> None:
        self.expression: str = " ".join(checked_str("expression", expression).split())
        self.tz: str = checked_str("tz", tz)
        try:
            self._zone = ZoneInfo(tz)
        except (OSError, ValueError, LookupError):
            raise ValueError(
                f"tz must be a name of the time zone database, got {safe_repr(tz)}"
            ) from None
        fields = self.expression.split()
        if len(fields) != 5:
            raise ValueError(
                f"expression must have five fields, as '0 3 * * *', got {safe_repr(expression)}"
            )
        self._searched = _STEPPED_VALUE.sub(r"\1-\1", self.expression)
        self._is_elapsed = any(field.startswith("*") for field in fields[:2])
        if self.after(0) is None:
            raise ValueError(
                f"expression must occur within {_SEARCH_YEARS} years, got {self.expression!r}"
            )

    def after(self, us: int, *, occurrence: int | None = None) -> int | None:  # noqa: ARG002 - FixedInterval's
        """Return the next occurrence."""
        return self._found(us, reverse=False)

    def latest(self, us: int, *, occurrence: int) -> int:
        """Return the last occurrence."""
        last = self._found(us + 1, reverse=True)
        return occurrence if last is None else max(occurrence, last)

    def _found(self, us: int, *, reverse: bool) -> int | None:
        """Return the nearest occurrence after *us*, or before it.

        cronsim computes only times of the wall clock here. With a time zone, it skips instants if
        the clock changes by half an hour, and does not return if it changes at a quarter to three
        or by a part of a minute.
        """
        local = us + self._offset(us)
        # How far the clock goes back around *us*: it shows so many of its times twice.
        shift = max(self._offset(us - _DAY_US) - self._offset(us + _DAY_US), 0)
        first = self._nearest(us, local + shift if reverse else local, fold=0, reverse=reverse)
        if not (self._is_elapsed and (shift or reverse)):
            return first
        second = self._nearest(us, local if reverse else local - shift, fold=1, reverse=reverse)
        if first is None or second is None:
            return second if first is None else first
        return max(first, second) if reverse else min(first, second)

    def _nearest(self, us: int, local: int, *, fold: int, reverse: bool) -> int | None:
        """Return the nearest occurrence, if the wall clock shows each time once.

        Args:
            us: The instant after which the occurrence is, or before which.
            local: Where the search begins, in microseconds on the wall clock.
            fold: Which of two equal times counts: 0 for the first, 1 for the second.
            reverse: Whether the occurrence is before *us*.
        """
        start = to_datetime(min(max(local, FIRST_US), LAST_US)).replace(tzinfo=None)
        try:
            for time in self._times(start, reverse=reverse):
                if abs(time.year - start.year) > _SEARCH_YEARS:  # the zone skips all times
                    return None
                found = self._instant(time, fold)
                if found is not None and (found < us if reverse else found > us):
                    return found
        except OverflowError:  # the wall clock would show the year 0 or 10000
            return None
        return None

    def _instant(self, time: datetime, fold: int) -> int | None:
        """Return the instant of a time of the wall clock, or None if the clock skips it.

        The instant of a skipped time of an expression that follows the wall clock is the first
        minute after the gap.
        """
        while True:
            instant = time.replace(tzinfo=self._zone, fold=fold).astimezone(UTC)
            if instant.astimezone(self._zone).replace(tzinfo=None) == time:
                return to_us("instant", instant)
            if self._is_elapsed:
                return None
            time += _MINUTE

    def _times(self, start: datetime, *, reverse: bool) -> Iterator[datetime]:
        """Return the times of the expression after *start*, or before it."""
        try:
            from cronsim import CronSim, CronSimError
        except ImportError as error:
            raise MissingExtraError("durable") from error
        try:
            return CronSim(self._searched, start, reverse)
        except CronSimError as error:
            raise ValueError(
                f"expression must be a cron expression of five fields, as '0 3 * * *', "
                f"got {self.expression!r}: {error}"
            ) from None

    def _offset(self, us: int) -> int:
        """Return by how much the wall clock is ahead of UTC, in microseconds."""
        shown = min(max(us, FIRST_LOCAL_US), LAST_LOCAL_US)
        offset = to_datetime(shown).astimezone(self._zone).utcoffset()
        assert offset is not None, "the time has a time zone"
        return offset // _MICROSECOND

    def as_json(self) -> dict[str, object]:
        """Return the expression and the time zone."""
        return {"cron": self.expression, "tz": self.tz}

    def __repr__(self) -> str:
        return f"Cron({self.expression!r}, tz={self.tz!r})"


class Recurrence:
    """A rule, and the treatment of missed occurrences."""

    def __init__(self, rule: Rule, missed: str) -> None:
        self.rule = rule
        self.missed = missed

    def to_fire(self, due_us: int, now_us: int) -> int | None:
        """Return the occurrence for which a timer fires now, or None if it is skipped.

        Args:
            due_us: The occurrence that is due.
            now_us: The store's time.
        """
        if self.missed == "latest":
            return self.rule.latest(now_us, occurrence=due_us)
        if self.missed == "skip":
            successor = self.rule.after(due_us, occurrence=due_us)
            if now_us >= due_us + GRACE_US or (successor is not None and now_us >= successor):
                return None
        return due_us

    def next_after(self, due_us: int) -> int | None:
        """Return the occurrence that follows *due_us*, or None after the last one."""
        return self.rule.after(due_us, occurrence=due_us)

    def next_future(self, due_us: int, now_us: int) -> int | None:
        """Return the first occurrence after *now_us*, or None if there is none."""
        return self.rule.after(max(due_us, now_us), occurrence=due_us)

    def as_text(self) -> str:
        """Return the recurrence as a store keeps it; equal recurrences have equal texts."""
        return json.dumps(self.rule.as_json() | {"missed": self.missed}, sort_keys=True)


def recurrence_of(rule: object, missed: object) -> Recurrence:
    """Check the arguments of `DurableTimers.every`.

    Raises:
        TypeError: *rule* is neither a `Cron` nor a duration.
        ValueError: A duration or *missed* is out of range.
    """
    word = checked_choice("missed", missed, MISSED)
    if isinstance(rule, Cron):
        return Recurrence(rule, word)
    if isinstance(rule, str):
        raise TypeError(f"rule must be a Cron or a number of seconds, got text {safe_repr(rule)}")
    return Recurrence(FixedInterval(_period_us(rule)), word)


def _period_us(period: object) -> int:
    ns = delay_to_ns("rule", period)
    if not 1_000_000 <= ns < FOREVER:
        raise ValueError(
            "rule must be a Cron, or from 0.001 to 2.3e9 seconds, which are 73 years, "
            f"got {safe_repr(period)}"
        )
    return int(ns) // 1000


@lru_cache(maxsize=4096)
def recurrence_from(text: str) -> Recurrence:
    """Return the recurrence of the *text* that a store keeps.

    Raises:
        Exception: Another program has damaged the text, or a `Cron` cannot be made.
    """
    content = json.loads(text)
    missed = checked_choice("missed", content["missed"], MISSED)
    if "cron" in content:
        return Recurrence(Cron(content["cron"], tz=content["tz"]), missed)
    period_us = checked_int("every_us", content["every_us"], 1000, FOREVER // 1000)
    return Recurrence(FixedInterval(period_us), missed)
