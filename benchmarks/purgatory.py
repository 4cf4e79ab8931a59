"""The program `aiowheel bench purgatory`: Kafka's benchmark, rate by rate."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass

from aiowheel._build import accelerated
from benchmarks._loops import loops_here
from benchmarks._report import Report, Table, Verdict, median_rows
from benchmarks._rounds import Series, alternate
from benchmarks._side import Side

CASES = {"low": (0.020, 0.060), "high": (0.200, 0.400)}  # p50 and p75 of the completion times, s
SATURATED = 0.97  # of the target rate; a side below it did not keep up
#: Bounds in the high-timeout case at 300,000 per second, beyond the capacity of one core: the
#: percentage that expires although requests take all of the CPU time, and the requests accepted per
#: second. The second bound is what aiowheel reached when its timers got no CPU time.
OVERLOAD_RATE, OVERLOAD_EXPIRED, OVERLOAD_ACHIEVED = 300_000, 40.0, 213_000.0
MODEL_POINTS = 1.0  # largest difference from the model's share that expires, at 200,000 per second
DESIGNS: dict[str, Mapping[str, object]] = {
    "aiowheel": {"design": "aiowheel"},
    "aiowheel, size 20": {"design": "aiowheel", "wheel_size": 20},
    "aiowheel, lazy purge": {"design": "lazy"},
    "aiowheel pure": {"design": "aiowheel"},
    "old: heap and reaper": {"design": "old"},
    "hashed wheel": {"design": "hashed"},
    "flat wheel": {"design": "flat"},
    "call_later": {"design": "call_later"},
    "call_later, asyncio": {"design": "call_later"},
    "generator alone": {"design": "none"},
}


@dataclass(frozen=True, slots=True)
class LoadPlan:
    """The amount of work to measure.

    Attributes:
        requests: Number of requests in a round.
        seconds: Maximum duration: slow rates get fewer requests; 0 for no limit.
        rates: Requests per second.
        cases: Names in `CASES`.
        sides: Names in `DESIGNS`; empty for all.
        rounds: Number of rounds of every side at every rate.
        keys: Number of keys of a request.
        completion: "check" of the request's first key, or "force".
    """

    requests: int = 1_000_000
    seconds: float = 10.0
    rates: tuple[int, ...] = (10_000, 25_000, 50_000, 100_000, 200_000, 300_000, 500_000)
    cases: tuple[str, ...] = ("low", "high")
    sides: tuple[str, ...] = ()
    rounds: int = 3
    keys: int = 1
    completion: str = "check"


QUICK = LoadPlan(requests=1_000, seconds=0.5, rates=(10_000,), rounds=1)


def run(plan: LoadPlan) -> Report:
    """Run every case at every rate."""
    report = Report("purgatory", asdict(plan))
    for case in plan.cases:
        for rate in plan.rates:
            measured = alternate(_sides(plan, case, rate), plan.rounds)
            report.add(f"{case}, {rate}", measured)
            report.tables.append(_table(plan, case, rate, measured))
            if "aiowheel" in measured:
                judge(report, case, rate, measured["aiowheel"])
    return report


def _sides(plan: LoadPlan, case: str, rate: int) -> list[Side]:
    p50, p75 = CASES[case]
    bounded = int(rate * plan.seconds) if plan.seconds else plan.requests
    load = {
        "requests": min(plan.requests, bounded),
        "rate": rate,
        "p50": p50,
        "p75": p75,
        "keys": plan.keys,
        "completion": plan.completion,
    }
    wanted = plan.sides or tuple(DESIGNS)
    if not accelerated():
        wanted = tuple(name for name in wanted if name != "aiowheel pure")
    fastest = loops_here()[-1]
    return [
        Side(
            name,
            "load:purgatory",
            {**DESIGNS[name], **load},
            loop="asyncio" if name.endswith(", asyncio") else fastest,
            pure=name.endswith("pure"),
        )
        for name in wanted
    ]


def _table(plan: LoadPlan, case: str, rate: int, measured: Mapping[str, Series]) -> Table:
    p50, p75 = CASES[case]
    figures = {
        "achieved /s": ("achieved", 0),
        "CPU us each": ("cpu_us", 2),
        "% of a core": ("busy_percent", 0),
        "% gc": ("gc_percent", 1),
        "peak MB": ("peak_mb", 0),
        "% expired": ("expired_percent", 2),
        "% expected": ("expected_percent", 2),
    }
    model = next(iter(measured.values())).median("model_percent")
    title = (
        f"{rate:,} per second, p50 {p50 * 1e3:g} ms, p75 {p75 * 1e3:g} ms, by {plan.completion}, "
        f"keys {plan.keys} (model: {model:.2f} % expire; medians of {plan.rounds})"
    )
    return Table(title, ("", *figures), median_rows(measured, figures.values()))


def judge(report: Report, case: str, rate: int, ours: Series) -> None:
    """Judge aiowheel's purgatory at one rate; only certain rates have bounds."""
    if rate == OVERLOAD_RATE and case == "high":
        _judge_overload(report, ours)
    if rate > 200_000:
        return
    what = f"share of {rate:,}/s that was kept up with, {case}-timeout case"
    report.verdicts.append(Verdict(what, ours.median("achieved") / rate, SATURATED, at_least=True))
    if rate == 200_000:
        what = f"CPU us per request at {rate:,}/s, {case}-timeout case"
        report.verdicts.append(Verdict(what, ours.median("cpu_us"), 5))
        if case == "high":
            _judge_expired(report, ours)


def _judge_expired(report: Report, ours: Series) -> None:
    points = abs(ours.median("expired_percent") - ours.median("model_percent"))
    what = "percentage points between what expired and the model, 200,000/s, high-timeout case"
    report.verdicts.append(Verdict(what, points, MODEL_POINTS))


def _judge_overload(report: Report, ours: Series) -> None:
    where = f"{OVERLOAD_RATE:,}/s, high-timeout case"
    expired, achieved = ours.median("expired_percent"), ours.median("achieved")
    report.verdicts += [
        Verdict(f"% expired at {where}", expired, OVERLOAD_EXPIRED, at_least=True),
        Verdict(
            f"requests per second taken in at {where}", achieved, OVERLOAD_ACHIEVED, at_least=True
        ),
    ]
