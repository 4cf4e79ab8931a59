"""The benchmark of shared counters, at sizes that only test that it runs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from aiowheel.cli import run
from benchmarks import shared
from benchmarks._postgres import PostgresMissingError, find_program, postgres_server
from benchmarks._redis import RedisMissingError, redis_server
from benchmarks._report import Report
from benchmarks._rounds import Series
from benchmarks._side import Figures, Side
from benchmarks.workloads import shared as workloads
from benchmarks.workloads import shared_idle as idle_keys
from benchmarks.workloads import shared_pgbench as pgbench

pytestmark = [pytest.mark.one_build, pytest.mark.realtime]


@pytest.mark.slow
async def test_waits_in_one_process_are_woken_by_another(tmp_path: Path) -> None:
    """One round at one rate has its figures; on a busy machine all wake-ups may be too late."""
    rounds = workloads.wakes(
        store="sqlite",
        address=str(tmp_path / "counters.db"),
        workers=1,
        waits=3,
        rate=50,
        seconds=0.1,
    )

    figures = await anext(rounds)
    await rounds.aclose()

    assert 0 <= figures["p50_ms"] <= figures["p99_ms"]
    assert figures["reached_percent"] > 0
    assert 0 < figures["writes_a_publish"] <= 1


@pytest.mark.thorough
@pytest.mark.parametrize("store", ["postgres", "redis"])
async def test_broadcaster_does_the_same_work(store: str) -> None:
    """One process waits, and another one publishes."""
    pytest.importorskip("broadcaster", reason="broadcaster is not installed: see the group `bench`")
    try:
        with ExitStack() as stack:
            if store == "postgres":
                address = stack.enter_context(postgres_server())
            else:
                address = f"unix://{stack.enter_context(redis_server())}"
            theirs = {"store": store, "address": address, "program": workloads.BROADCASTER}
            rounds = workloads.wakes(workers=1, waits=3, rate=50, seconds=0.2, **theirs)
            figures = await anext(rounds)
            await rounds.aclose()
    except (PostgresMissingError, RedisMissingError) as missing:
        pytest.skip(str(missing))

    assert figures["wake_cpu_us"] > 0
    assert figures["reached_percent"] > 0


async def test_a_raw_write_is_measured(tmp_path: Path) -> None:
    """Writes run one after the other."""
    rounds = workloads.raw_write(store="sqlite", address=str(tmp_path / "counters.db"))

    figures = await anext(rounds)
    await rounds.aclose()

    assert figures["per_second"] > 0


@pytest.mark.thorough
async def test_idle_keys_are_measured(tmp_path: Path) -> None:
    """No key is lost while one of two processes closes."""
    rounds = idle_keys.keys(store="sqlite", address=str(tmp_path / "counters.db"), keys=50)

    figures = await anext(rounds)
    await rounds.aclose()

    assert figures["lost"] == 0
    assert figures["touch_cpu_us"] > 0


@pytest.mark.thorough
async def test_pgbench_runs_beside_publishes() -> None:
    """The figures hold the number of transactions, which may be 0 on a slow disk."""
    try:
        program = find_program("pgbench")
        if program is None:
            pytest.skip("pgbench is not installed; on Debian: apt-get install postgresql-contrib")
        with postgres_server() as address:
            rounds = pgbench.transactions(program=program, address=address, rate=50, seconds=1)
            figures = await anext(rounds)
            await rounds.aclose()
    except PostgresMissingError as missing:
        pytest.skip(str(missing))

    assert figures.keys() == {"per_second"}


@pytest.mark.parametrize(
    ("output", "rate"),
    [
        ("duration: 1 s\ntps = 1403.25 (without initial connection time)\n", 1403.25),
        ("number of transactions actually processed: 0\nnumber of failed transactions: 0\n", 0.0),
    ],
)
def test_the_rate_of_a_run_of_pgbench(output: str, rate: float) -> None:
    """Output without a rate means that no transaction ended."""
    assert pgbench.rate_of(output) == rate


def test_a_run_of_pgbench_without_a_rate_is_an_error() -> None:
    """The rate is not assumed to be zero."""
    with pytest.raises(ValueError, match="must hold the rate of a run of pgbench, got 'tps'"):
        pgbench.rate_of("tps")


def test_a_missing_store_is_skipped(results: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The report gives the reason, and measures the others with their raw writes."""

    def no_postgres() -> None:
        raise PostgresMissingError("PostgreSQL is not installed")

    def measured(sides: Sequence[Side], rounds: int) -> dict[str, Series]:
        figures: Figures = dict.fromkeys(
            [
                *("p50_ms", "p99_ms", "per_second", "reached_percent", "writes_a_publish"),
                *("wake_cpu_us", "publish_cpu_us", "cpu_percent", "touch_cpu_us", "stored_s"),
                *(
                    "values_a_touch",
                    "values_of_allowed",
                    "takeover_s",
                    "late_percent",
                    "lost",
                    "twice",
                ),
            ],
            1.0,
        )
        return {side.name: Series(side, [figures] * rounds) for side in sides}

    monkeypatch.setattr(shared, "postgres_server", no_postgres)
    monkeypatch.setattr(shared, "alternate", measured)
    found = {"sqlite3", "asyncpg"}

    def find_spec(module: str) -> object:
        return module in found or None

    monkeypatch.setattr(shared, "find_spec", find_spec)

    assert run(["bench", "shared", "--quick"]) == 0

    content: dict[str, Any] = json.loads((results / "aiowheel-bench" / "shared.json").read_bytes())
    assert list(content["rounds"]) == ["sqlite"]
    assert [row[0] for row in content["tables"][0]["rows"]] == [
        *(shared.RAW, "100 per second", shared.MOST, shared.CONTENDING, shared.IDLE)
    ]
    assert [table["title"] for table in content["tables"][1:]] == [
        "sqlite: 500 idle keys of two processes (medians of 1)",
        "postgres: not measured, for PostgreSQL is not installed",
        "redis: not measured, for redis is not installed",
    ]


def test_an_unknown_store_is_refused() -> None:
    """The command exits with the code of bad input."""
    assert run(["bench", "shared", "--only", "nope"]) == 2


def test_figures_are_judged_by_the_bounds_of_the_store() -> None:
    """Each bound of the table passes and fails as expected."""

    def series(**figures: float) -> Series:
        return Series(Side("side", "module:function"), [figures])

    measured = {
        shared.RAW: series(p50_ms=0.1, per_second=5_000.0),
        "100 per second": series(p50_ms=0.9),
        "1000 per second": series(p50_ms=0.3),
        "10000 per second": series(p50_ms=0.5, reached_percent=98.0, writes_a_publish=0.1),
        shared.MOST: series(per_second=20_000.0),
        shared.CONTENDING: series(per_second=10_000.0),
        shared.IDLE: series(cpu_percent=0.1),
        shared.KEYS: series(lost=0.0, values_of_allowed=0.6),
        shared.PGBENCH: series(per_second=1_000.0),
        shared.PGBENCH_BESIDE: series(per_second=690.0),
    }
    report = Report("shared", {})

    shared.judge(report, "sqlite", measured)

    assert [verdict.passed for verdict in report.verdicts] == [
        *(False, True, True, False, True),
        *(True, False, True),
        *(True, True, False),
    ]


@pytest.mark.parametrize(("most", "cpu", "verdicts"), [(400, 70, "++"), (399, 71, "--")])
def test_figures_are_judged_against_broadcaster(most: float, cpu: float, verdicts: str) -> None:
    """Both bounds pass and fail as expected."""

    def series(**figures: float) -> Series:
        return Series(Side("side", "module:function"), [figures])

    measured = {
        shared.MOST: series(per_second=most),
        shared.THEIR_MOST: series(per_second=100.0),
        "10000 per second": series(wake_cpu_us=cpu),
        "broadcaster, 10000 per second": series(wake_cpu_us=100.0),
    }
    report = Report("shared", {})

    shared.judge_beside(report, "redis", measured, 10_000)

    assert "".join("-+"[each.passed] for each in report.verdicts) == verdicts
