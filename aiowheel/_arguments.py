"""Checks of arguments: one text for a wrong value, whichever build runs. Rank 0.

Every check takes an `object`. Compiled code would refuse a value of another type by itself, with a
text that names neither the argument nor its legal range. Texts format the object as it was given
for another reason: mypyc 2.4 leaks a large `int` that it turns into text.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

#: The largest count: what 64 bits hold with room to add two.
MOST: Final = 2**61 - 1


def checked_int(name: str, value: object, least: int, most: int) -> int:
    """Return *value* if it is an integer from *least* to *most*.

    Raises:
        TypeError: *value* is not an int, or is a bool.
        ValueError: *value* is out of range.
    """
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{name} must be an int from {least} to {most}, got {value!r}")
    if not least <= value <= most:
        raise ValueError(f"{name} must be from {least} to {most}, got {value!r}")
    return value


def checked_choice(name: str, value: object, choices: Collection[str]) -> str:
    """Return *value* if it is one of *choices*.

    Raises:
        TypeError: *value* is not a string.
        ValueError: *value* is another string.
    """
    listed = ", ".join([repr(choice) for choice in choices])
    if not isinstance(value, str):
        raise TypeError(f"{name} must be one of {listed}, got {value!r}")
    if value not in choices:
        raise ValueError(f"{name} must be one of {listed}, got {value!r}")
    return value
