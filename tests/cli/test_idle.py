"""`aiowheel idle`: its results, its output and its errors.

Tests on real data are under tests/jobs.
"""

import csv
import gzip
import hashlib
import json
import os
import sqlite3
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from aiowheel.cli import run
from aiowheel.cli._idle_file import write_idle_events
from aiowheel.errors import AiowheelError
from aiowheel.readers import TimeOrder

pytestmark = pytest.mark.one_build

ROOT = Path(__file__).parents[2]
ROWS = 'key,t\nb,10\na,10\na,40\n"c,""d",35\na,71\n'
EVENTS = 'fire,key\n40,b\n65,"c,""d"\n70,a\n101,a\n'


@pytest.fixture(autouse=True)
def in_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run each test in an empty folder."""
    monkeypatch.chdir(tmp_path)


def idle(*arguments: str) -> int:
    """Run the command on these arguments with the usual columns and output."""
    columns = ["--key", "key", "--time", "t", "--timeout", "30", "--out", "out.csv"]
    return run(["idle", *columns, *arguments])


def files() -> list[str]:
    """Return the names of all files in the folder, including hidden ones."""
    return sorted(path.name for path in Path.cwd().iterdir())


def test_events_are_written_by_fire_time_and_key() -> None:
    """The file has a header, integers and LF; a row at the limit keeps its key alive."""
    Path("a.csv").write_text(ROWS)

    code = idle("a.csv")

    assert code == 0
    assert Path("out.csv").read_bytes() == EVENTS.encode()
    assert files() == ["a.csv", "out.csv"]


def test_keys_with_line_ends_can_be_read_back() -> None:
    """A key with any line end is quoted, so that it stays one field."""
    keys = ["a\rb", "c\nd", "e\r\nf"]
    rows = [json.dumps({"key": key, "t": place}) for place, key in enumerate(keys)]
    Path("a.ndjson").write_text("\n".join(rows))

    assert idle("a.ndjson") == 0

    with Path("out.csv").open(newline="") as file:
        assert [key for _, key in csv.reader(file)] == ["key", *keys]


@pytest.mark.parametrize("step", ["distinct_keys", "__iter__"])
def test_a_full_disk_leaves_the_earlier_result(
    step: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The disk may be full at any call of the sorter."""
    Path("a.csv").write_text(ROWS)
    Path("out.csv").write_text("earlier")

    def fail(_order: TimeOrder) -> None:
        raise sqlite3.OperationalError("database or disk is full")

    monkeypatch.setattr(TimeOrder, step, fail)

    assert idle("a.csv") == 1

    assert capsys.readouterr().err == (
        "aiowheel: sorting on disk failed: database or disk is full\n"
    )
    assert Path("out.csv").read_text() == "earlier"
    assert files() == ["a.csv", "out.csv"]


def test_a_pipe_gets_plain_lines(capsys: pytest.CaptureFixture[str]) -> None:
    """There is no frame and no colour, and stderr is empty if all rows are good."""
    Path("a.csv").write_text(ROWS)

    idle("a.csv")

    printed = capsys.readouterr()
    lines = dict(line.split(None, 1) for line in printed.out.splitlines() if " " in line)
    assert printed.err == ""
    assert lines["engine"].strip() == "wheel"
    assert "idle events  4\n" in printed.out
    assert "\x1b" not in printed.out


@pytest.mark.parametrize("kind", ["pipe", "terminal", "json"])
def test_control_characters_of_a_key_are_escaped_on_a_terminal(
    kind: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The file has the key unchanged."""
    if kind == "terminal":
        monkeypatch.setenv("FORCE_COLOR", "1")
        monkeypatch.setenv("COLUMNS", "200")
    Path("a.csv").write_text("key,t\na\x1b[2J\x9b7m,1\n\x1b]0;title\x07,x\n")

    assert idle("a.csv", *(["--json"] if kind == "json" else [])) == 0

    printed = capsys.readouterr()
    assert "\x1b[2J" not in printed.out + printed.err
    assert "\x1b]0" not in printed.out + printed.err
    assert "\x9b" not in printed.out + printed.err
    assert (r"a\u001b[2J\u009b7m" if kind == "json" else r"a\x1b[2J\x9b7m") in printed.out
    assert Path("out.csv").read_text() == "fire,key\n31,a\x1b[2J\x9b7m\n"


def test_long_keys_are_cut_on_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    """The file and the JSON have the whole key."""
    key = "k" * 81
    Path("a.csv").write_text(f"key,t\n{key},1\n{key[1:]},2\n")

    idle("a.csv")
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    idle("a.csv", "--json")
    report = json.loads(capsys.readouterr().out)

    shown = [["31", "k" * 77 + "..."], ["32", "k" * 80]]
    assert [line[1:] for line in lines if line[0] in {"first", "last"}] == shown * 2
    assert report["first"] == report["last"] == [[31, key], [32, key[1:]]]
    assert Path("out.csv").read_text() == f"fire,key\n31,{key}\n32,{key[1:]}\n"


def test_json_is_one_object(capsys: pytest.CaptureFixture[str]) -> None:
    """It has all counts and the digest, for scripts."""
    Path("a.csv").write_text(ROWS + "k,-1\n")

    idle("a.csv", "--json")

    report = json.loads(capsys.readouterr().out)
    assert report.pop("seconds") >= 0
    assert report == {
        "engine": "wheel",
        "unit": "s",
        "timeout": 30,
        "files": 1,
        "rows_read": 6,
        "rows": 5,
        "rejected": 1,
        "irregular": 0,
        "keys": 3,
        "idle_events": 4,
        "first": [[40, "b"], [65, 'c,"d'], [70, "a"]],
        "last": [[65, 'c,"d'], [70, "a"], [101, "a"]],
        "sha256": hashlib.sha256(b'40\tb\n65\tc,"d\n70\ta\n101\ta\n').hexdigest(),
        "out": "out.csv",
    }


def test_bad_rows_are_named_on_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    """The first ones have file, line and reason; the run continues."""
    Path("a.csv").write_text("key,t\nk,1\n" + "k,x\n" * 7 + "k,2,3\n")

    code = idle("a.csv")

    printed = capsys.readouterr().err.splitlines()
    assert code == 0
    assert printed[0] == "aiowheel: 7 rows rejected, the first 5:"
    assert printed[1] == "  a.csv: line 3: time 'x' is not a whole number >= 0"
    assert printed[6:] == [
        "aiowheel: 1 row irregular, used all the same:",
        "  a.csv: line 10: 3 fields where the header has 2",
    ]


def test_bad_rows_can_be_written_to_a_file() -> None:
    """They have file, line, reason and the row; rows outside the given range are among them."""
    Path("a.csv").write_text("key,t\nk,15\nk,x\nk,9\nk,21\nk,16,3\n")

    code = idle("a.csv", "--earliest", "10", "--latest", "20", "--rejects", "bad.csv")

    assert code == 0
    assert Path("out.csv").read_text() == "fire,key\n46,k\n"
    assert Path("bad.csv").read_text().splitlines() == [
        "source,line,reason,raw,used",
        """a.csv,3,time 'x' is not a whole number >= 0,"k,x",false""",
        """a.csv,4,time '9' is before 10,"k,9",false""",
        """a.csv,5,time '21' is beyond 20,"k,21",false""",
        """a.csv,6,3 fields where the header has 2,"k,16,3",true""",
    ]
    assert files() == ["a.csv", "bad.csv", "out.csv"]


def test_parquet_needs_no_spark() -> None:
    """Both engines read Parquet."""
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    pq.write_table(pa.table({"key": ["b", "a"], "t": [10, 10]}), "a.parquet")

    assert idle("a.parquet") == 0

    assert Path("out.csv").read_text() == "fire,key\n40,a\n40,b\n"


def test_an_access_log_needs_no_columns() -> None:
    """The Common Log Format fixes key, time and time format; the suffix selects it."""
    line = 'host{} - - [10/Oct/2000:13:55:{} -0700] "GET / HTTP/1.0" 200 1\n'
    with gzip.open("access.log.1.gz", "wt") as file:
        file.write(line.format("A", "36") + line.format("B", "30"))

    code = run(["idle", "access.log.1.gz", "--timeout", "30", "--out", "out.csv"])

    assert code == 0
    assert Path("out.csv").read_text() == "fire,key\n971211360,hostB\n971211366,hostA\n"


def test_a_log_of_zeek_needs_a_key_alone() -> None:
    """The format fixes the times; the key may have several names."""
    Path("conn.log").write_text(
        "#separator \\x09\n#unset_field\t-\n#fields\tts\tid.orig_h\n"
        "1331901000.250000\t10.0.0.7\n1331901000.500000\t-\n"
    )
    arguments = ["--key", "client", "--key", "id.orig_h", "--unit", "us", "--timeout", "30"]

    assert run(["idle", "conn.log", *arguments, "--out", "out.csv"]) == 0

    assert Path("out.csv").read_text() == "fire,key\n1331901030250000,10.0.0.7\n"


def test_files_folders_and_globs_are_one_table() -> None:
    """The rows of all files are sorted together."""
    Path("folder").mkdir()
    Path("folder/a.csv").write_text("key,t\nk,100\n")
    Path("b1.csv").write_text("key,t\nk,50\n")
    Path("b2.csv.gz").write_bytes(gzip.compress(b"t,key\n75,k\n"))

    idle("folder", "b*.csv*")

    assert Path("out.csv").read_text() == "fire,key\n130,k\n"


@pytest.mark.skipif(sys.platform == "win32", reason="a path there begins with a drive")
def test_files_may_be_named_by_uris(tmp_path: Path) -> None:
    """A `file` URI is a path in every option."""
    Path("in.csv").write_text(ROWS + ",1\n")
    uri = f"file://{tmp_path}"

    code = idle(f"{uri}/in.csv", "--out", f"{uri}/out.csv", "--rejects", f"{uri}/bad.csv")

    assert code == 0

    assert Path("out.csv").read_text() == EVENTS
    assert "the key is empty" in Path("bad.csv").read_text()


def test_nanoseconds_stay_exact() -> None:
    """A float would round both times."""
    Path("a.csv").write_text("key,t\nk,1674981729479000001\nj,1674981729479000002\n")

    idle("a.csv", "--unit", "ns", "--timeout", "0.000000001")

    assert Path("out.csv").read_text() == (
        "fire,key\n1674981729479000002,k\n1674981729479000003,j\n"
    )


TRUNCATED = gzip.compress(b"key,t\n" + b"k,1\n" * 99)[:-10]


@pytest.mark.parametrize(
    ("content", "arguments", "reason"),
    [
        (TRUNCATED, [], "in.csv: after line "),
        (b"name,t\nk,1\n", [], "in.csv: line 1: no column 'key' (columns: name, t)"),
        (b"", [], "in.csv: line 1: no column 'key' (columns: none: the file is empty)"),
        (b"key,t\nk,x\n", [], "in.csv: no good row (1 rejected, the last: line 2: time 'x' is not"),
        (b"key,t\nk,1\n,2\n", ["--strict"], "in.csv: line 3: the key is empty"),
        (
            b"key,t\nk,1\n",
            ["--timeout", "0"],
            "--timeout: timeout must be a number of seconds above",
        ),
        (b"key,t\nk,1\n", ["--timeout", "-1"], "above 0, got -1.0"),
        (b"key,t\nk,1\n", ["--timeout", "nan"], "1h30m, with the units"),
        (
            b"key,t\nk,1\n",
            ["--timeout", "0.5"],
            "whole number of s, got 0.5 s: choose a finer --unit",
        ),
        (b"key,t\nk,1\n", ["--timeout", "soon"], "must be a duration such as 30, 1.5"),
        (b"key,t\nk,1\n", ["--format", "xml"], "for '--format': 'xml' is not one of 'tsv'"),
        (b"key,t\nk,1\n", ["--key", ""], "--key must be the name of a column"),
        (b"key,t\nk,1\n", ["missing.csv"], "missing.csv: no such file"),
        (b"key,t\nk,1\n", ["--out", "no/out.csv"], "no: no such folder for --out"),
        (b"key,t\nk,1\n", ["--out", "in.csv"], "--out must be another file than the inputs"),
        (b"key,t\nk,1\n", ["--out", "."], "--out must be a file, got .: it is a folder"),
        (b"key,t\nk,1\n", ["--rejects", "."], "--rejects must be a file, got .: it is a folder"),
        (
            b"key,t\nk,1\n",
            ["--rejects", "./out.csv"],
            "must be another file than --out, got out.csv",
        ),
        (b"key,t\nk,1\n", ["--latest", "-5"], "greater than or equal to 0, got '-5'"),
    ],
)
def test_unusable_input_is_one_line_and_exit_code_2(
    content: bytes, arguments: Sequence[str], reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The line has file, line and reason; no file is written."""
    Path("in.csv").write_bytes(content)

    code = idle("in.csv", *arguments)

    printed = capsys.readouterr()
    assert code == 2
    assert reason in printed.err
    assert (printed.err.count("\n"), printed.out) == (1, "")
    assert files() == ["in.csv"]


def test_the_blanks_of_a_name_stay_in_its_error(capsys: pytest.CaptureFixture[str]) -> None:
    """The name can be copied from the error."""
    for name in ("a  b .csv", " "):
        assert idle(name) == 2
        assert capsys.readouterr().err == f"aiowheel: {name}: no such file\n"


def test_an_earlier_result_survives_a_failed_run() -> None:
    """The file is replaced atomically."""
    Path("a.csv").write_bytes(TRUNCATED)
    Path("out.csv").write_text("earlier")

    code = idle("a.csv")

    assert code == 2
    assert Path("out.csv").read_text() == "earlier"


def test_a_full_disk_for_the_rejects_leaves_both_earlier_results(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The rejects may be on another disk than the result."""
    Path("a.csv").write_text(ROWS + "k,x\n")
    for name in ("out.csv", "bad.csv"):
        Path(name).write_text("earlier")
    sync = os.fsync

    def fail_for_rejects(descriptor: int) -> None:
        for path in Path.cwd().glob(".*.tmp"):
            is_it = os.path.samestat(path.stat(), os.fstat(descriptor))
            if is_it and path.read_text().startswith("source,line,"):
                raise OSError(28, "No space left on device")
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", fail_for_rejects)

    assert idle("a.csv", "--rejects", "bad.csv") == 1

    assert capsys.readouterr().err == "aiowheel: bad.csv: No space left on device\n"
    assert [Path(name).read_text() for name in ("out.csv", "bad.csv")] == ["earlier"] * 2
    assert files() == ["a.csv", "bad.csv", "out.csv"]


def test_a_failure_while_writing_leaves_nothing() -> None:
    """The temporary file is removed too."""

    def events() -> list[tuple[int, str]]:
        raise OSError(28, "No space left on device")

    with pytest.raises(AiowheelError, match=r"out\.csv: No space left on device"):
        write_idle_events((event for _ in "x" for event in events()), Path("out.csv"))

    assert files() == []


@pytest.mark.parametrize(
    ("missing", "extra"), [("pyspark", "aiowheel[spark]"), ("java", "aiowheel[spark-java]")]
)
def test_what_spark_lacks_is_one_line_and_exit_code_1(
    missing: str, extra: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The line is the command that installs it; no row is read before."""
    Path("a.csv").write_text(ROWS)
    if missing == "pyspark":
        monkeypatch.delitem(sys.modules, "aiowheel.jobs.idle.batch", raising=False)
        monkeypatch.setitem(sys.modules, "pyspark.sql", None)
    else:
        pytest.importorskip("pyspark")
        pytest.importorskip("pyarrow")
        monkeypatch.setattr("aiowheel.jobs.spark.java._candidates", lambda: iter(()))

    code = idle("a.csv", "--engine", "spark")

    assert code == 1
    assert capsys.readouterr().err == f"aiowheel: this needs: pip install '{extra}'\n"
    assert files() == ["a.csv"]


@pytest.mark.posix
def test_spark_refuses_a_pipe(capsys: pytest.CaptureFixture[str]) -> None:
    """Its bytes come only once, and the workers of Spark open each input again."""
    os.mkfifo("pipe.csv")
    Path("link.csv").symlink_to("pipe.csv")
    Path("a.csv").write_text(ROWS)

    assert idle("a.csv", "link.csv", "--engine", "spark") == 2

    assert capsys.readouterr().err == (
        "aiowheel: link.csv: is a pipe, a socket or a device, which --engine spark cannot read: "
        "use --engine wheel, or write the rows to a file first\n"
    )
    assert files() == ["a.csv", "link.csv", "pipe.csv"]


def test_the_wheel_needs_no_spark() -> None:
    """The default engine imports neither PySpark nor pyarrow."""
    Path("a.csv").write_text(ROWS)
    code = (
        "import sys\n"
        "from aiowheel.cli import run\n"
        "run('idle a.csv --key key --time t --timeout 30 --out out.csv'.split())\n"
        "sys.exit(str({'pyspark', 'pyarrow', 'pandas'} & set(sys.modules) or ''))\n"
    )
    paths = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))

    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": paths},
        check=False,
    )

    assert done.stderr.strip() == ""
    assert Path("out.csv").read_bytes() == EVENTS.encode()
