"""Instants: aware datetimes outside, whole microseconds since 1970 inside. Rank 4.

The only file of this package that converts them.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Final, TypeAlias

from aiowheel._arguments import safe_repr
from aiowheel.errors import StoreError

#: When a timer is due: an aware datetime, or a timedelta from now on the store's clock.
Due: TypeAlias = datetime | timedelta

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)


def to_us(name: str, instant: object) -> int:
    """Convert an aware datetime.

    Raises:
        TypeError: *instant* is not a datetime.
        ValueError: *instant* has no time zone.
    """
    if not isinstance(instant, datetime):
        raise TypeError(f"{name} must be an aware datetime, got {safe_repr(instant)}")
    if instant.utcoffset() is None:
        raise ValueError(f"{name} must be a datetime with a time zone, got {safe_repr(instant)}")
    return (instant - _EPOCH) // _MICROSECOND


def due_to_us(name: str, due: object, now_us: Callable[[], int]) -> int:
    """Convert a due time: an aware datetime, or a timedelta from `now_us()`.

    Raises:
        TypeError: *due* is neither.
        ValueError: *due* is a datetime without a time zone, or outside the years 1 to 9999 in UTC.
    """
    if isinstance(due, timedelta):
        due_us = now_us() + due // _MICROSECOND
    elif isinstance(due, datetime):
        due_us = to_us(name, due)
    else:
        raise TypeError(f"{name} must be an aware datetime or a timedelta, got {safe_repr(due)}")
    if not FIRST_US <= due_us <= LAST_US:
        raise ValueError(f"{name} must be from year 1 to 9999 in UTC, got {safe_repr(due)}")
    return due_us


def to_datetime(us: int) -> datetime:
    """Convert microseconds to a datetime in UTC.

    Raises:
        StoreError: *us* was changed in the store, and is no number of the years 1 to 9999.
    """
    try:
        return _EPOCH + us * _MICROSECOND
    except (OverflowError, TypeError):
        raise StoreError(f"a time must be in the years 1 to 9999, got {us!r}") from None


FIRST_US: Final = to_us("first", datetime.min.replace(tzinfo=UTC))
LAST_US: Final = to_us("last", datetime.max.replace(tzinfo=UTC))
#: The first and the last instant that a datetime can show in every time zone.
FIRST_LOCAL_US: Final = to_us("first", datetime(1, 1, 2, tzinfo=UTC))
LAST_LOCAL_US: Final = to_us("last", datetime(9999, 12, 31, tzinfo=UTC))
