"""Checks of the arguments of the simulation, the tuning and the replay. Rank 5."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from aiowheel._arguments import checked_int, safe_repr
from aiowheel.errors import BadInputError

_MOST_BUCKETS: Final = 2**24


def checked_input_int(name: str, value: object, least: int, most: int) -> int:
    """Return *value* if it is an integer from *least* to *most*.

    Raises:
        TypeError: *value* is not an int, or is a bool.
        BadInputError: *value* is out of range.
    """
    try:
        return checked_int(name, value, least, most)
    except ValueError as error:
        raise BadInputError(str(error)) from None


def check_wheel_sizes(sizes: Iterable[object]) -> None:
    """Check the numbers of buckets of wheels.

    Raises:
        TypeError: A size is not an int.
        BadInputError: A size is out of range.
    """
    for size in sizes:
        checked_input_int("wheel size", size, 2, _MOST_BUCKETS)


def check_list(name: str, values: object) -> None:
    """Refuse one value where several are expected.

    Raises:
        TypeError: *values* is not iterable, or is a text.
    """
    if isinstance(values, str) or not isinstance(values, Iterable):
        raise TypeError(f"{name} must be a list, got {safe_repr(values)}")
