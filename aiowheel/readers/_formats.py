"""What a file holds and how its times are written: the words of the command line. Rank 4."""

from enum import StrEnum
from pathlib import PurePath


class Format(StrEnum):
    """How the rows of a file are laid out."""

    TSV = "tsv"
    CSV = "csv"
    NDJSON = "ndjson"
    CLF = "clf"
    PARQUET = "parquet"
    ZEEK = "zeek"


class TimeFormat(StrEnum):
    """How a time is written in its column."""

    EPOCH = "epoch"
    DECIMAL = "decimal"
    ISO8601 = "iso8601"
    CLF = "clf"


class Unit(StrEnum):
    """The unit of every integer time of one run."""

    S = "s"
    MS = "ms"
    US = "us"
    NS = "ns"

    @property
    def digits(self) -> int:
        """How many decimal digits of a second the unit can hold."""
        return {"s": 0, "ms": 3, "us": 6, "ns": 9}[self.value]


_SUFFIXES = {
    ".tsv": Format.TSV,
    ".tab": Format.TSV,
    ".csv": Format.CSV,
    ".ndjson": Format.NDJSON,
    ".jsonl": Format.NDJSON,
    ".log": Format.CLF,
    ".parquet": Format.PARQUET,
}


def format_of(name: str) -> Format | None:
    """Tell the format by the file's name, or None when the name does not say.

    ``.gz`` and the number of a rotated log (``access.log.3.gz``) are looked through.
    """
    path = PurePath(name)
    while path.suffix == ".gz" or path.suffix[1:].isdigit():
        path = path.with_suffix("")
    return _SUFFIXES.get(path.suffix.lower())
