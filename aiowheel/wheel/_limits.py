"""What the wheel accepts, and how it refuses. Rank 0.

The arguments are typed ``object``: annotated ``int``, the compiled build would refuse a float
before this module could say anything about it. Texts name the object for another reason: mypyc 2.4
leaks a large ``int`` that it turns into text.
"""

from __future__ import annotations

from typing import Final

LIMIT: Final = 2**61 - 1  #: the furthest time either side of zero, in the caller's unit
HORIZON: Final = 2**62 - 1  #: one past the most ticks that two legal times can lie apart
REFILES_PER_STEP: Final = 1000  #: cascaded entries between two looks at the watch, about 0.1 ms


def checked_int(name: str, value: object) -> int:
    """Refuse what is no integer; a bool is one, as the compiled build cannot tell them apart."""
    if not isinstance(value, int):
        raise TypeError(f"{name} must be an integer, got {value!r}")
    return value


def checked_deadline(value: object) -> None:
    """Refuse what is no integer, or beyond :data:`LIMIT`."""
    deadline = checked_int("deadline", value)
    if not -LIMIT <= deadline <= LIMIT:
        raise OverflowError(f"deadline must be within 2**61 - 1 of zero, got {value!r}")


def checked_now(value: object, wheel_now: int) -> None:
    """Refuse a time that is no integer, lies back, or is beyond :data:`LIMIT`."""
    now = checked_int("now", value)
    if now < wheel_now:
        raise ValueError(f"now must be at least the wheel's time {wheel_now}, got {value!r}")
    if now > LIMIT:
        raise OverflowError(f"now must be at most 2**61 - 1, got {value!r}")


def checked_geometry(tick: object, wheel_size: object, start: object) -> None:
    """Refuse a wheel that cannot turn."""
    bounds: list[tuple[str, object, int, int]] = [
        ("tick", tick, 1, LIMIT),
        ("wheel_size", wheel_size, 2, 2**24),
        ("start", start, -LIMIT, LIMIT),
    ]
    for name, given, least, most in bounds:
        value = checked_int(name, given)
        if not least <= value <= most:
            raise ValueError(f"{name} must be from {least} to {most}, got {given!r}")
