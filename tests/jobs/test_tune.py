"""The tuning job on loads whose best wheel is known."""

import json
import random
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

pytest.importorskip("pyspark")

from aiowheel.cli import run
from aiowheel.errors import BadInputError
from aiowheel.jobs.report.tune_page import core_text
from aiowheel.jobs.wheels.tune import (
    CANDIDATES,
    Stretch,
    Tuning,
    candidate_ticks,
    candidates_of,
    weigh_stretch,
)
from aiowheel.timer import Timer
from aiowheel.trace import TRACE_SCHEMA

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MS = 1_000_000
START = 1_800_000_000_000_000_000
PEAKS = {"tick_ns", "wheel_size", "late_max_ns", "levels", "peak_pending", "span_ns"}


def row(number: int, waited: int, timeout: int | None, **more: Any) -> dict[str, Any]:
    """Return an operation created *number* times 3 ms after the start."""
    created = START + number * 3 * MS
    expired = timeout is not None and waited >= timeout
    return {
        "run_id": "r",
        "purgatory": "fetch",
        "operation_id": number,
        "kind": "Fetch",
        "keys": ["k"],
        "created": created,
        "deadline": None if timeout is None else created + timeout,
        "finished": created + waited,
        "outcome": "expired" if expired else "completed",
        "completed_by": None,
        "lateness": waited - timeout if expired and timeout is not None else None,
        "checks": 2,
    } | more


ROWS = [
    *(row(number, 500 * MS, 500 * MS) for number in range(200)),
    *(row(number, 20 * MS, 500 * MS, run_id="s") for number in range(300)),
    row(900, 0, 500 * MS),
    row(901, 20 * MS, None),
]


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    """Record two runs: one in which all operations time out, one in which none does."""
    folder = tmp_path / "trace"
    folder.mkdir()
    pq.write_table(pa.Table.from_pylist(ROWS, TRACE_SCHEMA), folder / "trace-r-000001.parquet")
    return folder


def whole(rows: pa.Table) -> Stretch:
    """Return the stretch of a whole run."""
    return Stretch(min(rows["created"].to_pylist()), 0, None)


def leaves(one: dict[str, int]) -> int:
    """Return a time after which an operation has left every wheel."""
    return max(int(one["finished"]), int(one["deadline"]) + 100 * MS)


def test_ticks_to_try_surround_the_bound() -> None:
    """The candidates are the bound, parts of it, and two above it."""
    assert candidate_ticks(10 * MS) == [
        *(MS // 10, MS // 5, MS // 2, 1 * MS, 2 * MS, 5 * MS),
        *(10 * MS, 20 * MS, 50 * MS),
    ]
    assert candidate_ticks(3_000) == [1_500, 3_000, 6_000, 15_000]


def test_the_cost_of_a_candidate_is_its_wheels_work() -> None:
    """Operations without a timer do not count; the lateness of each timeout comes from the tick."""
    rows = pa.Table.from_pylist([one for one in ROWS if one["run_id"] == "r"], TRACE_SCHEMA)

    fine, coarse = weigh_stretch(rows, [(1 * MS, 4_096), (100 * MS, 64)], whole(rows)).to_pylist()

    assert fine["operations"] == coarse["operations"] == 200
    assert fine["expired"] == coarse["expired"] == 200
    assert fine["late_max_ns"] == 0
    assert 90 * MS < coarse["late_max_ns"] < 100 * MS
    assert fine["wake_ups"] == 200
    assert coarse["wake_ups"] <= 7


def test_stretches_of_a_run_add_up_to_the_run() -> None:
    """Each operation is in every stretch in which it is pending; the sums equal the whole run."""
    source = random.Random(7)
    candidates = [(1 * MS, 16), (7 * MS, 64), (100 * MS, 16)]
    rows = [
        row(number, source.choice((MS // 3, 90 * MS, 3_000 * MS)), source.choice((50, 900)) * MS)
        for number in range(3_000)
    ]
    run = pa.Table.from_pylist(rows, TRACE_SCHEMA)
    origin = whole(run).origin
    expected = weigh_stretch(run, candidates, whole(run)).to_pylist()
    span = max(each["created"] for each in rows) - origin

    for count in (2, 7, 40):
        width = span // count + 1
        parts: list[list[dict[str, Any]]] = []
        for number in range(count):
            begin = number * width
            inside = [
                each
                for each in rows
                if each["created"] - origin < begin + width
                and (each["created"] - origin >= begin or leaves(each) - origin >= begin)
            ]
            table = pa.Table.from_pylist(inside, TRACE_SCHEMA)
            last = None if number + 1 == count else width
            parts.append(weigh_stretch(table, candidates, Stretch(origin, begin, last)).to_pylist())
        found = [
            {
                name: max(values) if name in PEAKS else sum(values)
                for name, values in ((name, [part[name] for part in one]) for name in one[0])
            }
            for one in zip(*parts, strict=True)
        ]
        assert found == expected


def test_a_timeout_of_many_years_is_weighed() -> None:
    """The timeout does not fire within the trace, and is not lost."""
    years = 10**18 + 5
    rows = [row(number, 20 * MS, years) for number in range(10)]
    rows += [row(10 + number, years, years) for number in range(10)]

    table = pa.Table.from_pylist(rows, TRACE_SCHEMA)

    (found,) = weigh_stretch(table, [(MS, 64)], whole(table)).to_pylist()

    assert (found["operations"], found["expired"]) == (20, 10)


@pytest.mark.parametrize("bound_ns", [1_000, 1_234_567_891, 3_600_000_000_000])
def test_only_legal_ticks_are_tried(bound_ns: int) -> None:
    """The result must be legal for a timer; the bound is always a candidate."""
    ticks = candidate_ticks(bound_ns)

    assert bound_ns in ticks
    for tick in ticks:
        Timer(tick=tick / 1e9)


def test_a_share_of_a_core_needs_a_second() -> None:
    """The start of a recording would give millions of percent."""
    row = {"cost_ns": 200.0, "operations": 50_000}

    assert core_text({**row, "span_ns": 1_000_000_000}) == "1 %"
    assert core_text({**row, "span_ns": 999_999_999}) == "-"


def test_a_tuning_without_a_wheel_size_is_refused() -> None:
    """The error names the argument."""
    with pytest.raises(BadInputError, match="wheel_sizes must be one or more sizes, got none"):
        candidates_of(0.01, None, [])


@pytest.mark.parametrize(
    ("ticks", "sizes", "reason"),
    [
        (None, [64.5], "wheel size must be an int from 2 to 16777216, got 64.5"),
        (None, ["64"], "wheel size must be an int from 2 to 16777216, got '64'"),
        (None, 64, "wheel_sizes must be a list, got 64"),
        (None, "64", "wheel_sizes must be a list, got '64'"),
        (0.001, [64], "ticks must be a list, got 0.001"),
    ],
)
def test_candidates_of_other_types_are_refused(ticks: Any, sizes: Any, reason: str) -> None:
    """The call names the argument, before a worker fails."""
    with pytest.raises(TypeError) as caught:
        candidates_of(0.01, ticks, sizes)

    assert str(caught.value) == reason


def test_the_line_to_paste_has_the_tick_to_the_nanosecond() -> None:
    """A rounded-up tick would exceed the bound."""
    candidate = dict.fromkeys(CANDIDATES.names, 0) | {"tick_ns": 1_234_567_899, "wheel_size": 64}
    tuning = Tuning(pa.Table.from_pylist([candidate | {"allowed": True}], CANDIDATES), 1)

    assert tuning.line == "Timer(tick=1.234567899, wheel_size=64)"


@pytest.mark.spark
@pytest.mark.slow
def test_a_candidate_given_twice_counts_once(
    one_session: None, trace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The operations are counted once."""
    options = ["--tick", "0.01", "--tick", "0.01", "--wheel-size", "64", "--wheel-size", "64"]

    assert run(["tune", str(trace), *options, "--json"]) == 0

    printed = json.loads(capsys.readouterr().out)
    assert (printed["operations"], len(printed["candidates"])) == (500, 1)


@pytest.mark.spark
@pytest.mark.slow
def test_the_coarsest_tick_within_the_bound_is_found(
    one_session: None, trace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Fewer wake-ups cost less, and the bound limits the tick."""
    out = tmp_path / "tuning"
    options = ["--max-lateness", "0.05", "--wheel-size", "256", "--wheel-size", "16"]

    assert run(["tune", str(trace), *options, "--out", str(out), "--json"]) == 0

    printed = json.loads(capsys.readouterr().out)
    best, *others = printed["candidates"]
    assert printed["operations"] == 500
    assert (best["tick_ns"], best["allowed"]) == (50 * MS, True)
    assert printed["line"] == f"Timer(tick=0.05, wheel_size={best['wheel_size']})"
    assert {other["tick_ns"] for other in others if not other["allowed"]} == {100 * MS, 250 * MS}
    assert [other["allowed"] for other in others] == [True] * 13 + [False] * 4
    assert printed["candidates"] == pq.read_table(out / "candidates.parquet").to_pylist()
    assert printed["line"] in Path(printed["page"]).read_text("utf-8")


@pytest.mark.spark
@pytest.mark.slow
def test_a_bound_finer_than_every_tick_is_bad_input(
    one_session: None,
    spark: "SparkSession",
    trace: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The error is one line with exit code 2 and both values."""
    assert run(["tune", str(trace), "--max-lateness", "0.001", "--tick", "0.01"]) == 2

    printed = capsys.readouterr()
    assert "no tick is within the lateness bound of 0.001 s: the finest is 0.01 s" in printed.err


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (["--max-lateness", "0"], "--max-lateness must be from 1e-06 to 3600 s, got 0.0"),
        (["--tick", "inf"], "--tick must be from 1e-06 to 3600 s, got inf"),
        (["--wheel-size", "1"], "--wheel-size must be from 2 to 16777216, got 1"),
    ],
)
def test_options_out_of_range_are_bad_input(
    trace: Path, options: list[str], reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The error is one line with exit code 2, before Spark is started."""
    assert run(["tune", str(trace), *options]) == 2

    assert capsys.readouterr().err == f"aiowheel: {reason}\n"
