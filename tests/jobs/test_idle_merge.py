"""Merging the parts of Spark's tasks, and writing them like the wheel's events."""

import random
from pathlib import Path

import pytest

from aiowheel.cli._idle_file import write_idle_events

pytestmark = pytest.mark.one_build

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")

Row = tuple[int, str | None]


def write_parts(folder: Path, parts: list[list[Row]]) -> list[Path]:
    """Write each part sorted only by time, like Spark."""
    paths = []
    for number, rows in enumerate(parts):
        rows.sort(key=lambda row: row[0])
        columns = {
            "fire": pa.array([fire for fire, _ in rows], pa.int64()),
            "key": pa.array([key for _, key in rows], pa.string()),
        }
        paths.append(folder / f"part-{number}.parquet")
        pq.write_table(pa.table(columns), paths[-1])
    return paths


@pytest.mark.parametrize("instants", [1, 7, 500])
def test_parts_are_merged_by_time_then_key(
    instants: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Small batches, many events of one instant, parts of any length, and rows without a key."""
    from aiowheel.jobs.idle import merge

    monkeypatch.setattr(merge, "_EVENTS_IN_MEMORY", 20)
    monkeypatch.setattr(merge, "_FEWEST_A_PART", 3)
    source = random.Random(7)
    keys = ["b", "a", "", "é", "\uffff", "\U00010000", None]

    for count in (0, 1, 2, 9):
        parts: list[list[Row]] = [
            [(source.randrange(instants), source.choice(keys)) for _ in range(source.randrange(60))]
            for _ in range(count)
        ]
        merged = [
            (row["fire"], row["key"])
            for batch in merge.merged_parts(write_parts(tmp_path, parts))
            for row in batch.to_pylist()
        ]
        events = [(fire, key) for part in parts for fire, key in part if key is not None]
        assert merged == sorted(events, key=lambda event: (event[0], event[1].encode()))


@pytest.mark.parametrize("odd", [[], [","], ['"'], ["\t"], ["a\nb"], ["\r"], [""]])
def test_columns_are_written_as_events_are(odd: list[str], tmp_path: Path) -> None:
    """Bytes and summary are the same, whether a key needs quotes or not."""
    from aiowheel.cli._idle_columns import write_idle_columns

    events = [(number, key) for number, key in enumerate(["a", "é", *odd, "z"] * 3)]
    columns = {"fire": [fire for fire, _ in events], "key": [key for _, key in events]}
    batches = [pa.record_batch(columns).slice(at, 4) for at in range(0, len(events), 4)]

    by_columns = write_idle_columns(batches, tmp_path / "columns.csv")

    assert by_columns == write_idle_events(events, tmp_path / "events.csv")
    assert (tmp_path / "columns.csv").read_bytes() == (tmp_path / "events.csv").read_bytes()
