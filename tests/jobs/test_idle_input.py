"""Bad and unusual input of `aiowheel idle`: both engines end alike, and name the file."""

import gzip
import json
import random
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pytest

from aiowheel.cli import run
from aiowheel.readers import pieces_of

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")

pytestmark = [
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.timeout(180),
    pytest.mark.usefixtures("one_session"),
]
GOOD_CSV = "key,t\nk,1\nj,2\n"


class Ending(NamedTuple):
    """The complete result of a run."""

    code: int
    errors: str
    idle: bytes
    rejects: bytes
    report: dict[str, object]


@pytest.fixture(autouse=True)
def in_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run each test in an empty folder."""
    monkeypatch.chdir(tmp_path)
    Path("in").mkdir()


@pytest.fixture
def both(capsys: pytest.CaptureFixture[str]) -> Callable[..., Ending]:
    """Run both engines on the folder `in`; return their result, which must be equal."""

    def end(*options: str) -> Ending:
        endings: list[Ending] = []
        for engine in ("wheel", "spark"):
            outputs = [Path("idle.csv"), Path("bad.csv")]
            for output in outputs:
                output.unlink(missing_ok=True)
            arguments = ["idle", "in", "--key", "key", "--time", "t", "--timeout", "30"]
            arguments += ["--out", "idle.csv", "--rejects", "bad.csv", "--engine", engine]
            code = run([*arguments, "--json", *options])
            printed = capsys.readouterr()
            report = json.loads(printed.out or "{}")
            for different in ("engine", "seconds"):
                report.pop(different, None)
            left = [path.read_bytes() if path.exists() else b"" for path in outputs]
            endings.append(Ending(code, printed.err, left[0], left[1], report))
            assert {path.name for path in Path.cwd().iterdir()} <= {"in", "idle.csv", "bad.csv"}
        assert endings[0] == endings[1]
        return endings[0]

    return end


def write_damaged_parquet(path: Path) -> None:
    """Write a file with an intact footer and damaged pages."""
    columns = {"key": [f"key-{row}" for row in range(1_000)], "t": list(range(1_000))}
    pq.write_table(pa.table(columns), path, compression="snappy", use_dictionary=False)
    data = bytearray(path.read_bytes())
    data[40:1_000] = b"\xff" * 960
    path.write_bytes(data)


def test_a_csv_cut_inside_a_quote_ends_alike(both: Callable[..., Ending]) -> None:
    """The last row is cut off, and its rest is not a valid time."""
    Path("in/a.csv").write_text(GOOD_CSV + 'k,"57')

    ending = both()

    assert (ending.code, ending.idle) == (0, b"fire,key\n31,k\n32,j\n")
    assert ending.rejects.splitlines()[1:] == [
        b'in/a.csv,4,the file ends inside a quoted field,"k,57",false'
    ]


def test_parquet_without_rows_ends_alike(both: Callable[..., Ending]) -> None:
    """A table of several parts, one without rows, as written by Spark; then only such parts."""
    columns = {"key": pa.array([], pa.string()), "t": pa.array([], pa.int64())}
    pq.write_table(pa.table(columns), "in/part-0.parquet")
    pq.write_table(pa.table({"key": ["k"], "t": [1]}), "in/part-1.parquet")
    Path("in/_SUCCESS").touch()

    some = both()
    Path("in/part-1.parquet").unlink()
    none = both()

    assert (some.code, some.idle, some.report["files"]) == (0, b"fire,key\n31,k\n", 2)
    assert (none.code, none.idle) == (0, b"fire,key\n")
    assert (none.report["rows"], none.report["keys"]) == (0, 0)


@pytest.mark.parametrize(
    ("name", "write"),
    [
        ("b.parquet", write_damaged_parquet),
        pytest.param(
            "b.parquet",
            lambda path: path.write_bytes(random.Random(7).randbytes(5_000)),
            marks=pytest.mark.thorough,
        ),
        ("b.parquet", lambda path: pq.write_table(pa.table({"key": [""], "t": [-1]}), path)),
        ("b.csv.gz", lambda path: path.write_bytes(gzip.compress(GOOD_CSV.encode() * 99)[:-9])),
        pytest.param(
            "b.csv.gz",
            lambda path: path.write_bytes(gzip.compress(GOOD_CSV.encode())[:20] + b"x"),
            marks=pytest.mark.thorough,
        ),
        ("b.tar.gz", lambda path: path.write_bytes(random.Random(7).randbytes(5_000))),
        ("b.csv", lambda path: path.write_text("key,time\nk,1\n")),
        ("b.csv", lambda path: path.write_text("key,t\nk,x\n,3\n")),
        ("b.txt", lambda path: path.write_text(GOOD_CSV)),
    ],
    ids=[
        "damaged page", "random parquet", "parquet of bad rows", "cut gz", "damaged gz",
        "random tar", "no column", "no good row", "unknown format",
    ],
)  # fmt: skip
def test_an_unusable_file_is_named(
    name: str, write: Callable[[Path], object], both: Callable[..., Ending]
) -> None:
    """The error is one line with exit code 2; the first of several such files is named."""
    if name != "b.parquet":  # all Parquet: Spark reads it itself
        Path("in/a.csv").write_text(GOOD_CSV)
        Path("in/c.csv").write_text("nothing")
    write(Path("in", name))

    ending = both()

    assert (ending.code, ending.idle, ending.rejects) == (2, b"", b"")
    assert ending.errors.startswith(f"aiowheel: in/{name}: ")
    assert ending.errors.count("\n") == 1


@pytest.mark.parametrize("name", ["0.csv", "b.csv"])
def test_an_empty_file_is_named(name: str, both: Callable[..., Ending]) -> None:
    """Spark shares the files out by their size: a first file without a byte needs a task, too."""
    Path("in/a.csv").write_text(GOOD_CSV)
    Path("in", name).touch()

    ending = both()

    assert (ending.code, ending.idle) == (2, b"")
    assert ending.errors.startswith(f"aiowheel: in/{name}: line 1: no column 'key'")
    assert ending.errors.endswith("the file is empty)\n")


def test_rejects_of_parquet_are_equal(both: Callable[..., Ending]) -> None:
    """Rejects are in the order of files and rows, not of tasks; invalid UTF-8 is unchanged."""
    offsets, data = pa.array([0, 1, 2], pa.int32()).buffers()[1], pa.py_buffer(b"a\xff")
    no_utf8 = pa.Array.from_buffers(pa.string(), 2, [None, offsets, data])
    pq.write_table(pa.table({"key": no_utf8, "t": [1, 5]}), "in/b.parquet")
    columns = {"key": ["k", None, "", "k", "k"] * 99, "t": [1, 2, 3, None, -4] * 99}
    pq.write_table(pa.table(columns), "in/a.parquet")
    pq.write_table(pa.table(columns), "in/c d.parquet")

    ending = both()

    sources = [line.partition(b",")[0] for line in ending.rejects.splitlines()[1:]]
    assert sources == sorted(sources)
    assert len(sources) == 2 * 4 * 99 + 1
    assert b'in/b.parquet,2,the key is not UTF-8,"\xff,5",false\n' in ending.rejects


@pytest.mark.parametrize("options", [(), ("--strict",)])
def test_rejects_of_files_cut_into_pieces_are_equal(
    options: tuple[str, ...], both: Callable[..., Ending], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rejects are in the order of files and lines, byte for byte, also with invalid UTF-8."""
    pieces_of_text = partial(pieces_of, size=150)
    monkeypatch.setattr("aiowheel.jobs.idle.piece_touches.pieces_of", pieces_of_text)
    source = random.Random(7)
    keys = [b"k", b"", b"\xff", b'"k,\n1"', b'"say ""hi"""', "é".encode()]
    rows = [
        b"%s,%s%s" % (source.choice(keys), source.choice([b"5", b"x", b"\xff", b"70"]), more)
        for more in source.choices([b"\n", b",more\n", b"\r\n", b"\n\n"], k=200)
    ]
    Path("in/c.csv").write_bytes(b"key,t\n" + b"".join(rows))
    Path("in/a.csv").write_bytes(b"t,key\r\n" + b"5,k\r\n" * 50 + b'6,"k')
    lines = [b'{"key":"k","t":5}\n', b'{"key":"\xff","t":5}\n', b'{"key":7\r\n', b"\n", b"[]\n"]
    Path("in/b.ndjson").write_bytes(lines[0] + b"".join(source.choices(lines, k=100)))

    ending = both(*options)

    assert ending.code == (2 if options else 0)
    assert len(ending.rejects.splitlines()) > 200 or options
    assert b"\xff" in ending.rejects or options
