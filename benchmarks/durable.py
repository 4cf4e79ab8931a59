"""The program `aiowheel bench durable`: durable timers and their databases alone."""

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from importlib.util import find_spec

from benchmarks._postgres import PostgresMissingError, postgres_server
from benchmarks._report import Report, Table, Verdict, median_rows
from benchmarks._rounds import Series, alternate
from benchmarks._side import Side

WHEEL = "wheel alone"
#: Bounds as shares of the raw store's rate: single-row commits with 100 tasks and with one task,
#: and thousand-row commits with 1,000 tasks. The following bound is lateness at 1,000 per second,
#: times the wheel's.
BOUNDS = {"SQLite": (15.0, 0.5, 0.3), "PostgreSQL": (15.0, 0.4, 0.6)}
LATER = 4.0
#: The sides of other schedulers, if installed (dependency group `bench-peers`): PGQueuer on
#: PostgreSQL, APScheduler on an SQLite file.
PGQUEUER, APSCHEDULER = "PGQueuer", "APScheduler"
PEERS = {PGQUEUER: "pgqueuer", APSCHEDULER: "apscheduler"}
_ON_SQLITE = {APSCHEDULER}
#: Bounds as multiples of PGQueuer's rates of scheduling, also in bulk, and of overdue fires; and as
#: a share of its lateness.
FASTER, BULK, DRAIN, PUNCTUAL = 10.0, 2.0, 10.0, 0.2
GAP_MS = 50.0
BYTES = {"SQLite": 200.0, "PostgreSQL": 280.0}
GROWN_MB = 16.0


@dataclass(frozen=True, slots=True)
class DurablePlan:
    """The amount of work to measure.

    Attributes:
        pending: Number of timers in the store beforehand.
        operations: Number of operations of one figure in a round.
        overdue: Number of timers that are due at a restart.
        rounds: Number of rounds of every side.
    """

    pending: int = 1_000_000
    operations: int = 20_000
    overdue: int = 100_000
    rounds: int = 5


QUICK = DurablePlan(pending=1_000, operations=1_000, overdue=1_000, rounds=1)


def run(plan: DurablePlan) -> Report:
    """Measure every installed database."""
    report = Report("durable", asdict(plan))
    with ExitStack() as stack:
        addresses = {"SQLite": ""}
        reason = "" if find_spec("asyncpg") else "asyncpg is not installed"
        if not reason:
            try:
                addresses["PostgreSQL"] = stack.enter_context(postgres_server(fsync=True))
            except PostgresMissingError as missing:
                reason = str(missing)
        if reason:
            report.leave_out("PostgreSQL", reason)
        measured = alternate(_sides(plan, addresses), plan.rounds)
    report.add("durable", measured)
    report.tables += [_table(plan, measured), _raw_table(measured)]
    for name in addresses:
        judge(report, name, measured)
        if PGQUEUER in measured:
            judge_beside(report, name, measured)
    return report


def _sides(plan: DurablePlan, addresses: Mapping[str, str]) -> list[Side]:
    sides = [Side(WHEEL, "durable:wheel_alone", {"operations": plan.operations})]
    for name, address in addresses.items():
        load: dict[str, object] = {
            "address": address,
            "pending": plan.pending,
            "operations": plan.operations,
        }
        sides.append(Side(name, "durable:durable", {**load, "overdue": plan.overdue}))
        sides.append(Side(f"{name} raw", "durable:raw", load))
    for name, module in PEERS.items():
        database = "SQLite" if name in _ON_SQLITE else "PostgreSQL"
        if find_spec(module) and database in addresses:
            load = {
                "program": module,
                "address": addresses[database],
                "pending": plan.pending,
                "operations": plan.operations,
                "overdue": plan.overdue // 10,
            }
            sides.append(Side(name, "durable_peers:peer", load))
    return sides


def _table(plan: DurablePlan, measured: Mapping[str, Series]) -> Table:
    figures = {
        "1 task /s": ("schedule_1", 0),
        "100 tasks /s": ("schedule_100", 0),
        "1,000 tasks /s": ("schedule_1000", 0),
        "bulk /s": ("bulk", 0),
        "cancels /s": ("cancel", 0),
        "late p50 ms": ("late_p50_ms", 2),
        "late p99 ms": ("late_p99_ms", 2),
        "at 100/s": ("late_slow_p99_ms", 2),
        "first overdue ms": ("first_fire_ms", 0),
        "overdue /s": ("fires", 0),
        "gap ms": ("gap_ms", 1),
        "grown MB": ("grown_mb", 1),
    }
    shown = {name: series for name, series in measured.items() if not name.endswith(" raw")}
    title = f"{plan.pending:,} timers pending, payloads of 100 bytes (medians of {plan.rounds})"
    return Table(title, ("", *figures), median_rows(shown, figures.values()))


def _raw_table(measured: Mapping[str, Series]) -> Table:
    raw = {name: series for name, series in measured.items() if name.endswith(" raw")}
    rows = median_rows(raw, [("commits_of_1", 0), ("commits_of_1000", 0)])
    title = "The databases alone, with as many rows, rows per second"
    return Table(title, ("", "commits of 1", "of 1,000"), rows)


def judge(report: Report, name: str, measured: Mapping[str, Series]) -> None:
    """Judge the figures of durable timers on one database."""
    ours, raw = measured[name], measured[f"{name} raw"]
    crowd, single, batch = BOUNDS[name]
    ones, thousands = raw.median("commits_of_1"), raw.median("commits_of_1000")
    later = ours.median("late_p99_ms") / measured[WHEEL].median("late_p99_ms")
    report.verdicts += [
        Verdict(
            f"{name}: scheduling by 100 tasks, times raw commits of one row",
            ours.median("schedule_100") / ones,
            crowd,
            at_least=True,
        ),
        Verdict(
            f"{name}: scheduling by one task, times raw commits of one row",
            ours.median("schedule_1") / ones,
            single,
            at_least=True,
        ),
        Verdict(
            f"{name}: scheduling by 1,000 tasks, times raw commits of 1,000 rows",
            ours.median("schedule_1000") / thousands,
            batch,
            at_least=True,
        ),
        Verdict(f"{name}: p99 of lateness at 1,000/s, times the wheel's", later, LATER),
        Verdict(
            f"{name}: ms of the loop's longest gap at a restart", ours.maximum("gap_ms"), GAP_MS
        ),
        Verdict(
            f"{name}: the first overdue fire after the start of a process, times that start "
            "and the reading of a page",
            ours.median("first_fire_ms") / (ours.median("start_ms") + ours.median("page_ms")),
            1.0,
        ),
        Verdict(
            f"{name}: MB more in memory with all pending than with a tenth of them",
            ours.median("grown_mb"),
            GROWN_MB,
        ),
        Verdict(f"{name}: bytes per timer", ours.median("bytes"), BYTES[name]),
    ]


def judge_beside(report: Report, name: str, measured: Mapping[str, Series]) -> None:
    """Judge durable timers on one database against PGQueuer, the fastest of the others."""
    ours, theirs = measured[name], measured[PGQUEUER]
    for what, figure, bound in (
        ("scheduling by 100 tasks", "schedule_100", FASTER),
        ("scheduling in bulk", "bulk", BULK),
        ("overdue fires with their acknowledgements", "fires", DRAIN),
    ):
        times = ours.median(figure) / theirs.median(figure)
        report.verdicts.append(
            Verdict(f"{name}: {what}, times PGQueuer's", times, bound, at_least=True)
        )
    late = ours.median("late_slow_p99_ms") / theirs.median("late_slow_p99_ms")
    what = f"{name}: p99 of lateness at 100/s, part of PGQueuer's"
    report.verdicts.append(Verdict(what, late, PUNCTUAL))
