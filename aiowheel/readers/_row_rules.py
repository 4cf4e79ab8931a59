"""Which columns of files are read, and which of their rows are accepted. Rank 4."""

from collections.abc import Callable
from dataclasses import dataclass

from aiowheel.readers._formats import TimeFormat, Unit
from aiowheel.readers._inputs import Sources
from aiowheel.readers._record import Names
from aiowheel.readers._table import Reject, TimedRows
from aiowheel.readers._times import time_parser


@dataclass(frozen=True, slots=True)
class RowRules:
    """The rules for reading tables, which do not depend on the files; they can be pickled.

    Attributes:
        key: Name of the key column, or several names; the first one that a table has is used.
        time: Name of the time column.
        time_format: How times are written.
        unit: The unit of every integer time.
        earliest: The earliest accepted time.
        strict: Whether a bad row ends the run; a damaged file always does.
    """

    key: str | Names
    time: str
    time_format: TimeFormat
    unit: Unit
    earliest: int = 0
    strict: bool = False

    def rows(
        self,
        inputs: Sources,
        *,
        latest: int,
        allow_empty: bool = False,
        put_aside: Callable[[Reject], object] | None = None,
    ) -> TimedRows:
        """Return the rows of *inputs*; the arguments are those of `TimedRows`."""
        return TimedRows(
            inputs,
            key=self.key,
            time=self.time,
            parse_time=time_parser(self.time_format, self.unit),
            unit=self.unit,
            earliest=self.earliest,
            latest=latest,
            strict=self.strict,
            allow_empty=allow_empty,
            put_aside=put_aside,
        )
