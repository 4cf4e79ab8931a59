"""Writing of idle events from Arrow batches, with the format of `write_idle_events`. Rank 5."""

import csv
import io
from collections.abc import Iterable
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from aiowheel._outputs import CsvLines
from aiowheel.cli._destination import open_destination
from aiowheel.cli._idle_file import HEADER, SHOWN, IdleSummary, Summarizer
from aiowheel.jobs.idle.merge import events_in

_NEEDS_CARE = (b",", b'"', b"\r")


def write_idle_columns(batches: Iterable[pa.RecordBatch], path: Path) -> IdleSummary:
    """Write batches of ``fire: int64, key: string`` in the format of `write_idle_events`.

    Raises:
        AiowheelError: The file cannot be written; *path* is then unchanged.
    """
    summarizer = Summarizer()
    with open_destination(path) as file:
        csv.writer(CsvLines(file)).writerow(HEADER)
        file.flush()
        for batch in batches:
            lines = _lines(batch)
            file.buffer.write(_rows(batch, lines))
            first, last = batch.slice(0, SHOWN), batch.slice(max(0, batch.num_rows - SHOWN))
            summarizer.add(lines, batch.num_rows, [*events_in(first)], [*events_in(last)])
        return summarizer.summary()


def _lines(batch: pa.RecordBatch) -> bytes:
    """Return the lines ``fire<TAB>key<LF>``."""
    fires = pc.cast(batch.column("fire"), pa.string())
    lines = pc.binary_join_element_wise(fires, "\t", batch.column("key"), "\n", "")
    # The texts of a column lie in memory one after the other, so that joining them needs no loop.
    whole = pa.ListArray.from_arrays(pa.array([0, len(lines)], pa.int32()), lines)
    data: bytes = pc.binary_join(whole, "")[0].as_buffer().to_pybytes()
    return data


def _rows(batch: pa.RecordBatch, lines: bytes) -> bytes:
    """Return the batch as CSV; if no key needs quotes, *lines* with commas in place of tabs."""
    plain = lines.count(b"\t") == lines.count(b"\n") == batch.num_rows
    if plain and not any(sign in lines for sign in _NEEDS_CARE):
        return lines.replace(b"\t", b",")
    text = io.StringIO()
    csv.writer(CsvLines(text)).writerows(events_in(batch))
    return text.getvalue().encode()
