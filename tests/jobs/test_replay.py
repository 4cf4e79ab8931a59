"""Replaying a trace on another wheel: no Spark."""

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from aiowheel import DelayedOperation, ManualTimer, Outcome, Purgatory
from aiowheel._build import build_info
from aiowheel.cli import run
from aiowheel.jobs.wheels.replay import replay_trace
from aiowheel.trace import TRACE_SCHEMA, TraceRecorder

pytestmark = pytest.mark.one_build

MS = 1_000_000


class Reply(DelayedOperation[None]):
    """Completes when its flag is set."""

    ready = False

    def try_complete(self) -> bool:
        """Check the flag."""
        return self.ready


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    """Record with a tick of 1 ms: three timeouts of 95 ms, one completion, two without a timer."""
    folder = tmp_path / "trace"
    timer = ManualTimer(tick=0.001)
    with TraceRecorder(
        folder, clock=timer.time, wall_clock=lambda: 1_800_000_000_000_000_000
    ) as recorder:
        fetch = Purgatory("fetch", timer=timer, instruments=[recorder])
        acks = Purgatory("acks", timer=timer, instruments=[recorder])
        for purgatory in (fetch, fetch, acks):
            purgatory.try_complete_else_watch(Reply(timeout=0.095), ["k"])
        done, at_once, endless = Reply(0.095), Reply(0.095), Reply(float("inf"))
        at_once.ready = True
        for operation in (done, at_once, endless):
            fetch.try_complete_else_watch(operation, ["d"])
        timer.advance(0.05)
        done.ready = True
        fetch.check_and_complete("d")
        endless.ready = True
        fetch.check_and_complete("d")
        timer.advance(1.0)
    return folder


def test_the_recording_wheel_repeats_its_timeouts(trace: Path) -> None:
    """The timeouts are the same; operations without a timer are counted separately."""
    found = replay_trace(trace, tick_ns=MS, wheel_size=256)

    assert (found.operations, found.at_once, found.without_timeout) == (4, 1, 1)
    assert found.recorded["expired"] == found.replayed["expired"] == 3
    assert found.replayed["late_max"] < 0.001
    assert found.replayed["peak_pending"] == 4
    assert found.unknown == 0


def test_a_coarser_tick_fires_later(trace: Path) -> None:
    """On a tick of 100 ms, timeouts fire at the next multiple of the tick."""
    found = replay_trace(trace, tick_ns=100 * MS, wheel_size=16)

    assert found.replayed["expired"] == 3
    assert 0 < found.replayed["late_max"] < 0.1
    assert found.replayed["wake_ups"] == 1


def test_a_shorter_timeout_expires_completed_operations(trace: Path) -> None:
    """An operation that waited 50 ms times out after 40; the report counts the difference."""
    found = replay_trace(trace, tick_ns=MS, wheel_size=256, timeout_ns=40 * MS)

    assert found.replayed["expired"] == 5  # includes the operation recorded without a timeout
    assert (found.unknown, found.ended_late) == (0, 2)


def test_timeouts_before_a_longer_timeout_are_counted(trace: Path) -> None:
    """The trace does not contain the time that they would have taken."""
    found = replay_trace(trace, tick_ns=MS, wheel_size=256, timeout_ns=400 * MS)

    assert found.replayed["expired"] == 3
    assert found.unknown == 3


def test_timeouts_that_were_over_at_once_are_not_counted(tmp_path: Path) -> None:
    """In virtual time a timeout of 0 ends at its creation, and the replay leaves it out."""
    with TraceRecorder(tmp_path) as recorder:
        recorder.timer_finished("t", "k", MS, 2 * MS, 3 * MS, Outcome.EXPIRED)
        recorder.timer_finished("t", "k", MS, MS, MS, Outcome.EXPIRED)

    found = replay_trace(tmp_path, tick_ns=MS, wheel_size=256, timeout_ns=400 * MS)

    assert (found.operations, found.at_once) == (1, 1)
    assert (found.recorded["expired"], found.unknown) == (1, 1)
    assert found.recorded["late_p50"] == 0.001


def test_one_purgatory_can_be_replayed_alone(
    trace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The output is JSON; an unknown name is bad input, and the error lists the known ones."""
    assert run(["replay", str(trace), "--purgatory", "acks", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["operations"] == 1

    assert run(["replay", str(trace), "--purgatory", "axe"]) == 2
    assert capsys.readouterr().err == (
        "aiowheel: the trace has no purgatory 'axe'; it has 'acks', 'fetch'\n"
    )


def test_trace_and_replay_are_printed_side_by_side(
    trace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Both results are in plain columns, with the numbers of excluded operations."""
    assert run(["replay", str(trace), "--tick", "0.1", "--timeout", "0.2"]) == 0

    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["recorded", "replayed"]
    assert lines[1].split() == ["operations", "5", "5"]
    assert "1 more were over at once and armed no timeout" in lines
    assert any(line.startswith("3 timed out in the trace before the new timeout") for line in lines)
    assert lines[-3:] == [
        f"trace        {trace.resolve()}",
        f"recorded by  {build_info()}",
        f"read by      {build_info()}",
    ]


def test_the_recorded_median_is_that_of_the_report(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The nearest rank: of an even number of values, the lower one in the middle."""
    with TraceRecorder(tmp_path) as recorder:
        for late_ms in (1, 2, 3, 100):
            ended = 2 * 10**9 + late_ms * 10**6
            recorder.timer_finished("t", "k", 10**9, 2 * 10**9, ended, Outcome.EXPIRED)

    assert run(["replay", str(tmp_path), "--json"]) == 0

    recorded = json.loads(capsys.readouterr().out)["recorded"]
    assert [recorded[name] for name in ("late_p50", "late_p99", "late_max")] == [0.002, 0.1, 0.1]


def test_completions_after_the_deadline_are_counted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """An operation completed after its deadline is a timeout in the replay only."""
    clock = ManualTimer(tick=0.001)
    with TraceRecorder(tmp_path, clock=clock.time, wall_clock=lambda: 0, run_id="r") as recorder:
        purgatory = Purgatory("p", timer=clock, instruments=[recorder])
        purgatory.try_complete_else_watch(Reply(timeout=0.01), ["k"])
        clock.advance(0.02)
    (file,) = tmp_path.glob("*.parquet")
    (row,) = pq.read_table(file).to_pylist()
    completed = {"outcome": "completed", "lateness": None, "completed_by": "k", "operation_id": 1}
    pq.write_table(pa.Table.from_pylist([row, row | completed], TRACE_SCHEMA), file)

    assert run(["replay", str(tmp_path)]) == 0

    printed = capsys.readouterr().out
    assert "1 of the replayed timeouts ended in the trace after their deadline" in printed
    assert "recorded by  some files name no recorder" in printed
    found = replay_trace(tmp_path, tick_ns=MS, wheel_size=256)
    assert (found.recorded["expired"], found.replayed["expired"], found.ended_late) == (1, 2, 1)


@pytest.mark.parametrize("seconds", [600_000_000.0, 1e9])  # 19 years and 31
def test_a_timeout_of_many_years_times_out(trace: Path, seconds: float) -> None:
    """The timeout fires exactly, also beyond 16 years."""
    found = replay_trace(trace, tick_ns=MS, wheel_size=256, timeout_ns=round(seconds * 1e9))

    assert found.replayed["expired"] == 3
    assert found.replayed["late_max"] < 0.001


def test_a_trace_longer_than_the_time_of_a_wheel_is_bad_input(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A clock that started in 1970: the error has the longest possible time."""
    clock = ManualTimer(tick=0.001)
    with TraceRecorder(tmp_path, clock=clock.time, wall_clock=lambda: 0, run_id="r") as recorder:
        purgatory = Purgatory("p", timer=clock, instruments=[recorder])
        purgatory.try_complete_else_watch(Reply(timeout=0.095), ["k"])
        clock.advance(0.2)
    (file,) = tmp_path.glob("*.parquet")
    (row,) = pq.read_table(file).to_pylist()
    times = {name: row[name] + 1_800_000_000_000_000_000 for name in ("created", "deadline")}
    later = row | times | {"operation_id": 1, "finished": times["deadline"]}
    pq.write_table(pa.Table.from_pylist([row, later], TRACE_SCHEMA), file)

    assert run(["replay", str(tmp_path), "--timeout", "1e9"]) == 2

    assert capsys.readouterr().err == (
        "aiowheel: the time from the first operation of a run to the last deadline must be at most "
        "2305843009 s with this tick, got 2800000000 s\n"
    )


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (["--tick", "0"], "--tick must be from 1e-09 to 1e+09 s, got 0"),
        (["--timeout", "inf"], "--timeout must be from 1e-09 to 1e+09 s, got inf"),
        (["--wheel-size", "1"], "--wheel-size must be from 2 to 16777216, got 1"),
    ],
)
def test_options_out_of_range_are_bad_input(
    trace: Path, options: list[str], reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The error is one line with exit code 2."""
    assert run(["replay", str(trace), *options]) == 2

    assert capsys.readouterr().err == f"aiowheel: {reason}\n"


def test_a_parquet_file_without_a_trace_is_bad_input(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The columns are checked, because any file would be read as a trace full of nulls."""
    file = tmp_path / "trace-other.parquet"
    pq.write_table(pa.table({"a": [1]}), file)

    assert run(["replay", str(tmp_path)]) == 2

    assert capsys.readouterr().err == f"aiowheel: {file}: not a trace: no column 'run_id'\n"


@pytest.mark.parametrize("command", ["replay", "report", "tune", "simulate --fit"])
def test_a_trace_of_an_unknown_version_is_bad_input(
    trace: Path, command: str, needs_spark: None, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every reader of a trace has the same error, before Spark is started."""
    (file,) = trace.glob("*.parquet")
    table = pq.read_table(file)
    pq.write_table(table.replace_schema_metadata({"aiowheel.trace.version": "7"}), file)

    assert run([*command.split(), str(trace)]) == 2

    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err == f"aiowheel: {file}: trace version must be 1, got 7\n"


def test_a_damaged_page_is_bad_input(trace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The error is one line with exit code 2 that names the file, not a traceback."""
    (file,) = trace.glob("*.parquet")
    chunk = pq.read_metadata(file).row_group(0).column(5)
    content = bytearray(file.read_bytes())
    for at in range(chunk.data_page_offset, chunk.data_page_offset + chunk.total_compressed_size):
        content[at] = 0xFF
    file.write_bytes(content)

    assert run(["replay", str(trace)]) == 2

    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"aiowheel: {file}: not a Parquet file, or damaged: ")


@pytest.mark.parametrize(
    ("column", "values", "flaw"),
    [
        ("created", pa.array(["1"] * 6), "column 'created' must hold signed integers, got string"),
        (
            "created",
            pa.array([1] * 6, pa.uint64()),
            "column 'created' must hold signed integers, got uint64",
        ),
        (
            "lateness",
            pa.array([1.5] * 6),
            "column 'lateness' must hold signed integers, got double",
        ),
        ("keys", pa.array(["k"] * 6), "column 'keys' must hold lists, got string"),
        ("outcome", pa.array([1] * 6), "column 'outcome' must hold texts, got int64"),
        ("finished", pa.nulls(6, pa.int64()), "column 'finished' has 6 missing values"),
    ],
)
def test_a_column_of_another_type_is_bad_input(
    trace: Path, column: str, values: pa.Array, flaw: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The error names the file, instead of a traceback or an empty result."""
    (file,) = trace.glob("*.parquet")
    table = pq.read_table(file)
    pq.write_table(table.set_column(table.column_names.index(column), column, values), file)

    assert run(["replay", str(trace)]) == 2

    assert capsys.readouterr().err == f"aiowheel: {file}: not a trace: {flaw}\n"


@pytest.mark.parametrize("column", ["created", "finished", "outcome"])
def test_missing_values_are_found_without_statistics(
    trace: Path, column: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Parquet may be written without statistics; a row without a time cannot be replayed."""
    (file,) = trace.glob("*.parquet")
    table = pq.read_table(file).replace_schema_metadata()
    some = table[column].to_pylist()[:-1]
    place, kind = table.column_names.index(column), table[column].type
    nullable = table.set_column(place, column, pa.array([*some, None]).cast(kind))
    pq.write_table(nullable, file, write_statistics=False)

    assert run(["replay", str(trace)]) == 2

    flaw = f"column {column!r} has 1 missing values"
    assert capsys.readouterr().err == f"aiowheel: {file}: not a trace: {flaw}\n"


def test_a_trace_rewritten_by_another_program_is_read(trace: Path) -> None:
    """Spark writes the columns without dictionaries."""
    (file,) = trace.glob("*.parquet")
    before = replay_trace(trace, tick_ns=MS, wheel_size=256)
    plain = [
        field.with_type(field.type.value_type) if pa.types.is_dictionary(field.type) else field
        for field in TRACE_SCHEMA
    ]
    pq.write_table(pq.read_table(file).cast(pa.schema(plain)), file)

    assert replay_trace(trace, tick_ns=MS, wheel_size=256) == before
