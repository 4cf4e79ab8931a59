"""What the commands over jobs print on stdout."""

import json

import pytest

from aiowheel.cli._job_output import print_json, print_lines, print_table

pytestmark = pytest.mark.one_build


def test_columns_are_aligned_and_what_rows_share_is_said_once(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Words to the left, numbers to the right, nothing cut."""
    print_table(["name", "rate", "count"], [["a", "5/s", "1"], ["longer", "5/s", "1,000"]], texts=1)

    assert capsys.readouterr().out.splitlines() == [
        "name    count",
        "a           1",
        "longer  1,000",
        "all: rate 5/s",
    ]


def test_one_row_is_names_and_values(capsys: pytest.CaptureFixture[str]) -> None:
    """A table of one row has nothing to align."""
    print_table(["tick", "wake-ups"], [["1 ms", "7"]])

    assert capsys.readouterr().out.splitlines() == ["tick      1 ms", "wake-ups  7"]


def test_cells_and_json_command_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    """Escaped in words as Python does it, in JSON as JSON does it."""
    evil = "a\x1b[2J\x9b31m\u202e"

    print_table(["id", "n"], [[evil, "1"], ["b", "2"]], texts=1)
    print_lines([("id", evil)])
    print_json({evil: evil})

    printed = capsys.readouterr().out
    assert printed.replace("\n", "").isprintable()
    assert printed.count(r"a\x1b[2J\x9b31m\u202e") == 2
    assert json.loads(printed[printed.index("{") :]) == {evil: evil}
