"""What a purgatory accepts, and how it refuses. Rank 2."""

from __future__ import annotations

from collections.abc import Hashable, Iterable

from aiowheel._units import FOREVER


def checked_count(name: str, count: object, least: int) -> None:
    """Refuse a count below *least*; None means none.

    Raises:
        TypeError: *count* is no int.
        ValueError: *count* is out of range.
    """
    if count is None:
        return
    if isinstance(count, bool) or not isinstance(count, int):
        raise TypeError(f"{name} must be an int, got {count!r}")
    if not least <= count < FOREVER:
        raise ValueError(f"{name} must be from {least} to {FOREVER - 1}, got {count}")


def checked_number(name: str, value: object) -> int | float:
    """Refuse what no counter can reach or stand at.

    Raises:
        TypeError: *value* is no int or float.
        ValueError: *value* is NaN.
    """
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(f"{name} must be an int or a float, got {value!r}")
    if value != value:  # noqa: PLR0124 - only NaN differs from itself
        raise ValueError(f"{name} must not be NaN")
    return value


def checked_keys(keys: Iterable[Hashable]) -> tuple[object, ...]:
    """The keys as a tuple; refuses a lone string and an empty collection."""
    if isinstance(keys, (str, bytes)):
        raise TypeError(f"keys must be a collection of keys, not one string: got {keys!r}")
    checked: tuple[object, ...] = tuple(keys)
    if not checked:
        raise ValueError("keys must name at least one key")
    return checked


def checked_limit(limit: int | None) -> int:
    """How many may complete; None means all."""
    checked_count("limit", limit, 1)
    return FOREVER if limit is None else limit
