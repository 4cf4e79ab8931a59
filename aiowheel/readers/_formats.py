"""File formats and time formats, named as on the command line. Rank 4."""

import re
from enum import StrEnum
from pathlib import PurePath
from typing import TypeVar

from aiowheel._arguments import checked_choice

_Member = TypeVar("_Member", bound=StrEnum)


class Format(StrEnum):
    """The layout of the rows of a file."""

    TSV = "tsv"
    CSV = "csv"
    NDJSON = "ndjson"
    CLF = "clf"
    PARQUET = "parquet"
    ZEEK = "zeek"


class TimeFormat(StrEnum):
    """The notation of the times in the time column."""

    EPOCH = "epoch"
    DECIMAL = "decimal"
    ISO8601 = "iso8601"
    CLF = "clf"


class Unit(StrEnum):
    """The unit of every integer time in one run."""

    S = "s"
    MS = "ms"
    US = "us"
    NS = "ns"

    @property
    def digits(self) -> int:
        """The number of decimal digits of a second that the unit can hold."""
        return {"s": 0, "ms": 3, "us": 6, "ns": 9}[self.value]

    @property
    def per_second(self) -> int:
        """The number of units in a second."""
        return int(10**self.digits)


_ROTATED = re.compile(r"(?:\.gz|[-._][0-9][0-9-]*)+\Z")
_SUFFIXES = {
    ".tsv": Format.TSV,
    ".tab": Format.TSV,
    ".csv": Format.CSV,
    ".ndjson": Format.NDJSON,
    ".jsonl": Format.NDJSON,
    ".log": Format.CLF,
    ".parquet": Format.PARQUET,
}


def checked_member(argument: str, value: object, members: type[_Member]) -> _Member:
    """Return *value* as a member of an enumeration; it may be the name of the command line.

    Raises:
        TypeError: *value* is no text.
        ValueError: *value* is another text.
    """
    return members(checked_choice(argument, value, [each.value for each in members]))


def format_of(name: str) -> Format | None:
    """Return the format that the file name implies, or None if the name implies none.

    The suffix ``.gz`` and the number or date of a rotated log (``access.log.3.gz``,
    ``access.log-20261127``) are ignored.
    """
    return _SUFFIXES.get(PurePath(_ROTATED.sub("", name)).suffix.lower())
