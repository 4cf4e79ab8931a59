"""Reading a trace without Spark."""

import os
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pyarrow.parquet as pq
import pytest

from aiowheel import Outcome, build_info
from aiowheel.errors import BadInputError
from aiowheel.trace import TRACE_SCHEMA, TraceRecorder, read_trace, read_trace_pandas, trace_files
from aiowheel.trace._check import check_trace
from aiowheel.trace._stored import stored_recorder

from .conftest import Finish

pytestmark = pytest.mark.one_build


@pytest.fixture
def trace(tmp_path: Path, finish: Finish) -> Path:
    """Write two files: one completed operation, and one expired."""
    with TraceRecorder(tmp_path, batch_rows=1, file_rows=1) as recorder:
        finish(recorder)
        finish(recorder, outcome=Outcome.EXPIRED, finished=2.25)
    return tmp_path


def test_all_files_are_one_table(trace: Path) -> None:
    """Files are read in the order of their names, with the trace's schema."""
    table = read_trace(trace)

    assert table.schema.equals(TRACE_SCHEMA)
    assert table["operation_id"].to_pylist() == [0, 1]


def test_dictionaries_are_shared_between_files(trace: Path) -> None:
    """Grouping by outcome works although each file has its own dictionary."""
    counted = read_trace(trace).group_by("outcome").aggregate([([], "count_all")])

    assert {row["outcome"]: row["count_all"] for row in counted.to_pylist()} == {
        "completed": 1,
        "expired": 1,
    }


def test_columns_can_be_chosen(trace: Path) -> None:
    """Only the named columns are read, in the given order."""
    assert read_trace(trace, columns=["outcome", "checks"]).column_names == ["outcome", "checks"]


@pytest.mark.parametrize("read", [read_trace, read_trace_pandas])
def test_an_unknown_column_is_named(trace: Path, read: Callable[..., object]) -> None:
    """The error does not report the file as damaged."""
    with pytest.raises(ValueError, match=r"columns must be one of 'run_id', .*, got 'late'"):
        read(trace, columns=["outcome", "late"])


def test_pandas_keeps_integers_beside_missing_values(trace: Path) -> None:
    """Nanoseconds stay exact in a column with nulls."""
    frame = read_trace_pandas(trace)

    assert frame["lateness"].dtype == pd.Int64Dtype()
    assert frame["lateness"].tolist() == [pd.NA, 250_000_000]
    assert frame["created"].dtype == pd.Int64Dtype()


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    """The error names the folder, not an internal file."""
    with pytest.raises(FileNotFoundError, match=r"no trace file .* in '.*nowhere'"):
        trace_files(tmp_path / "nowhere")


def test_a_folder_without_permission_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The permission error is simulated, because root has access to all folders."""

    def refuse(path: str | os.PathLike[str]) -> None:
        raise PermissionError(13, "Permission denied", os.fspath(path))

    monkeypatch.setattr(os, "scandir", refuse)

    with pytest.raises(PermissionError, match="Permission denied"):
        trace_files(tmp_path)


def rewrite(file: Path, version: bytes | None) -> None:
    """Give a trace file another version, or none."""
    table = pq.read_table(file)
    metadata = {b"aiowheel.trace.version": version} if version is not None else None
    pq.write_table(table.replace_schema_metadata(metadata), file)


def test_the_version_is_in_the_file_itself(trace: Path) -> None:
    """Readers that do not read Arrow's schema find the version too."""
    for file in trace_files(trace):
        assert pq.read_metadata(file).metadata[b"aiowheel.trace.version"] == b"1"
        assert stored_recorder(file) == str(build_info())


def test_a_trace_without_a_version_is_version_1(trace: Path) -> None:
    """Files from before the version was introduced stay readable."""
    for file in trace_files(trace):
        rewrite(file, None)

    assert read_trace(trace)["operation_id"].to_pylist() == [0, 1]


@pytest.mark.parametrize(("version", "shown"), [(b"2", "2"), (b"\x1b[2J", r"b'\x1b[2J'")])
def test_an_unknown_version_is_refused(trace: Path, version: bytes, shown: str) -> None:
    """One error names the file, the version found and the versions understood."""
    rewrite(trace_files(trace)[1], version)

    with pytest.raises(BadInputError) as caught:
        read_trace(trace)

    assert str(caught.value) == f"{trace_files(trace)[1]}: trace version must be 1, got {shown}"


def damage(file: Path, column: str) -> None:
    """Overwrite the data of a column; the footer stays intact."""
    group = pq.read_metadata(file).row_group(0)
    place = pq.read_schema(file).names.index(column)
    chunk = group.column(place)
    content = bytearray(file.read_bytes())
    start = chunk.data_page_offset
    content[start : start + chunk.total_compressed_size] = b"\xff" * chunk.total_compressed_size
    file.write_bytes(content)


def test_a_damaged_file_is_named(trace: Path) -> None:
    """The error names the file, although Arrow's error does not."""
    damage(trace_files(trace)[1], "created")

    with pytest.raises(BadInputError, match="or damaged") as caught:
        read_trace(trace)

    assert str(trace_files(trace)[1]) in str(caught.value)


@pytest.mark.posix
def test_a_relative_folder_with_a_colon_is_read(
    trace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Arrow would take the text before the colon for the scheme of a URI."""
    monkeypatch.chdir(trace.rename(trace.with_name("run:1")).parent)

    assert len(read_trace("run:1")) == 2
    assert len(check_trace("run:1")) == 2


@pytest.mark.linux
def test_a_path_that_arrow_cannot_open_is_refused(trace: Path) -> None:
    """Arrow takes paths in UTF-8 only."""
    folder = trace.rename(trace.with_name(os.fsdecode(b"\xff")))

    with pytest.raises(BadInputError, match=r"\.parquet: the path must be UTF-8"):
        read_trace(folder)


@pytest.mark.posix
def test_a_missing_file_is_named(trace: Path) -> None:
    """The error has the system's own text."""
    file = trace_files(trace)[0]
    file.unlink()
    file.symlink_to(trace / "gone")

    with pytest.raises(BadInputError, match=r"\.parquet: .*No such file"):
        read_trace(trace)
