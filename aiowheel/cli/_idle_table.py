"""The options of `aiowheel idle` on columns and times, for runs and for streams. Rank 5."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from aiowheel.cli._options import refuse
from aiowheel.errors import BadInputError
from aiowheel.readers import (
    LATEST_TIME,
    Format,
    Inputs,
    Reject,
    TimedRows,
    TimeFormat,
    Unit,
    duration_in_unit,
)
from aiowheel.readers._row_rules import RowRules

if TYPE_CHECKING:
    from aiowheel.jobs.idle.touch_files import TouchFiles


# Key columns, time column and time format of the formats that fix them.
_USUAL: dict[Format | None, tuple[tuple[str, ...], str, TimeFormat]] = {
    Format.CLF: (("host",), "time", TimeFormat.CLF),
    Format.ZEEK: ((), "ts", TimeFormat.DECIMAL),
}


@dataclass(frozen=True, slots=True)
class TableOptions:
    """The options on rows, as given; the defaults depend on the format."""

    key: tuple[str, ...]
    time: str
    format: Format | None
    unit: Unit
    time_format: TimeFormat | None
    earliest: int
    latest: int | None
    strict: bool

    def ticks(self, option: str, seconds: float) -> int:
        """Convert the seconds of an option to a whole number of the unit.

        Raises:
            BadInputError: The result is not a whole number, or not above 0.
        """
        try:
            return duration_in_unit(seconds, self.unit)
        except ValueError as error:
            raise BadInputError(f"{option}: {error}") from error

    def rows(
        self, inputs: Inputs, timeout: int, put_aside: Callable[[Reject], object] | None
    ) -> TimedRows:
        """Return the rows of *inputs*."""
        rules = self._rules(inputs.format)
        return rules.rows(inputs, latest=self._latest(LATEST_TIME - timeout), put_aside=put_aside)

    def files(self, timeout: int) -> "TouchFiles":
        """Return the description of the files of a stream."""
        from aiowheel.jobs.idle.touch_files import TouchFiles

        rules = self._rules(self.format)
        latest, limit = self.bounds_of_stream(timeout)
        return TouchFiles(rules, self.format, latest, limit)

    def bounds_of_stream(self, timeout: int) -> tuple[int | None, int]:
        """Return the latest accepted time, None for a day from now, and its upper limit."""
        from aiowheel.jobs.idle.processor import LATEST_SECOND

        limit = min(LATEST_TIME - timeout, LATEST_SECOND * self.unit.per_second)
        return None if self.latest is None else self._latest(limit), limit

    def refuse_columns(self, why: str) -> None:
        """Refuse the options on columns, times and bad rows of files.

        Raises:
            BadInputError: One of them is given.
        """
        given = {"--key": self.key, "--time": self.time, "--time-format": self.time_format}
        refuse({**given, "--strict": self.strict}, why)

    def _rules(self, known: Format | None) -> RowRules:
        """Return the rules for files of a format, which may fix the columns; None: of several."""
        host, moment, written = _USUAL.get(known, ((), "", TimeFormat.EPOCH))
        key, time = self.key or host, self.time or moment
        if not key and known is None:
            raise BadInputError(
                "--key must be the name of a column, got none; an access log whose name does not "
                "end in .log needs --format clf"
            )
        for option, is_there in (("--key", key and all(key)), ("--time", time)):
            if not is_there:
                raise BadInputError(f"{option} must be the name of a column, got none")
        written = self.time_format or written
        return RowRules(key, time, written, self.unit, self.earliest, strict=self.strict)

    def _latest(self, limit: int) -> int:
        latest = limit if self.latest is None else min(self.latest, limit)
        if latest < self.earliest:
            raise BadInputError(f"--earliest must be at most {latest}, got {self.earliest}")
        return latest


def watched_folder(files: list[str]) -> Path:
    """Return the folder that a stream watches.

    Raises:
        BadInputError: *files* is not exactly one existing folder.
    """
    if len(files) != 1 or not Path(files[0]).is_dir():
        raise BadInputError(f"FILE must be one folder with --stream, got {' '.join(files)}")
    return Path(files[0])
