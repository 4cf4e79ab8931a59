"""A trace read back without Spark."""

from pathlib import Path

import pandas as pd
import pytest

from aiowheel import Outcome
from aiowheel.trace import TRACE_SCHEMA, TraceRecorder, read_trace, read_trace_pandas, trace_files

from .conftest import Finish


@pytest.fixture
def trace(tmp_path: Path, finish: Finish) -> Path:
    """Two files: one completed operation, and one expired."""
    with TraceRecorder(tmp_path, batch_rows=1, file_rows=1) as recorder:
        finish(recorder)
        finish(recorder, outcome=Outcome.EXPIRED, finished=2.25)
    return tmp_path


def test_all_files_are_one_table(trace: Path) -> None:
    """Files follow each other in the order of their names, under the trace's schema."""
    table = read_trace(trace)

    assert table.schema.equals(TRACE_SCHEMA)
    assert table["operation_id"].to_pylist() == [0, 1]


def test_dictionaries_are_shared_between_files(trace: Path) -> None:
    """Grouping by outcome works although each file brought a dictionary of its own."""
    counted = read_trace(trace).group_by("outcome").aggregate([([], "count_all")])

    assert {row["outcome"]: row["count_all"] for row in counted.to_pylist()} == {
        "completed": 1,
        "expired": 1,
    }


def test_columns_can_be_chosen(trace: Path) -> None:
    """Only the named columns are read, in the order of their names given."""
    assert read_trace(trace, columns=["outcome", "checks"]).column_names == ["outcome", "checks"]


def test_pandas_keeps_integers_beside_missing_values(trace: Path) -> None:
    """Nanoseconds stay exact in a column that has nulls."""
    frame = read_trace_pandas(trace)

    assert frame["lateness"].dtype == pd.Int64Dtype()
    assert frame["lateness"].tolist() == [pd.NA, 250_000_000]
    assert frame["created"].dtype == pd.Int64Dtype()


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    """The error names the folder, not an internal file."""
    with pytest.raises(FileNotFoundError, match=r"no trace file .* in '.*nowhere'"):
        trace_files(tmp_path / "nowhere")
