"""A file cut into pieces gives the same rows and rejects as the whole file, for any cuts."""

import gzip
import random
from collections.abc import Sequence
from pathlib import Path

import pytest

from aiowheel.errors import BadInputError
from aiowheel.readers import (
    Format,
    Inputs,
    Piece,
    Reject,
    Scan,
    TimedRows,
    TimeFormat,
    Unit,
    pieces_of,
    time_parser,
)
from aiowheel.readers._inputs import Sources

pytestmark = pytest.mark.one_build

pytest.importorskip("numpy")

#: The parts of a random table; rows made of them are good, bad and irregular.
TOKENS = {
    Format.CSV: [
        *('"', '""', '"\n', ',"', ",", ",7", "k", "\n", "\r\n", "\r", "é"),
        *(5 * ["k,5\n", '"k",6\n', '"k\n""k\r",7,\n']),
    ],
    Format.TSV: ['"', "\t", "\t7", "k", "\n", "\r\n", "\r", "\t\n", "k\t5\n", "k\t6\t7\n"],
    Format.NDJSON: ['{"key":"k","t":5}\n', "{", "\n", "\r\n", "\ufeff", '{"key":"","t":5}\n', "7"],
    Format.CLF: ['h - - [5] "-" 200 1\n', "h - - ", "\n", "\r", '[5] "-" 200 1', "\ufeff"],
}
Seen = tuple[list[tuple[int, str]], list[Reject], str]


def seen(inputs: Sources, form: Format) -> Seen:
    """Return the rows, the rejects, and the reason why reading ended."""
    found: list[Reject] = []
    is_clf = form is Format.CLF
    rows = TimedRows(
        inputs,
        key="host" if is_clf else "key",
        time="time" if is_clf else "t",
        parse_time=time_parser(TimeFormat.EPOCH, Unit.S),
        allow_empty=True,
        put_aside=found.append,
    )
    pairs: list[tuple[int, str]] = []
    try:
        for batch in rows.batches():
            pairs += zip(batch.times, batch.keys, strict=True)
    except BadInputError as error:
        return pairs, found, str(error)
    return pairs, found, ""


def scan_all(pieces: Sequence[Piece]) -> list[Scan]:
    """Scan the pieces one after the other."""
    return [piece.scan() for piece in pieces]


def cut(path: Path, form: Format, size: int) -> tuple[list[Piece], Seen]:
    """Return the pieces of a file, and their combined contents."""
    pieces = pieces_of(Inputs([str(path)], form), scan_all, size)
    each = [seen(piece, form) for piece in pieces]
    rows = [row for pairs, _, _ in each for row in pairs]
    rejects = [reject for _, found, _ in each for reject in found]
    return pieces, (rows, rejects, next((error for _, _, error in each if error), ""))


@pytest.mark.parametrize("form", list(TOKENS))
def test_pieces_of_any_table_give_the_whole_table(form: Format, tmp_path: Path) -> None:
    """Balanced and unbalanced quotes, all kinds of line ends, and pieces of a few bytes."""
    source, several = random.Random(7), 0
    header = {Format.CSV: '"key",t\n', Format.TSV: "key\tt\n"}.get(form, "")
    path = tmp_path / "table"

    for _ in range(400):
        # In every second CSV all quotes are balanced: the last tokens are whole rows.
        tokens = TOKENS[form][source.choice([0, -15]) :]
        text = header + "".join(source.choices(tokens, k=source.randrange(40)))
        path.write_bytes(text.encode())
        pieces, together = cut(path, form, source.randrange(8, 40))
        several += len(pieces) > 1
        assert together == seen(Inputs([str(path)], form), form), text

    assert several > 100


def test_a_table_is_not_cut_inside_quotes(tmp_path: Path) -> None:
    """A table with such rows is cut between rows."""
    path = tmp_path / "a.csv"
    path.write_text("key,t,note\n" + 'k,5,"say ""hi"",\nand\n\n"\n' * 500)

    pieces, together = cut(path, Format.CSV, 35)

    assert len(pieces) > 20
    assert together == seen(Inputs([str(path)]), Format.CSV)
    assert len(together[0]) == 500


def test_a_header_after_a_blank_line_stands_before_each_piece(tmp_path: Path) -> None:
    """The blank line has the byte order mark of the file."""
    path = tmp_path / "a.csv"
    path.write_text("\ufeff\nkey,t\n" + "k,5\n" * 50)

    pieces, together = cut(path, Format.CSV, 35)

    assert len(pieces) > 5
    assert together == seen(Inputs([str(path)]), Format.CSV)


def test_a_file_with_unbalanced_quotes_stays_whole(tmp_path: Path) -> None:
    """The CSV reader takes the quote as a character; counting quotes would open a field."""
    path = tmp_path / "a.csv"
    path.write_text("key,t,note\n" + 'k,5,a 5" pipe\nk,6,"a\nb"\n' * 50)

    pieces, together = cut(path, Format.CSV, 100)

    assert len(pieces) == 1
    assert len(together[0]) == 100


def test_a_file_with_too_long_a_field_stays_whole(tmp_path: Path) -> None:
    """The lines inside the field are no rows; the rows after it are read."""
    path = tmp_path / "a.csv"
    lost = '"' + "x,5\n" * 50_000 + '"'
    path.write_text(f"key,t\n{lost},5\n" + 'k,6\n"k",7\n' * 50_000)

    pieces, together = cut(path, Format.CSV, 100_000)

    assert len(pieces) == 1
    assert len(together[0]) == 100_000
    assert ["field larger than" in reject.reason for reject in together[1]] == [True]


@pytest.mark.parametrize("name", ["a.csv.gz", "a.tar.gz", "a.parquet", "a.unknown"])
def test_an_uncuttable_file_is_one_piece(name: str, tmp_path: Path) -> None:
    """Files that cannot be cut stay whole, whatever their suffix."""
    path = tmp_path / name
    path.write_bytes(gzip.compress(b"key,t\n" + random.Random(7).randbytes(5_000)))

    assert pieces_of(Inputs([str(path)]), scan_all, 100) == [Piece(str(path), path, None)]


def test_a_missing_file_of_a_piece_is_named_as_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error has the user's name of the file, not the absolute path for the workers."""
    monkeypatch.chdir(tmp_path)
    Path("a.csv").write_text("key,t\n")
    (piece,) = pieces_of(Inputs(["a.csv"]), scan_all)
    Path("a.csv").unlink()

    assert seen(piece, Format.CSV)[2] == "a.csv: No such file or directory"
