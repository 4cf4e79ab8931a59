"""Checks of arguments, with the same error texts in both builds. Rank 0.

Every check takes an `object`. For a narrower type, compiled code raises its own error first, with a
text that names neither the argument nor its legal range. Error texts format the given object, not
the converted one, because mypyc 2.4 leaks a large `int` that it converts to text.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

#: The largest count: the sum of two fits into 64 bits.
MOST: Final = 2**61 - 1


def checked_int(name: str, value: object, least: int, most: int) -> int:
    """Return *value* if it is an integer from *least* to *most*.

    Raises:
        TypeError: *value* is not an int, or is a bool.
        ValueError: *value* is out of range.
    """
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{name} must be an int from {least} to {most}, got {safe_repr(value)}")
    if not least <= value <= most:
        raise ValueError(f"{name} must be from {least} to {most}, got {safe_repr(value)}")
    return value


def checked_choice(name: str, value: object, choices: Collection[str]) -> str:
    """Return *value* if it is one of *choices*.

    Raises:
        TypeError: *value* is not a string.
        ValueError: *value* is another string.
    """
    if isinstance(value, str) and value in choices:
        return value
    listed = ", ".join([repr(choice) for choice in choices])
    if not isinstance(value, str):
        raise TypeError(f"{name} must be one of {listed}, got {safe_repr(value)}")
    raise ValueError(f"{name} must be one of {listed}, got {safe_repr(value)}")


def checked_bool(name: str, value: object) -> bool:
    """Return *value* if it is a bool.

    Raises:
        TypeError: *value* is something else.
    """
    if not isinstance(value, bool):
        raise TypeError(f"{name} must be True or False, got {safe_repr(value)}")
    return value


def checked_str(name: str, value: object) -> str:
    """Return *value* if it is a string.

    Raises:
        TypeError: *value* is something else.
    """
    if not isinstance(value, str):
        raise TypeError(f"{name} must be a str, got {safe_repr(value)}")
    return value


def refuse_unhashable(name: str, value: object) -> None:
    """Raise if *value* is not hashable; also for the `except` clause of a failed look-up.

    Raises:
        TypeError: *value* is not hashable.
    """
    try:
        hash(value)
    except TypeError:
        raise TypeError(f"{name} must be hashable, got {safe_repr(value)}") from None


def safe_repr(value: object) -> str:
    """Return the `repr` of *value*, or `object`'s if its own `repr` raises."""
    try:
        return repr(value)
    except Exception:
        return object.__repr__(value)
