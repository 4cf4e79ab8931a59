"""Idle events as a CSV file, whole or not at all, with what a summary tells of them. Rank 5."""

import csv
import hashlib
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from aiowheel.cli._destination import open_destination

HEADER = ("fire", "key")

_CHUNK = 8_192
_SHOWN = 3

Event = tuple[int, str]


@dataclass(frozen=True, slots=True)
class IdleSummary:
    """What one file of idle events holds.

    Attributes:
        events: How many there are.
        first: The first three events.
        last: The last three events.
        sha256: Digest of the lines ``fire<TAB>key<LF>``, in UTF-8.
    """

    events: int
    first: tuple[Event, ...]
    last: tuple[Event, ...]
    sha256: str


def write_idle_events(events: Iterable[Event], path: Path) -> IdleSummary:
    """Write ``fire,key`` lines under a header, LF line ends, keys quoted where they must be.

    Args:
        events: In the order in which they are to be written.
        path: Of the file; `-` is standard output.

    Raises:
        AiowheelError: The disk refuses; *path* is then as it was before.
    """
    with open_destination(path) as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(HEADER)
        return summarize(events, writer.writerows)


def summarize(
    events: Iterable[Event], write: Callable[[list[Event]], object] = lambda _: None
) -> IdleSummary:
    """Walk over events once, handing them to *write* some thousand at a time."""
    digest = hashlib.sha256()
    first: list[Event] = []
    last: deque[Event] = deque(maxlen=_SHOWN)
    count = 0
    source = iter(events)
    while chunk := list(islice(source, _CHUNK)):
        write(chunk)
        digest.update("".join(f"{fire}\t{key}\n" for fire, key in chunk).encode())
        first += chunk[: _SHOWN - len(first)]
        last.extend(chunk[-_SHOWN:])
        count += len(chunk)
    return IdleSummary(count, tuple(first), tuple(last), digest.hexdigest())
