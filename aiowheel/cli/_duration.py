"""Durations on the command line: seconds, or text such as `500ms`, `10m`, `1h30m`. Rank 5."""

import math
import re
from decimal import Decimal
from typing import Any

import typer

from aiowheel.errors import BadInputError

#: Seconds of each unit. The units of one text must follow each other in this order.
UNITS = {
    "d": Decimal(86_400),
    "h": Decimal(3_600),
    "m": Decimal(60),
    "s": Decimal(1),
    "ms": Decimal("1e-3"),
    "us": Decimal("1e-6"),
    "ns": Decimal("1e-9"),
}
_TEXT = re.compile("".join(rf"(?:(\d+(?:\.\d+)?){unit})?" for unit in UNITS))


def seconds_of(text: str) -> float:
    """Return the seconds of a duration: a number of seconds, or numbers with units.

    A text with units has each unit at most once, the longest first: `1h30m`, `1.5s`, `500ms`.

    Raises:
        ValueError: *text* is not a duration.
    """
    if "_" in text or not text.isascii():  # `float` takes 1_000 and digits of other scripts
        raise _bad(text)
    try:
        seconds = float(text)
    except ValueError:
        found = _TEXT.fullmatch(text)
        if found is None or not text:
            raise _bad(text) from None
        parts = zip(found.groups(), UNITS.values(), strict=True)
        # Decimal: 1.1s is the same number as 1.1, and 300ms the same as 0.3.
        return float(sum(Decimal(number) * unit for number, unit in parts if number))
    if math.isnan(seconds):
        raise _bad(text)
    return seconds


def duration(
    *names: str,
    help: str,  # noqa: A002 - as typer calls it
    least: float = -math.inf,
    most: float = math.inf,
    **more: Any,
) -> Any:
    """Return an option of typer that takes a duration, for `Annotated[float, ...]`.

    Args:
        names: Names of the option; default: the name of the parameter.
        help: Text of the help screen.
        least: Minimum, in seconds.
        most: Maximum, in seconds.
        more: Other arguments of `typer.Option`.
    """

    def checked(given: str | float) -> float:
        seconds = seconds_of(given) if isinstance(given, str) else float(given)
        if not least <= seconds <= most:
            upper = f" to {_shown(most)}" if most < math.inf else " or more"
            raise ValueError(f"must be {_shown(least)}{upper}, got {given}")
        return seconds

    return typer.Option(*names, help=help, metavar="DURATION", parser=checked, **more)


def checked_ns(option: str, seconds: float) -> int:
    """Return the nanoseconds of an option for a simulated wheel.

    Raises:
        BadInputError: The duration is below a nanosecond, or above 1e9 seconds.
    """
    if not 1e-9 <= seconds <= 1e9:
        raise BadInputError(f"{option} must be from 1e-09 to 1e+09 s, got {seconds:g}")
    return round(seconds * 1e9)


def _shown(seconds: float) -> str:
    return f"{seconds:g} s"


def _bad(text: str) -> ValueError:
    units = ", ".join(UNITS)
    return ValueError(
        f"must be a duration such as 30, 1.5, 500ms, 10m or 1h30m, with the units {units}, "
        f"got {text!r}"
    )
