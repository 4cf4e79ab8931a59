"""The program `aiowheel bench longpoll`: thousands of clients in long polls."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass

from benchmarks._descriptors import connections_allowed
from benchmarks._loops import loops_here
from benchmarks._report import Report, Table, Verdict, median_rows
from benchmarks._rounds import Series, alternate
from benchmarks._side import Side
from benchmarks.baselines.long_polls import DESIGNS

OURS, EVENTS, CONDITIONS = "aiowheel, wait_until", "Event and FIRST_COMPLETED", "Condition a topic"
SUSTAINED = 97.0  # percent of the answers received when the last event is published


@dataclass(frozen=True, slots=True)
class LongPollPlan:
    """The amount of work to measure.

    Attributes:
        clients: Number of connections, each with a pending poll.
        topics: Number of topics, distributed evenly over the clients.
        keys: Number of topics for which a client waits at a time.
        rates: Total numbers of events per second, ascending; measurement stops at the first rate
            with which some side does not keep up.
        seconds: Duration of publishing in a round.
        rounds: Number of rounds of every side at every rate.
    """

    clients: int = 10_000
    topics: int = 1_000
    keys: int = 1
    rates: tuple[int, ...] = (100, 300, *range(500, 1_500, 100), *range(1_500, 3_001, 250))
    seconds: float = 5.0
    rounds: int = 3


QUICK = LongPollPlan(clients=200, topics=20, rates=(50, 100), seconds=0.5, rounds=1)


def run(plan: LongPollPlan) -> Report:
    """Measure ascending rates until some side does not keep up."""
    report = Report("longpoll", asdict(plan))
    clients = min(plan.clients, connections_allowed() - 1)  # one connection publishes
    best: tuple[int, Mapping[str, Series]] | None = None
    for rate in plan.rates:
        measured = alternate([_side(name, plan, clients, rate) for name in DESIGNS], plan.rounds)
        report.add(f"{rate}", measured)
        if not report.tables:
            report.tables.append(_memory(plan, clients, measured))
            _judge_memory(report, measured)
        report.tables.append(_latency(plan, clients, rate, measured))
        if min(series.median("in_time_percent") for series in measured.values()) < SUSTAINED:
            break
        best = rate, measured
    _judge_answers(report)
    _judge_latency(report, best)
    return report


def _side(name: str, plan: LongPollPlan, clients: int, rate: int) -> Side:
    arguments = {
        "design": name,
        "clients": clients,
        "topics": plan.topics,
        "keys": plan.keys,
        "rate": rate,
        "seconds": plan.seconds,
    }
    return Side(name, "longpoll:rounds", arguments, loops_here()[-1])


def _memory(plan: LongPollPlan, clients: int, measured: Mapping[str, Series]) -> Table:
    title = f"{clients:,} clients that wait, {plan.keys} topic(s) each (resident bytes per client)"
    if clients < plan.clients:
        title += f"; {plan.clients:,} were wanted, more than a process may open"
    rows = [
        [
            name,
            *(
                f"{series.rounds[0][figure]:,.0f}"
                for figure in ("waiting_bytes", "connection_bytes")
            ),
        ]
        for name, series in measured.items()
    ]
    return Table(title, ("", "waiting", "connection"), rows)


def _latency(plan: LongPollPlan, clients: int, rate: int, measured: Mapping[str, Series]) -> Table:
    figures = {
        "p50 ms": ("p50_ms", 1),
        "p99 ms": ("p99_ms", 1),
        "max ms": ("max_ms", 1),
        "% in time": ("in_time_percent", 1),
        "CPU us per answer": ("cpu_us", 1),
        "% of a core": ("busy_percent", 0),
        "lost": ("lost", 0),
        "twice": ("twice", 0),
    }
    each = clients * plan.keys / plan.topics
    title = (
        f"{rate:,} events per second, each for {each:g} of {clients:,} clients "
        f"(from publishing to the answer; medians of {plan.rounds})"
    )
    return Table(title, ("", *figures), median_rows(measured, figures.values()))


def _judge_memory(report: Report, measured: Mapping[str, Series]) -> None:
    ours = measured[OURS].rounds[0]["waiting_bytes"]
    what = "memory of one that waits as a share of the Event pattern's"
    theirs = max(1, measured[EVENTS].rounds[0]["waiting_bytes"])  # 0 is possible for few clients
    report.verdicts.append(Verdict(what, ours / theirs, 0.5))


def _judge_answers(report: Report) -> None:
    ours = [s for line in report.series.values() for s in line if s.side.name == OURS]
    for figure, what in {
        "lost": "clients left without an answer",
        "twice": "answered twice",
    }.items():
        report.verdicts.append(Verdict(what, max(s.maximum(figure) for s in ours), 0))


def _judge_latency(report: Report, best: tuple[int, Mapping[str, Series]] | None) -> None:
    rate = best[0] if best else 0
    lowest = min(int(line) for line in report.series)
    what = "events per second that all keep up with"
    report.verdicts.append(Verdict(what, rate, lowest, at_least=True))
    if best is None:
        return
    ours = best[1][OURS].median("p99_ms")
    for name in (EVENTS, CONDITIONS):
        what = f"p99 of {name} as a multiple of ours at {rate:,} events per second"
        ratio = best[1][name].median("p99_ms") / ours
        report.verdicts.append(Verdict(what, ratio, 2, at_least=True))
