"""Bad rows are reported with file, line, reason and the row itself."""

import csv
import os
from pathlib import Path

import pytest

from aiowheel.errors import AiowheelError
from aiowheel.readers import Inputs, Reject, TimedRows, TimeFormat, Unit, time_parser, write_rejects

pytestmark = pytest.mark.one_build


def rejects_of(path: Path, time_column: str = "t", key: str = "key") -> list[Reject]:
    """Return the reported rows of a file."""
    found: list[Reject] = []
    rows = TimedRows(
        Inputs([str(path)]),
        key=key,
        time=time_column,
        parse_time=time_parser(TimeFormat.EPOCH, Unit.S),
        earliest=10,
        latest=20,
        put_aside=found.append,
    )
    for _ in rows.batches():
        pass
    assert rows.rejected == sum(not reject.used for reject in found)
    assert rows.irregular == sum(reject.used for reject in found)
    return found


def test_bad_rows_are_reported_unchanged(tmp_path: Path) -> None:
    """Rejected rows, irregular rows, and rows outside the range of times are reported."""
    path = tmp_path / "a.csv"
    path.write_text('key,t\nk,15\n"a,b",x\nk,15,more\nk,9\nk,21\nk\n')

    found = rejects_of(path)

    assert found == [
        Reject(str(path), 3, "time 'x' is not a whole number >= 0", '"a,b",x', used=False),
        Reject(str(path), 4, "3 fields where the header has 2", "k,15,more", used=True),
        Reject(str(path), 5, "time '9' is before 10", "k,9", used=False),
        Reject(str(path), 6, "time '21' is beyond 20", "k,21", used=False),
        Reject(str(path), 7, "1 fields where the header has 2", "k", used=False),
    ]


def test_malformed_lines_are_reported_unchanged(tmp_path: Path) -> None:
    """A malformed line is reported as its own text."""
    path = tmp_path / "a.ndjson"
    path.write_text('{"key": "k", "t": 15}\n{"key": "k"\n')

    assert [reject.raw for reject in rejects_of(path)] == ['{"key": "k"']


def test_a_touch_of_several_in_a_line_is_reported_alone(tmp_path: Path) -> None:
    """A line of a megabyte may have ten thousand of them."""
    path = tmp_path / "a.ndjson"
    touches = '{"id":"a","t":15},{"id":"b","t":"x,y"},{"id":"c"},{"t":16},{"id":7,"t":99}'
    path.write_text(f'{{"in":[{touches}]}}\n{{"in":[{{"id":"d"}}]}}\n')

    found = rejects_of(path, "in[].t", "in[].id")

    assert [reject.raw for reject in found] == [
        *('b,"x,y"', "c,", ",16", "7,99"),
        '{"in":[{"id":"d"}]}',
    ]


def test_half_of_a_character_is_reported_as_its_escape(tmp_path: Path) -> None:
    """JSON may name half of a surrogate pair, which no UTF-8 text can hold."""
    path, aside = tmp_path / "a.ndjson", tmp_path / "rejects.csv"
    path.write_bytes(b'{"h":[{"id":"\\ud83d"},{"id":"\\udfff\xff"},{"id":"b"}],"t":15}\n')

    with write_rejects(aside) as put:
        for reject in rejects_of(path, key="h[].id"):
            put(reject)

    rows = [row.split(b"UTF-8,")[1] for row in aside.read_bytes().splitlines()[1:]]
    assert rows == [rb'"\ud83d,15",false', b'"\\udfff\xff,15",false']


def test_the_file_of_rejects_can_be_read_back(tmp_path: Path) -> None:
    """The file is CSV, and bytes that were not UTF-8 are unchanged."""
    path, aside = tmp_path / "a.csv", tmp_path / "rejects.csv"
    path.write_bytes(b'key,t\nk,15\n"\xff,""",11\n')

    with write_rejects(aside) as put:
        for reject in rejects_of(path):
            put(reject)

    with aside.open(encoding="utf-8", errors="surrogateescape", newline="") as file:
        header, row = csv.reader(file)
    assert header == ["source", "line", "reason", "raw", "used"]
    assert row == [str(path), "3", "the key is not UTF-8", '"\udcff,""",11', "false"]


@pytest.mark.parametrize("line_end", ["\n", "\r", "\r\n"])
def test_a_row_with_line_ends_is_reported_as_one_line_of_csv(line_end: str, tmp_path: Path) -> None:
    """The reported row can be corrected and read again."""
    path, aside = tmp_path / "a.csv", tmp_path / "rejects.csv"
    path.write_bytes(f'key,t\nk,15\n"a{line_end}b",x\n'.encode())

    with write_rejects(aside) as put:
        for reject in rejects_of(path):
            put(reject)

    with aside.open(newline="") as file:
        _, row = csv.reader(file)
    assert row[3] == f'"a{line_end}b",x'


def test_a_failed_run_leaves_no_file(tmp_path: Path) -> None:
    """Neither the file nor its hidden temporary file remains."""
    with pytest.raises(ValueError, match="soon"), write_rejects(tmp_path / "rejects.csv"):
        raise ValueError("soon")

    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_names_the_output(tmp_path: Path, small_disk: None) -> None:
    """The error names the output file, although the rows are still being read."""
    row = Reject("in.csv", 2, "why", "x" * 100_000, used=False)
    taken_for_its_own: list[OSError] = []

    with (
        pytest.raises(AiowheelError, match=r"bad\.csv: File too large"),
        write_rejects(tmp_path / "bad.csv") as put,
    ):
        try:
            put(row)
        except OSError as error:  # as in the readers
            taken_for_its_own.append(error)

    assert taken_for_its_own == []
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_without_write_permission_is_named(tmp_path: Path) -> None:
    """The error is one line with the path."""
    tmp_path.chmod(0o500)

    with (
        pytest.raises(AiowheelError, match=r"rejects\.csv: Permission denied"),
        write_rejects(tmp_path / "rejects.csv"),
    ):
        pass
