"""Many files read as one table of (time, key) rows; bad rows are counted and reported. Rank 4."""

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from aiowheel.errors import BadInputError
from aiowheel.readers._formats import Format, Unit, checked_member
from aiowheel.readers._inputs import READ_ERRORS, Source, Sources, read_failure
from aiowheel.readers._record import Names, Raw
from aiowheel.readers._records import raw_text, records
from aiowheel.readers._times import LATEST_TIME, TimeParser, parse_epoch

_BATCH_ROWS = 16_384
_MOST_NOTES = 5


class Batch(NamedTuple):
    """Accepted rows in file order: row i has the time ``times[i]`` and the key ``keys[i]``."""

    times: list[int]
    keys: list[str]


class Reject(NamedTuple):
    """A row with an error: it was left out, or used in spite of the error.

    Attributes:
        source: The file; ``archive.tar.gz:path/inside`` for a member of an archive.
        line: Line number of the start of the row, from 1; in Parquet, the row number.
        reason: The error.
        raw: The row as text; fields become one line of CSV.
        used: Whether the row is irregular but was used.
    """

    source: str
    line: int
    reason: str
    raw: str
    used: bool


class Tally(NamedTuple):
    """The result of reading one piece of a table.

    Attributes:
        source: The table.
        format: Its format.
        accepted: Number of accepted rows, including irregular ones.
        ends_source: Whether this is the last piece of the table.
    """

    source: str
    format: Format
    accepted: int
    ends_source: bool


class TimedRows:
    """The rows of all inputs, readable once, with counts of the bad rows.

    A row is rejected if its key is empty or not UTF-8, or its time is not a whole number >= 0 of
    the unit. A row with too many or too few fields but a readable key and time is irregular: the
    row is used, counted and reported.

    Args:
        inputs: The files to read.
        key: Name of the key column, or several names; the first one that the table has is used.
        time: Name of the time column.
        parse_time: Converts a written time to an integer, or raises ValueError with the reason.
        unit: The unit to which Parquet timestamps are converted, or its name. Files with timestamps
            are refused if *parse_time* is not `parse_epoch`.
        earliest: The earliest accepted time.
        latest: The latest accepted time.
        strict: Raise at the first rejected or irregular row.
        allow_empty: Accept a file without a good row as an empty table instead of raising.
        put_aside: Called with each rejected or irregular row.

    Attributes:
        key: The possible names of the key column.
        time, earliest, latest: As given.
        files: Number of tables read so far; each member of an archive counts.
        accepted: Number of accepted rows so far, including irregular ones.
        rejected: Number of rejected rows so far.
        irregular: Number of accepted rows with a wrong number of fields so far.
        rejects: The first few rejected rows: file, line, reason.
        irregularities: The first few irregular rows, in the same form.

    Raises:
        TypeError: *unit* is no text.
        ValueError: *unit* is no unit.
    """

    def __init__(
        self,
        inputs: Sources,
        *,
        key: str | Names,
        time: str,
        parse_time: TimeParser,
        unit: Unit | str = Unit.S,
        earliest: int = 0,
        latest: int = LATEST_TIME,
        strict: bool = False,
        allow_empty: bool = False,
        put_aside: Callable[[Reject], object] | None = None,
    ) -> None:
        self._inputs = inputs
        self.key: Names = (key,) if isinstance(key, str) else key
        self.time = time
        self._parse_time = parse_time
        self._unit = checked_member("unit", unit, Unit)
        self.earliest = earliest
        self.latest = latest
        self._strict = strict
        self._allow_empty = allow_empty
        self._put_aside = put_aside
        self.files: int = 0
        self.accepted: int = 0
        self.rejected: int = 0
        self.irregular: int = 0
        self.rejects: list[str] = []
        self.irregularities: list[str] = []
        self._last_reject = ""

    def batches(self) -> Iterator[Batch]:
        """Read all rows in batches of some thousand rows; only one batch is in memory at a time.

        Raises:
            BadInputError: A file is damaged, lacks a column, is empty or has no good row; with
                *strict*, also the first bad row.
        """
        for source in self._inputs.sources():
            self.files += 1
            accepted, rejected = self.accepted, self.rejected
            yield from self._batches_of(source)
            self._check_not_empty(source.name, source.format, accepted, rejected)

    @property
    def reads_whole_numbers(self) -> bool:
        """Whether the written times are already whole numbers of the unit."""
        return self._parse_time is parse_epoch

    def by_the_same_rules(
        self, inputs: Sources, put_aside: Callable[[Reject], object] | None
    ) -> "TimedRows":
        """Return a table of other inputs with the same rules but not strict; it can be pickled."""
        return TimedRows(
            inputs,
            key=self.key,
            time=self.time,
            parse_time=self._parse_time,
            unit=self._unit,
            earliest=self.earliest,
            latest=self.latest,
            allow_empty=True,
            put_aside=put_aside,
        )

    def take_over(self, found: Iterable["Reject | Tally | BadInputError"]) -> None:
        """Add the results of other readers that used the same rules.

        Args:
            found: In input order: the bad rows of a piece of a file followed by its tally, or the
                error that stopped a reader.

        Raises:
            BadInputError: A file has no good row, a reader reported an error, or, with *strict*, a
                row is bad.
        """
        accepted, rejected = self.accepted, self.rejected
        for item in found:
            if isinstance(item, BadInputError):
                raise item
            if isinstance(item, Reject):
                count = self._note_irregular if item.used else self._reject
                count(item.source, item.line, item.reason, item.raw)
                continue
            self.accepted += item.accepted
            if item.ends_source:
                self.files += 1
                self._check_not_empty(item.source, item.format, accepted, rejected)
                accepted, rejected = self.accepted, self.rejected

    def _check_not_empty(
        self, source: str, form: Format, accepted_before: int, rejected_before: int
    ) -> None:
        """Raise if a file has no good row; the *before* counts were taken at its start."""
        bad = self.rejected - rejected_before
        # Spark writes an empty part file for each task without rows.
        is_empty_part = form is Format.PARQUET and not bad
        if self.accepted == accepted_before and not (self._allow_empty or is_empty_part):
            why = f", the last: {self._last_reject}" if bad else ""
            raise BadInputError(f"{source}: no good row ({bad:,} rejected{why})")

    def _batches_of(self, source: Source) -> Iterator[Batch]:
        times: list[int] = []
        keys: list[str] = []
        line, bad_rows = source.lines_before, 0
        try:
            unit = self._unit if self.reads_whole_numbers else None
            for at, key, written, flaw, raw in records(source, self.key, self.time, unit):
                line = source.lines_before + at
                try:
                    moment = self._checked_time(key, written)
                except ValueError as error:
                    self._reject(source.name, line, flaw or str(error), raw)
                    bad_rows += 1
                    if bad_rows % _BATCH_ROWS == 0:  # lets the caller write the bad rows meanwhile
                        self.accepted += len(times)
                        yield Batch(times, keys)
                        times, keys = [], []
                    continue
                if flaw:
                    self._note_irregular(source.name, line, flaw, raw)
                times.append(moment)
                keys.append(key)
                if len(times) == _BATCH_ROWS:
                    self.accepted += len(times)
                    yield Batch(times, keys)
                    times, keys = [], []
        except READ_ERRORS as error:
            reason = read_failure(error)
            raise BadInputError(f"{source.name}: after line {line}: {reason}") from error
        self.accepted += len(times)
        yield Batch(times, keys)

    def _checked_time(self, key: str, written: str) -> int:
        if not key:
            raise ValueError("the key is empty")
        if not key.isascii() and any("\ud800" <= char <= "\udfff" for char in key):
            raise ValueError("the key is not UTF-8")
        moment = self._parse_time(written)
        if moment > self.latest:
            raise ValueError(f"time {written!r} is beyond {self.latest}")
        if moment < self.earliest:
            raise ValueError(f"time {written!r} is before {self.earliest}")
        return moment

    def _reject(self, source: str, line: int, reason: str, raw: Raw) -> None:
        self.rejected += 1
        self._last_reject = f"line {line}: {reason}"
        self._note(self.rejects, f"{source}: {self._last_reject}")
        if self._put_aside is not None:
            self._put_aside(Reject(source, line, reason, raw_text(raw), used=False))

    def _note_irregular(self, source: str, line: int, flaw: str, raw: Raw) -> None:
        self.irregular += 1
        self._note(self.irregularities, f"{source}: line {line}: {flaw}")
        if self._put_aside is not None:
            self._put_aside(Reject(source, line, flaw, raw_text(raw), used=True))

    def _note(self, notes: list[str], text: str) -> None:
        if self._strict:
            raise BadInputError(text)
        if len(notes) < _MOST_NOTES:
            notes.append(text)
