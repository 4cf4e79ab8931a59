"""The report's time buckets, and its formats of spans, names and keys: no Spark."""

from io import StringIO

import pyarrow as pa
import pytest
from rich.console import Console

from aiowheel.jobs.report.layout import LAYOUT, Row, shares_over_time, time_unit
from aiowheel.jobs.report.spans import span_text
from aiowheel.jobs.report.text import print_report

pytestmark = pytest.mark.one_build

MS = 1_000_000
SECOND = 1_000 * MS


@pytest.mark.parametrize(
    ("span_ns", "bucket_ns"),
    [
        (0, MS),
        (60 * MS, MS),
        (60 * MS + 1, 2 * MS),
        (10 * SECOND, 200 * MS),
        (60 * SECOND, SECOND),
        (3_600 * SECOND, 100 * SECOND),
    ],
)
def test_a_span_is_cut_into_at_most_60_stretches(span_ns: int, bucket_ns: int) -> None:
    """The width is the least 1, 2 or 5 times a power of ten, at least 1 ms."""
    report = pytest.importorskip("aiowheel.jobs.report.job", exc_type=ImportError)

    assert report.choose_bucket_ns(span_ns) == bucket_ns


@pytest.mark.parametrize(
    ("bucket_s", "buckets", "unit", "last"),
    [
        (0.001, 1, "seconds", 0.0005),
        (200, 60, "seconds", 11_900),
        (500, 36, "hours", 17_750 / 3_600),
        (10_000, 34, "hours", 335_000 / 3_600),
        (50_000, 28, "days", 1_375_000 / 86_400),
    ],
)
def test_a_time_axis_has_the_unit_of_its_span(
    bucket_s: float, buckets: int, unit: str, last: float
) -> None:
    """A million seconds would be written as 1e+06."""
    width = round(bucket_s * SECOND)
    group = {"purgatory": "p", "kind": "K", "bucket_ns": width, "timeout_share": 0.5}
    rows: list[Row] = [group | {"bucket_start_ns": 7 + nth * width} for nth in range(buckets)]

    name, unit_ns = time_unit(rows)

    assert name == unit
    assert shares_over_time(rows, "p / K", unit_ns)[-1] == pytest.approx((last, 50))


@pytest.mark.parametrize(
    ("span_ns", "text"),
    [
        (0, "0"),
        (1, "1 ns"),
        (999, "999 ns"),
        (1_500, "1.5 µs"),
        (999_499, "999 µs"),
        (999_500, "1 ms"),
        (1_234_567, "1.23 ms"),
        (-40 * MS, "-40 ms"),
        (999_600_000, "1 s"),
        (12_345 * SECOND, "12,345 s"),
    ],
)
def test_spans_are_written_with_three_digits(span_ns: int, text: str) -> None:
    """The unit fits the size, and no value is written as 1000 of a smaller unit."""
    assert span_text(span_ns) == text


@pytest.mark.parametrize(
    ("key", "shown"),
    [("plain", "plain"), ("\x1b[2Jgone", "\\x1b[2Jgone"), ("[red]", "[red]"), ("café", "café")],
)
def test_control_characters_of_a_key_are_escaped(key: str, shown: str) -> None:
    """Control characters are escaped, and markup is shown as text."""
    row = {"purgatory": "p", "rank": 1, "key": key, "operations": 1, "timeout_share": 0.0}
    tables = {name: pa.table({}) for name in LAYOUT} | {"hot_keys": pa.Table.from_pylist([row])}
    screen = StringIO()

    print_report(tables, Console(file=screen, width=100))

    assert f"p          {shown} " in screen.getvalue()
    assert "\x1b" not in screen.getvalue()


def test_long_keys_are_cut() -> None:
    """Each of the keys of an operation is cut by itself."""
    keys = [name * 100 for name in "abcd"]
    hot = {"purgatory": "p", "rank": 1, "key": keys[0], "operations": 1, "timeout_share": 0.0}
    worst: dict[str, object] = {"purgatory": "p", "kind": "k", "operation_id": "o", "keys": keys}
    worst |= {"outcome": "expired", "waited_ns": 1, "lateness_ns": 1}
    tables = {name: pa.table({}) for name in LAYOUT}
    tables["hot_keys"] = pa.Table.from_pylist([hot])
    tables["worst_operations"] = pa.Table.from_pylist([worst])
    screen = StringIO()

    print_report(tables, Console(file=screen, width=1_000))

    assert f"p          {'a' * 77}...  " in screen.getvalue()
    assert f"{', '.join(name * 77 + '...' for name in 'abc')}, ...  " in screen.getvalue()
