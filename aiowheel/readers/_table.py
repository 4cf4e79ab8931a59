"""Many files as one table of (time, key) rows, the bad ones counted and put aside. Rank 4."""

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from aiowheel.errors import BadInputError
from aiowheel.readers._formats import Format, Unit
from aiowheel.readers._inputs import READ_ERRORS, Source, Sources, read_failure
from aiowheel.readers._record import Names, Raw
from aiowheel.readers._records import raw_text, records
from aiowheel.readers._times import LATEST_TIME, TimeParser, parse_epoch

_BATCH_ROWS = 16_384
_REMARKS = 5


class Batch(NamedTuple):
    """Accepted rows in the order of the files: row i is ``times[i]``, ``keys[i]``."""

    times: list[int]
    keys: list[str]


class Reject(NamedTuple):
    """A row that was left out, or used although something was wrong with it.

    Attributes:
        source: The file; of a member of an archive ``archive.tar.gz:path/inside``.
        line: Where the row begins, from 1; of Parquet, the row's number.
        reason: What is wrong.
        raw: The row; fields of a table as one line of CSV.
        used: Whether the row is irregular, and used all the same.
    """

    source: str
    line: int
    reason: str
    raw: str
    used: bool


class Tally(NamedTuple):
    """How many rows of a piece of a table were accepted.

    Attributes:
        source: The table.
        format: Its format.
        accepted: Irregular rows among them.
        ends_source: Whether it is the last piece of the table.
    """

    source: str
    format: Format
    accepted: int
    ends_source: bool


class TimedRows:
    """The rows of all inputs, read once, with what was wrong with some of them.

    A row is rejected when its key is empty or no UTF-8, or its time is not a whole number >= 0 of
    the unit. A row with too many or too few fields whose key and time are readable is irregular:
    it is kept, counted and named.

    Args:
        inputs: Where to read.
        key: Name of the key column; or several, of which the first one that is there counts.
        time: Name of the time column.
        parse_time: Turns a written time into an integer, or raises ValueError with the reason.
        unit: What the timestamps of a Parquet file are turned into.
        earliest: The least time to accept.
        latest: The greatest time to accept.
        strict: End the run at the first rejected or irregular row.
        allow_empty: Take a file without a good row for a table without rows, not for a mistake.
        put_aside: Called with each rejected or irregular row.

    Attributes:
        key: Its names.
        time, earliest, latest: As given.
        files: Tables read so far, members of archives each on its own.
        accepted: Rows handed out so far, irregular ones among them.
        rejected: Rows left out so far.
        irregular: Rows with a wrong number of fields that were kept so far.
        rejects: The first few rejected rows: file, line, reason.
        irregularities: The first few irregular rows, likewise.
    """

    def __init__(
        self,
        inputs: Sources,
        *,
        key: str | Names,
        time: str,
        parse_time: TimeParser,
        unit: Unit = Unit.S,
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
        self._unit = unit
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
        """Read everything, some thousand rows at a time; memory is that of one batch.

        Raises:
            BadInputError: A file is damaged, lacks a column, is empty or has no good row; or, when
                strict, a row is bad.
        """
        for source in self._inputs.sources():
            self.files += 1
            accepted, rejected = self.accepted, self.rejected
            yield from self._batches_of(source)
            self._check_not_empty(source.name, source.format, accepted, rejected)

    @property
    def reads_whole_numbers(self) -> bool:
        """Whether a time is a whole number of the unit already, as it is written."""
        return self._parse_time is parse_epoch

    def by_the_same_rules(
        self, inputs: Sources, put_aside: Callable[[Reject], object] | None
    ) -> "TimedRows":
        """Make a table of other inputs, whose bad rows end no run. It can be sent to a worker."""
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
        """Count what other readers found by the same rules.

        Args:
            found: In the order of the inputs: the bad rows of a piece of a file, then its tally; or
                why the run cannot go on.

        Raises:
            BadInputError: A file has no good row, or is reported as unusable; or, when strict, a
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
        """Refuse a file without a good row; *before* are the counts at its beginning."""
        bad = self.rejected - rejected_before
        # Spark writes a part without rows for each task that found none.
        is_empty_part = form is Format.PARQUET and not bad
        if self.accepted == accepted_before and not (self._allow_empty or is_empty_part):
            why = f", the last: {self._last_reject}" if bad else ""
            raise BadInputError(f"{source}: no good row ({bad:,} rejected{why})")

    def _batches_of(self, source: Source) -> Iterator[Batch]:
        times: list[int] = []
        keys: list[str] = []
        line, aside = source.lines_before, 0
        try:
            for at, key, written, flaw, raw in records(source, self.key, self.time, self._unit):
                line = source.lines_before + at
                try:
                    moment = self._checked_time(key, written)
                except ValueError as error:
                    self._reject(source.name, line, flaw or str(error), raw)
                    aside += 1
                    if aside % _BATCH_ROWS == 0:  # the caller may hand on bad rows now
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
        self._remark(self.rejects, f"{source}: {self._last_reject}")
        if self._put_aside is not None:
            self._put_aside(Reject(source, line, reason, raw_text(raw), used=False))

    def _note_irregular(self, source: str, line: int, flaw: str, raw: Raw) -> None:
        self.irregular += 1
        self._remark(self.irregularities, f"{source}: line {line}: {flaw}")
        if self._put_aside is not None:
            self._put_aside(Reject(source, line, flaw, raw_text(raw), used=True))

    def _remark(self, remarks: list[str], text: str) -> None:
        if self._strict:
            raise BadInputError(text)
        if len(remarks) < _REMARKS:
            remarks.append(text)
