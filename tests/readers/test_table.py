"""Accepted, rejected and irregular rows: the same rules for every format."""

import gzip
import json
import re
from pathlib import Path

import pytest

from aiowheel.errors import BadInputError
from aiowheel.readers import (
    LATEST_TIME,
    Format,
    Inputs,
    TimedRows,
    TimeFormat,
    TimeOrder,
    Unit,
    time_parser,
)

pytestmark = pytest.mark.one_build


def table(
    path: Path,
    form: Format | None = None,
    *,
    key: str | tuple[str, ...] = "key",
    time: str = "t",
    written: TimeFormat = TimeFormat.EPOCH,
    strict: bool = False,
) -> TimedRows:
    """Return a table of one path with the usual columns."""
    return TimedRows(
        Inputs([str(path)], form),
        key=key,
        time=time,
        parse_time=time_parser(written, Unit.S),
        strict=strict,
    )


def pairs(rows: TimedRows) -> list[tuple[int, str]]:
    """Return every accepted row, in file order."""
    return [row for batch in rows.batches() for row in zip(batch.times, batch.keys, strict=True)]


def test_csv_follows_rfc_4180(tmp_path: Path) -> None:
    """Quoted commas, doubled quotes, line ends inside a field, CRLF, no newline at the end."""
    path = tmp_path / "a.csv"
    path.write_bytes(b'note,key,t\r\n"a,""b""\nc",k1,5\r\n\r\n-,"k,2",6')

    assert pairs(table(path)) == [(5, "k1"), (6, "k,2")]


def test_tsv_has_no_quoting(tmp_path: Path) -> None:
    """A quote is an ordinary character."""
    path = tmp_path / "a.tsv"
    path.write_text('key\tt\tagent\n"k\t5\tsay "hi"\n')

    assert pairs(table(path)) == [(5, '"k')]


def test_ndjson_keeps_numbers_exact(tmp_path: Path) -> None:
    """Numbers beyond 2**53 stay exact, which a float would round."""
    path = tmp_path / "a.ndjson"
    path.write_text('{"key": "k", "t": 1674981729479000001}\n\n{"key": 7, "t": "6", "x": [1]}\n')

    assert pairs(table(path)) == [(1674981729479000001, "k"), (6, "7")]


def test_clf_reads_common_and_combined_lines(tmp_path: Path) -> None:
    """Both formats have host and time; quotes in the request are escaped with a backslash."""
    path = tmp_path / "access.log"
    path.write_text(
        '::1 - - [10/Oct/2000:13:55:36 -0700] "GET /a?q=\\"x\\" HTTP/1.0" 200 2326\n'
        '10.0.0.1 - J Doe [10/Oct/2000:13:55:37 -0700] "-" 408 - "-" "curl/8 \\"x\\"" 0.1\n'
    )

    rows = table(path, key="host", time="time", written=TimeFormat.CLF)

    assert pairs(rows) == [(971211336, "::1"), (971211337, "10.0.0.1")]


def test_several_files_are_one_table(tmp_path: Path) -> None:
    """Each file has its own header, with columns in any order."""
    (tmp_path / "a.csv").write_text("key,t\nk1,5\n")
    (tmp_path / "b.csv").write_text("t,x,key\n3,-,k2\n")
    (tmp_path / "c.ndjson").write_text('{"t": 4, "key": "k3"}\n')
    rows = table(tmp_path)

    assert pairs(rows) == [(5, "k1"), (3, "k2"), (4, "k3")]
    assert (rows.files, rows.accepted, rows.rejected) == (3, 3, 0)


@pytest.mark.parametrize(
    ("name", "text", "reason"),
    [
        ("a.csv", b"key,t\nk,1\n,5\n", "line 3: the key is empty"),
        ("a.csv", b"key,t\nk,1\nk,-5\n", "line 3: time '-5' is not a whole number >= 0"),
        ("a.csv", b"key,t\nk,1\nk,\n", "line 3: time '' is not a whole number >= 0"),
        ("a.csv", b"key,t\nk,1\nk\n", "line 3: 1 fields where the header has 2"),
        ("a.csv", b"key,t\nk,1\n\xff,5\n", "line 3: the key is not UTF-8"),
        ("a.csv", b"key,t\nk,1\nk,%d\n" % (LATEST_TIME + 1), "is beyond 2305843009213693951"),
        ("a.csv", b"key,t\nk,1\n" + b"k" * 140_000 + b",5\n", "line 3: field larger than"),
        ("a.csv", b'key,t\n"k\nk",1\n\n,5\n', "line 5: the key is empty"),
        ("a.csv", b'key,t\nk,1\nk,"57', "line 3: the file ends inside a quoted field"),
        ("a.csv", b'key,t\nk,1\n"k,5\nk,6\n', "line 3: the file ends inside a quoted field"),
        ("a.ndjson", b'{"key":"k","t":1}\n{"key":"k","t":5\n', "line 2: no JSON: "),
        ("a.ndjson", b'{"key":"k","t":1}\n["k",5]\n', "line 2: no JSON object"),
        ("a.ndjson", b'{"key":"k","t":1}\n{"t":5}\n', "line 2: field 'key' is missing"),
        ("a.ndjson", b'{"key":"k","t":1}\n{"key":"k","t":null}\n', "line 2: field 't' is missing"),
        ("a.ndjson", b'{"key":"k","t":1}\n{"key":true,"t":5}\n', "line 2: field 'key' is missing"),
        ("a.ndjson", b'{"key":"k","t":1}\n' + b"[" * 100_000 + b"\n", "line 2: no JSON"),
    ],
)
def test_a_bad_row_is_counted_and_reported(
    name: str, text: bytes, reason: str, tmp_path: Path
) -> None:
    """The other rows of the file are used."""
    path = tmp_path / name
    path.write_bytes(text)
    rows = table(path)

    assert len(pairs(rows)) == 1
    assert (rows.accepted, rows.rejected) == (1, 1)
    assert len(rows.rejects) == 1
    assert rows.rejects[0].startswith(f"{path}: line ")
    assert reason in rows.rejects[0]


@pytest.mark.parametrize(
    ("row", "lines"),
    [
        (b'k,7,"%s\nx,8,x\nk,9,"\n' % (b"a" * 140_000), 3),
        (b'k,7,"a ""%s\nx,8,""\n""x"",8\n9"\r\n' % (b"x,8,x\n" * 30_000), 30_004),
        (b'k,7,"a" "%s\n' % (b"a" * 140_000), 1),
        (b'k,"%s\nx,8,"\n' % (b"a" * 140_000), 2),
        (b'k,7"%s\n' % (b"a" * 140_000), 1),
    ],
    ids=["quoted", "doubled quotes", "after a quote", "no time", "unquoted"],
)
def test_what_is_in_too_long_a_field_is_no_row(row: bytes, lines: int, tmp_path: Path) -> None:
    """Whoever chooses the text of a field must not make up rows; rows around it are used."""
    path = tmp_path / "a.csv"
    path.write_bytes(b"key,t,x\nk,1,\n" + row + b"k,2,\n,3,\n")
    rows = table(path)

    assert pairs(rows) == [(1, "k"), (2, "k")]
    assert rows.rejects[0].startswith(f"{path}: line 3: field larger than")
    assert rows.rejects[1:] == [f"{path}: line {lines + 4}: the key is empty"]


def test_too_long_a_field_without_an_end_is_the_last_row(tmp_path: Path) -> None:
    """The same reason as for a short one."""
    path = tmp_path / "a.csv"
    path.write_text("key,t\nk,1\n" + 'k,"2\n' + "k,3\n" * 50_000)
    rows = table(path)

    assert pairs(rows) == [(1, "k")]
    assert rows.rejects == [f"{path}: line 3: the file ends inside a quoted field"]


@pytest.mark.parametrize(
    "line",
    [
        "start of a stack trace",
        'www.example.com:443 h - - [10/Oct/2000:13:55:36 -0700] "GET /" 200 1 "-" "curl"',
        'www.example.com:443 h - frank [10/Oct/2000:13:55:36 -0700] "GET /" 200 1',
    ],
)
def test_a_line_of_another_format_is_rejected(line: str, tmp_path: Path) -> None:
    """Such a line does not affect the lines around it; the name of a server is no client."""
    path = tmp_path / "access.log"
    path.write_text(f'h - a b [10/Oct/2000:13:55:36 -0700] "GET /" 200 1\n{line}\n')
    rows = table(path, key="host", time="time", written=TimeFormat.CLF)

    assert pairs(rows) == [(971211336, "h")]
    assert rows.rejects == [f"{path}: line 2: not in Common or Combined Log Format"]


def test_a_crafted_line_takes_linear_time(tmp_path: Path) -> None:
    """A megabyte of brackets, which a name may hold, would take an hour in quadratic time."""
    path = tmp_path / "access.log"
    path.write_text(f'h - {" [" * 500_000}\nh - - [10/Oct/2000:13:55:36 -0700] "-" 200 1\n')
    rows = table(path, key="host", time="time", written=TimeFormat.CLF)

    assert pairs(rows) == [(971211336, "h")]
    assert rows.rejected == 1


def test_an_irregular_row_with_key_and_time_is_kept(tmp_path: Path) -> None:
    """Rows with too many fields, or too few after key and time, are used and reported."""
    path = tmp_path / "a.csv"
    path.write_text("key,t,x\nk,1,-\nk,2,-,more\nk,3\n")
    rows = table(path)

    assert pairs(rows) == [(1, "k"), (2, "k"), (3, "k")]
    assert (rows.accepted, rows.rejected, rows.irregular) == (3, 0, 2)
    assert rows.irregularities[0] == f"{path}: line 3: 4 fields where the header has 3"


@pytest.mark.parametrize("row", ["k,-1,-", "k,1,-,more"])
def test_strict_ends_at_the_first_bad_row(row: str, tmp_path: Path) -> None:
    """The error has the file, the line and the reason of the rejected or irregular row."""
    path = tmp_path / "a.csv"
    path.write_text(f"key,t,x\nk,1,-\n{row}\n")

    with pytest.raises(BadInputError, match=r"a\.csv: line 3: "):
        pairs(table(path, strict=True))


def test_only_the_first_few_bad_rows_are_kept(tmp_path: Path) -> None:
    """All bad rows could be as many as the rows of the file."""
    path = tmp_path / "a.csv"
    path.write_text("key,t\nk,1\n" + "k,x\n" * 1000)
    rows = table(path)
    pairs(rows)

    assert (rows.rejected, len(rows.rejects)) == (1000, 5)


@pytest.mark.parametrize(
    ("name", "data", "reason"),
    [
        ("a.csv", b"", "line 1: no column 'key' .*empty"),
        ("a.csv", b"name,t\nk,1\n", r"line 1: no column 'key' \(columns: name, t\)"),
        ("a.csv", b"\n\nname,t\n", "no column 'key'"),
        ("a.csv", b"key,t,key\nk,1,\n", "line 1: 2 columns are named 'key'"),
        ("a.tsv", b"key\tt\tt\nk\t1\t2\n", "line 1: 2 columns are named 't'"),
        ("a.csv", b"\0" * 200_000, "line 1: field larger than"),
        ("a.csv", b"key,t\n", "no good row"),
        ("a.csv", b'key,"t\nk,1\n', "line 1: the file ends inside a quoted field"),
        ("a.csv", b"key,t\nk,soon\n", "no good row .1 rejected, the last: line 2: time 'soon'"),
        ("a.ndjson", b"", "no good row"),
        ("a.csv.gz", gzip.compress(b""), "line 1: no column 'key' .*empty"),
        ("a.csv.gz", gzip.compress(b"key,t\n" + b"k,1\n" * 9)[:-12], "truncated"),
        ("a.csv.gz", gzip.compress(b"key,t\n" + b"k,1\n" * 9)[:-8] + b"\0" * 8, "damaged"),
    ],
)
def test_an_unusable_file_is_refused(name: str, data: bytes, reason: str, tmp_path: Path) -> None:
    """The error names the file and the reason."""
    path = tmp_path / name
    path.write_bytes(data)

    with pytest.raises(BadInputError, match=rf"^{re.escape(str(path))}: .*{reason}"):
        pairs(table(path))


def test_clf_columns_have_fixed_names(tmp_path: Path) -> None:
    """A wrong column name gives an error with the list of columns."""
    path = tmp_path / "access.log"
    path.write_text("anything\n")

    with pytest.raises(BadInputError, match=r"no column 'ip' \(columns: host, "):
        pairs(table(path, key="ip", time="time"))


@pytest.mark.parametrize(
    ("name", "text", "found"),
    [
        ("a.csv", "uid,t,id\na,1,b\n", "b"),
        ("a.csv", "uid,t\na,1\n", "a"),
        ("a.ndjson", '{"uid": "a", "t": 1, "id": "b"}\n', "b"),
        ("a.ndjson", '{"uid": "a", "t": 1, "id": null}\n', "a"),
        ("a.ndjson", '{"uid": "a", "t": 1, "user": {"name": "c"}}\n', "c"),
    ],
)
def test_the_first_existing_key_name_is_used(
    name: str, text: str, found: str, tmp_path: Path
) -> None:
    """One list of names fits files of several writers."""
    (tmp_path / name).write_text(text)

    assert pairs(table(tmp_path / name, key=("id", "user.name", "uid"))) == [(1, found)]


def test_all_names_of_a_missing_key_are_reported(tmp_path: Path) -> None:
    """The error lists the columns of the file."""
    (tmp_path / "a.csv").write_text("name,t\nk,1\n")

    with pytest.raises(BadInputError, match=r"no column 'id' or 'uid' \(columns: name, t\)"):
        pairs(table(tmp_path / "a.csv", key=("id", "uid")))


@pytest.mark.parametrize(
    ("row", "key", "time", "found"),
    [
        ('{"conn": {"uid": "a"}, "t": 1}', "conn.uid", "t", [(1, "a")]),
        ('{"conn.uid": "a", "t": 1, "conn": {"uid": "b"}}', "conn.uid", "t", [(1, "a")]),
        ('{"h": [{"id": 7}, {"id": "b"}], "t": 1}', "h[].id", "t", [(1, "7"), (1, "b")]),
        ('{"h": ["a", "b"], "m": {"t": 1}}', "h[]", "m.t", [(1, "a"), (1, "b")]),
        (
            '{"h": [{"id": "a", "t": 1}, {"id": "b", "t": 2}]}', "h[].id", "h[].t",
            [(1, "a"), (2, "b")],
        ),
        (
            '{"h": [{"t": 1, "in": [{"id": "a"}, {"id": "b"}]}]}', "h[].in[].id", "h[].t",
            [(1, "a"), (1, "b")],
        ),
        ('{"h": [], "t": 1}', "h[].id", "t", []),
    ],
)  # fmt: skip
def test_a_path_leads_into_nested_json(
    row: str, key: str, time: str, found: list[tuple[int, str]], tmp_path: Path
) -> None:
    """A top-level name takes precedence; each element of a list is a touch."""
    path = tmp_path / "a.ndjson"
    path.write_text(row + '\n{"conn": {"uid": "z"}, "h": [{"id": "z", "in": [{"id": "z"}], '
                    '"t": 9}], "m": {"t": 9}, "t": 9}\n')  # fmt: skip
    rows = table(path, key=key, time=time)

    assert pairs(rows)[: len(found)] == found
    assert rows.rejected == (key == "h[]")  # an object is no key


@pytest.mark.parametrize(
    "row", ['{"t": 5}', '{"h": 7, "t": 5}', '{"h": [7], "t": 5}', '{"h": [{"id": {}}], "t": 5}']
)
def test_a_path_without_a_value_rejects_the_row(row: str, tmp_path: Path) -> None:
    """The error names the path."""
    path = tmp_path / "a.ndjson"
    path.write_text('{"h": [{"id": "a"}], "t": 1}\n' + row + "\n")
    rows = table(path, key="h[].id")

    assert pairs(rows) == [(1, "a")]
    assert rows.rejects == [f"{path}: line 2: field 'h[].id' is missing or neither text nor number"]


@pytest.mark.parametrize(
    ("row", "key", "time"),
    [
        ({"a": ["k"] * 101, "b": [1] * 100}, "a[]", "b[]"),
        ({"h": [{"a": ["k"] * 20, "b": [1] * 20}] * 26}, "h[].a[]", "h[].b[]"),
    ],
)
def test_a_line_of_too_many_pairs_is_rejected(
    row: dict[str, object], key: str, time: str, tmp_path: Path
) -> None:
    """Their number is the product of two lengths, so a short line could fill the memory."""
    path = tmp_path / "a.ndjson"
    path.write_text(json.dumps(row) + '\n{"a": ["k"], "b": [1], "h": [{"a": ["k"], "b": [1]}]}\n')
    rows = table(path, key=key, time=time)

    assert pairs(rows) == [(1, "k")]
    reason = "more than 10,000 pairs of keys and times from different lists"
    assert rows.rejects == [f"{path}: line 1: {reason}"]


@pytest.mark.parametrize(
    "row",
    [
        {"a": ["k"] * 100, "b": [1] * 100},
        {"a": ["k"] * 10_001, "b": [1]},
        {"a": ["k"], "b": [1] * 10_001},
    ],
    ids=["most pairs", "one time", "one key"],
)
def test_a_line_of_many_touches_is_read(row: dict[str, list[object]], tmp_path: Path) -> None:
    """One list may have any length."""
    path = tmp_path / "a.ndjson"
    path.write_text(json.dumps(row) + "\n")

    found = pairs(table(path, key="a[]", time="b[]"))

    assert found == [(1, "k")] * (len(row["a"]) * len(row["b"]))


ZEEK = (
    "#separator \\x09\n#set_separator\t,\n#empty_field\t(empty)\n#unset_field\t-\n#path\tconn\n"
    "#fields\tts\tuid\tservice\n#types\ttime\tstring\tstring\n"
    "1331901000.000000\tCa\t-\n1331901001.000000\t-\tdns\n1331901002.000000\t(empty)\tdns\n"
    "1331901003.000000\tCb\n-\tCc\tdns\n1331901004.000000\tCd\tdns\n#close\t2012-03-16\n"
)


@pytest.mark.parametrize("name", ["conn.log", "conn.log.gz", "conn.tsv", "conn"])
def test_a_zeek_log_defines_its_columns(name: str, tmp_path: Path) -> None:
    """The first line identifies the format; unset and empty values are no key and no time."""
    path = tmp_path / name
    path.write_bytes(gzip.compress(ZEEK.encode()) if name.endswith(".gz") else ZEEK.encode())
    rows = table(path, key="uid", time="ts", written=TimeFormat.DECIMAL)

    assert Inputs([str(path)]).format is Format.ZEEK
    assert pairs(rows) == [
        (1331901000, "Ca"), (1331901003, "Cb"), (1331901004, "Cd"),
    ]  # fmt: skip
    assert [text.partition(": line ")[2] for text in (*rows.rejects, *rows.irregularities)] == [
        "9: the key is empty",
        "10: the key is empty",
        "12: time '' is not a decimal number >= 0",
        "11: 2 fields where the header has 3",
    ]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("#separator \\x09\n7\tCa\n", "line 2: a row before the line #fields"),
        ("#separator \\x09\n#fields\tuid\n7\n", r"line 2: no column 'ts' \(columns: uid\)"),
        ("#separator \n#fields\tts\tuid\n7\tCa\n", "line 1: the separator is empty"),
    ],
)
def test_a_zeek_log_without_columns_is_refused(text: str, reason: str, tmp_path: Path) -> None:
    """The error names file and line."""
    (tmp_path / "conn.log").write_text(text)

    with pytest.raises(BadInputError, match=rf"conn\.log: {reason}"):
        pairs(table(tmp_path / "conn.log", key="uid", time="ts"))


def test_batches_are_bounded(tmp_path: Path) -> None:
    """Memory is that of a batch, not of the file."""
    path = tmp_path / "a.csv"
    path.write_text("key,t\n" + "k,1\n" * 40_000)

    sizes = [len(batch.times) for batch in table(path).batches()]

    assert sum(sizes) == 40_000
    assert max(sizes) <= 16_384


def test_time_order_sorts_by_time(tmp_path: Path) -> None:
    """The rows can be iterated more than once, and their keys counted."""
    path = tmp_path / "a.csv"
    path.write_text("key,t\n" + "".join(f"k{i % 7},{i * 7919 % 10007}\n" for i in range(10_007)))

    with TimeOrder() as order:
        for batch in table(path).batches():
            order.add(batch)

        assert [time for time, _ in order] == list(range(10_007))
        assert [time for time, _ in order] == list(range(10_007))
        assert order.distinct_keys() == 7
