"""Writing of idle events to a CSV file, atomically, and a summary of them. Rank 5."""

import csv
import hashlib
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from aiowheel._outputs import CsvLines
from aiowheel.cli._destination import open_destination

HEADER = ("fire", "key")

_CHUNK = 8_192
SHOWN = 3

Event = tuple[int, str]


@dataclass(frozen=True, slots=True)
class IdleSummary:
    """The summary of one file of idle events.

    Attributes:
        events: Number of events.
        first: The first three events.
        last: The last three events.
        sha256: SHA-256 of the lines ``fire<TAB>key<LF>`` in UTF-8.
    """

    events: int
    first: tuple[Event, ...]
    last: tuple[Event, ...]
    sha256: str


def write_idle_events(events: Iterable[Event], path: Path) -> IdleSummary:
    """Write a header and ``fire,key`` lines, with LF line ends; keys are quoted if necessary.

    Args:
        events: The events, in the order of the file.
        path: Path of the file; `-` is standard output.

    Raises:
        AiowheelError: The file cannot be written; *path* is then unchanged.
    """
    with open_destination(path) as file:
        writer = csv.writer(CsvLines(file))
        writer.writerow(HEADER)
        return summarize(events, writer.writerows)


def summarize(
    events: Iterable[Event], write: Callable[[list[Event]], object] = lambda _: None
) -> IdleSummary:
    """Return the summary of *events*, and pass them to *write* in chunks of some thousands."""
    summarizer = Summarizer()
    source = iter(events)
    while chunk := list(islice(source, _CHUNK)):
        write(chunk)
        lines = "".join(f"{fire}\t{key}\n" for fire, key in chunk).encode()
        summarizer.add(lines, len(chunk), chunk[:SHOWN], chunk[-SHOWN:])
    return summarizer.summary()


class Summarizer:
    """Computes a summary from chunks of events."""

    def __init__(self) -> None:
        self._digest = hashlib.sha256()
        self._first: list[Event] = []
        self._last: deque[Event] = deque(maxlen=SHOWN)
        self._count = 0

    def add(self, lines: bytes, count: int, first: list[Event], last: list[Event]) -> None:
        """Add a chunk.

        Args:
            lines: The lines ``fire<TAB>key<LF>`` of the chunk.
            count: Number of events in the chunk.
            first: The first events of the chunk, up to `SHOWN`.
            last: The last events of the chunk, up to `SHOWN`.
        """
        self._digest.update(lines)
        self._first += first[: SHOWN - len(self._first)]
        self._last.extend(last)
        self._count += count

    def summary(self) -> IdleSummary:
        """Return the summary of all events so far."""
        digest = self._digest.hexdigest()
        return IdleSummary(self._count, tuple(self._first), tuple(self._last), digest)
