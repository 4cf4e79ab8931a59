"""The program `aiowheel bench shared`: shared counters and raw writes of their store."""

import tempfile
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path

from benchmarks._postgres import PostgresMissingError, find_program, postgres_server
from benchmarks._redis import RedisMissingError, redis_server
from benchmarks._report import Report, Table, Verdict
from benchmarks._rounds import Series, alternate
from benchmarks._side import Side
from benchmarks.workloads.shared import BROADCASTER

#: The sides of broadcaster, if installed: https://github.com/encode/broadcaster.
THEIRS, THEIR_MOST = "broadcaster", "broadcaster, most publishes"
RAW, MOST, CONTENDING, IDLE = "raw write", "most publishes", "most, contending", "idle"
KEYS = "idle keys"
#: The sides of pgbench, if installed: another client of the same server.
PGBENCH, PGBENCH_BESIDE = "pgbench", "pgbench, beside publishes"


@dataclass(frozen=True, slots=True)
class Promise:
    """A store's bounds: p50 in raw writes, by publishes per second; and the most publishes."""

    p50: Mapping[int, float]
    most: float


STORES = {
    "sqlite": Promise({100: 8, 1_000: 4, 10_000: 6}, 3),
    "postgres": Promise({100: 10, 1_000: 5, 10_000: 8}, 3),
    "redis": Promise({100: 5, 1_000: 3, 10_000: 8}, 5),
}
#: Bounds: percent reached of 10,000 per second, writes per publish, four publishers to one, CPU
#: of an idle process.
REACHED, WRITES, TOGETHER, IDLE_PERCENT = 99.0, 0.15, 0.8, 0.2
#: Bounds against broadcaster: multiple of its most publishes, and share of its CPU per wake-up.
AHEAD, WAKE_CPU = 4.0, 0.7
#: Bounds: share of pgbench's transactions without publishes; share of the allowed writes of idle
#: keys.
OF_PGBENCH, VALUES = 0.7, 1.0
_BESIDE_PGBENCH = 1_000  # publishes per second
_BROADCASTER = {"postgres", "redis"}  # broadcaster has no SQLite backend
_MODULES = {"sqlite": "sqlite3", "postgres": "asyncpg", "redis": "redis"}


@dataclass(frozen=True, slots=True)
class SharedPlan:
    """The amount of work to measure.

    Attributes:
        workers: Number of waiting processes.
        waits: Number of waits of each worker, on its own keys.
        rates: Publishes per second.
        publishers: Number of processes that publish at the same time.
        keys: Number of idle keys of two processes.
        seconds: Duration of a round of one rate.
        rounds: Number of rounds of every side.
        only: The name of the store to measure; empty for all.
    """

    workers: int = 4
    waits: int = 2_500
    rates: tuple[int, ...] = (100, 1_000, 10_000)
    publishers: int = 4
    keys: int = 100_000
    seconds: float = 5.0
    rounds: int = 3
    only: str = ""


QUICK = SharedPlan(workers=2, waits=50, rates=(100,), publishers=2, keys=500, seconds=0.3, rounds=1)


def run(plan: SharedPlan) -> Report:
    """Measure every installed store."""
    report = Report("shared", asdict(plan))
    for store in STORES:
        if plan.only not in {"", store}:
            continue
        if not find_spec(_MODULES[store]):
            report.leave_out(store, f"{_MODULES[store]} is not installed")
            continue
        try:
            with _address_of(store) as address:
                measured = alternate(_sides(plan, store, address), plan.rounds)
        except (PostgresMissingError, RedisMissingError) as missing:
            report.leave_out(store, str(missing))
            continue
        report.add(store, measured)
        report.tables.append(_table(plan, store, measured))
        report.tables.append(_keys_table(plan, store, measured[KEYS]))
        if PGBENCH in measured:
            report.tables.append(_pgbench_table(plan, measured))
        judge(report, store, measured)
        if THEIR_MOST in measured:
            judge_beside(report, store, measured, plan.rates[-1])
    return report


@contextmanager
def _address_of(store: str) -> Generator[str]:
    if store == "postgres":
        with postgres_server() as address:
            yield address
    elif store == "redis":
        with redis_server() as path:
            yield f"unix://{path}"
    else:
        with tempfile.TemporaryDirectory(prefix="aiowheel-bench-") as folder:
            yield str(Path(folder) / "counters.db")


def _sides(plan: SharedPlan, store: str, address: str) -> list[Side]:
    common: dict[str, object] = {"store": store, "address": address}
    crowd = {**common, "waits": plan.waits, "seconds": plan.seconds}
    sides = [Side(RAW, "shared:raw_write", common)]
    for rate in plan.rates:
        given = {**crowd, "workers": plan.workers, "rate": rate}
        sides.append(Side(f"{rate} per second", "shared:wakes", given))
    for name, publishers in ((MOST, 1), (CONTENDING, plan.publishers)):
        sides.append(Side(name, "shared:most", {**crowd, "publishers": publishers}))
    sides.append(Side(IDLE, "shared:idle", crowd))
    sides.append(Side(KEYS, "shared_idle:keys", {**common, "keys": plan.keys}))
    pgbench = find_program("pgbench") if store == "postgres" else None
    if pgbench is not None:
        given = {"program": pgbench, "address": address, "seconds": plan.seconds}
        for name, rate in ((PGBENCH, 0), (PGBENCH_BESIDE, _BESIDE_PGBENCH)):
            sides.append(Side(name, "shared_pgbench:transactions", {**given, "rate": rate}))
    if store in _BROADCASTER and find_spec("broadcaster"):
        theirs = {**crowd, "program": BROADCASTER}
        for rate in _compared(plan.rates):
            given = {**theirs, "workers": plan.workers, "rate": rate}
            sides.append(Side(f"{THEIRS}, {rate} per second", "shared:wakes", given))
        sides.append(Side(THEIR_MOST, "shared:most", {**theirs, "publishers": 1}))
    return sides


def _compared(rates: tuple[int, ...]) -> tuple[int, ...]:
    """Return the rates at which broadcaster is also measured: the middle one and above."""
    return rates[len(rates) // 2 :]


def _table(plan: SharedPlan, store: str, measured: Mapping[str, Series]) -> Table:
    raw = measured[RAW]
    first = [RAW, f"{raw.median('p50_ms'):.2f}", "", "1", f"{raw.median('per_second'):,.0f}"]
    rows = [[*first, "", "", "", ""]]
    crowds = [(rate, f"{rate:,} per second", f"{rate} per second") for rate in plan.rates]
    if THEIR_MOST in measured:
        crowds += [
            (rate, f"{THEIRS}, {rate:,} per second", f"{THEIRS}, {rate} per second")
            for rate in _compared(plan.rates)
        ]
    for rate, title, side in crowds:
        series = measured[side]
        rows.append(
            [
                title,
                f"{series.median('p50_ms'):.2f}",
                f"{series.median('p99_ms'):.1f}",
                f"{series.times(raw, 'p50_ms'):.1f}",
                f"{rate * series.median('reached_percent') / 100:,.0f}",
                f"{series.median('writes_a_publish'):.2f}",
                f"{series.median('wake_cpu_us'):.0f}",
                f"{series.median('publish_cpu_us'):.0f}",
                "",
            ]
        )
    rows += [
        [name, "", "", "", f"{measured[name].median('per_second'):,.0f}", "", "", "", ""]
        for name in (MOST, CONTENDING, THEIR_MOST)
        if name in measured
    ]
    rows.append([IDLE, *[""] * 7, f"{measured[IDLE].median('cpu_percent'):.2f}"])
    title = (
        f"{store}: {plan.workers} processes with {plan.waits:,} waits each "
        f"(medians of {plan.rounds})"
    )
    columns = ["", "p50 ms", "p99 ms", "raw writes", "per second", "writes", "us per wake"]
    return Table(title, [*columns, "us per publish", "CPU %"], rows)


def _keys_table(plan: SharedPlan, store: str, series: Series) -> Table:
    row = [
        f"{series.median('touch_cpu_us'):.1f}",
        f"{series.median('values_a_touch'):.2f}",
        f"{series.median('stored_s'):.1f}",
        f"{series.median('takeover_s'):.1f}",
        f"{series.median('late_percent'):.0f}",
        f"{series.maximum('lost'):.0f}",
        f"{series.maximum('twice'):.0f}",
    ]
    title = f"{store}: {plan.keys:,} idle keys of two processes (medians of {plan.rounds})"
    columns = ["", "us per touch", "writes per touch", "all stored s", "takeover s", "late %"]
    return Table(title, [*columns, "lost", "twice"], [["SharedIdle", *row]])


def _pgbench_table(plan: SharedPlan, measured: Mapping[str, Series]) -> Table:
    plain = measured[PGBENCH]
    rows = [
        [name, f"{series.median('per_second'):,.0f}", f"{series.times(plain, 'per_second'):.2f}"]
        for name, series in ((PGBENCH, plain), (PGBENCH_BESIDE, measured[PGBENCH_BESIDE]))
    ]
    title = (
        f"postgres: pgbench with 16 clients, beside {_BESIDE_PGBENCH:,} publishes per second "
        f"(medians of {plan.rounds})"
    )
    return Table(title, ["", "transactions per second", "of plain"], rows)


def judge(report: Report, store: str, measured: Mapping[str, Series]) -> None:
    """Judge the figures of one store by its bounds."""
    promise, raw = STORES[store], measured[RAW]
    verdicts = report.verdicts
    for rate, bound in promise.p50.items():
        series = measured.get(f"{rate} per second")
        if series is not None:
            what = f"{store}: p50 at {rate:,} per second, in raw writes"
            verdicts.append(Verdict(what, series.times(raw, "p50_ms"), bound))
    fast = measured.get("10000 per second")
    if fast is not None:
        reached, writes = fast.median("reached_percent"), fast.median("writes_a_publish")
        what = f"{store}: reached of 10,000 per second, percent"
        verdicts.append(Verdict(what, reached, REACHED, at_least=True))
        verdicts.append(Verdict(f"{store}: writes per publish", writes, WRITES))
    ahead = measured[MOST].times(raw, "per_second")
    verdicts.append(
        Verdict(f"{store}: publishes per raw write", ahead, promise.most, at_least=True)
    )
    together = measured[CONTENDING].times(measured[MOST], "per_second")
    what = f"{store}: contending publishers, times one"
    verdicts.append(Verdict(what, together, TOGETHER, at_least=True))
    idle = measured[IDLE].median("cpu_percent")
    verdicts.append(Verdict(f"{store}: CPU of an idle process, percent", idle, IDLE_PERCENT))
    keys = measured[KEYS]
    verdicts.append(Verdict(f"{store}: idle keys that were lost", keys.maximum("lost"), 0))
    what = f"{store}: writes of idle keys, of two in each slack"
    verdicts.append(Verdict(what, keys.median("values_of_allowed"), VALUES))
    if PGBENCH in measured:
        beside = measured[PGBENCH_BESIDE].times(measured[PGBENCH], "per_second")
        what = f"{store}: transactions of pgbench beside publishes, of plain"
        verdicts.append(Verdict(what, beside, OF_PGBENCH, at_least=True))


def judge_beside(report: Report, store: str, measured: Mapping[str, Series], rate: int) -> None:
    """Judge the figures of one store against broadcaster's in the same rounds.

    Args:
        report: Receives the verdicts.
        store: The name of the store.
        measured: The series of all sides.
        rate: Publishes per second at which CPU is compared.
    """
    ahead = measured[MOST].times(measured[THEIR_MOST], "per_second")
    what = f"{store}: most publishes, times broadcaster's"
    report.verdicts.append(Verdict(what, ahead, AHEAD, at_least=True))
    theirs = measured[f"{THEIRS}, {rate} per second"]
    cpu = measured[f"{rate} per second"].times(theirs, "wake_cpu_us")
    what = f"{store}: CPU per wake at {rate:,} per second, in broadcaster's"
    report.verdicts.append(Verdict(what, cpu, WAKE_CPU))
