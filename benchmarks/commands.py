"""`aiowheel bench`: measures costs on this machine, beside those of asyncio and uvloop."""

import sys
from collections.abc import Collection
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from aiowheel.cli._destination import STANDARD_OUTPUT
from aiowheel.cli._duration import duration
from aiowheel.cli._options import Json, number
from aiowheel.errors import BadInputError, MissingExtraError
from benchmarks._publish import Out, publish, publish_summary

Quick = Annotated[
    bool, typer.Option("--quick", help="Small sizes, as a trial run; prints no verdicts.")
]
Rounds = Annotated[int | None, number(min=1, help="Rounds of each side; sides alternate.")]

Line = Annotated[str, typer.Option(metavar="LINE", help="Run one line of the table.")]
Loops = Annotated[
    list[str] | None,
    typer.Option(
        "--side", metavar="MODULE:FACTORY", help="Measure this event loop too; may be repeated."
    ),
]

if TYPE_CHECKING:
    from _typeshed import DataclassInstance
P = TypeVar("P", bound="DataclassInstance")

bench: typer.Typer = typer.Typer(rich_markup_mode=None, invoke_without_command=True)


@bench.callback()
def every(context: typer.Context) -> None:
    """Measure all sides on this machine in one run, in alternating rounds.

    Without a subcommand, `all --quick` runs.

    \b
    Example:
      aiowheel bench
      aiowheel bench wheel --out wheel.json
    """
    if context.invoked_subcommand is None:
        every_program(quick=True)


@bench.command("all", short_help="Run all benchmarks, and draw one chart.")
def every_program(
    *,
    quick: Annotated[
        bool, typer.Option("--quick", help="Small sizes; no verdicts, no benchmarks with clients.")
    ] = False,
) -> None:
    """Run all benchmarks in turn, and draw one chart of their results.

    The chart is aiowheel-bench/summary.png, and needs the plot extra. It has a panel for each
    table, with the table's first column. The full size takes hours, --quick less than two minutes.
    Programs that are not installed are left out.

    \b
    Example:
      aiowheel bench all --quick
      aiowheel bench all
    """
    wheel(quick=quick)
    timer(quick=quick)
    loop(quick=quick)
    purgatory(quick=quick)
    purgatory(micro=True, quick=quick)
    names = ["wheel", "timer", "loop", "purgatory", "purgatory-micro"]
    if not quick:
        idle()
        longpoll()
        programs()
        shared()
        durable()
        names += ["idle", "longpoll", "programs", "shared", "durable"]
    publish_summary(names)


@bench.command(short_help="Compare the passive wheel with asyncio, uvloop and a heap.")
def wheel(
    *, quick: Quick = False, rounds: Rounds = None, out: Out = None, json: Json = False
) -> None:
    """Compare the passive wheel with the timers of asyncio and uvloop, and with a heap.

    \b
    Example:
      aiowheel bench wheel --quick
      aiowheel bench wheel --out wheel.json
    """
    from benchmarks.wheel import QUICK, WheelPlan, run

    plan = QUICK if quick else WheelPlan()
    publish(run(_changed(plan, rounds=rounds)), out, as_json=json, judged=not quick)


@bench.command(short_help="Compare the running timer with asyncio and uvloop.")
def timer(
    *,
    only: Line = "",
    side: Loops = None,
    quick: Quick = False,
    rounds: Rounds = None,
    out: Out = None,
    json: Json = False,
) -> None:
    """Compare the running timer with the timers of asyncio and uvloop.

    Lines: churn, crowd, timeout, wait_for, memory, stall, lateness, burst, idle, fire. If rloop is
    installed, it is measured too; so is zuvloop from Python 3.14 on. --side adds any other event
    loop, by a function or class that creates it.

    \b
    Example:
      aiowheel bench timer --quick
      aiowheel bench timer --side mypackage:new_event_loop
      aiowheel bench timer --only churn --out churn.json
    """
    from benchmarks._loops import checked_side
    from benchmarks.timer import LINES, QUICK, TimerPlan, run

    _check_only(only, LINES)
    plan = QUICK if quick else TimerPlan()
    sides = tuple(map(checked_side, dict.fromkeys(side or ())))
    plan = _changed(plan, rounds=rounds, only=only, sides=sides)
    publish(run(plan), out, as_json=json, judged=not quick)


@bench.command(short_help="Compare the timers of event loops on the wheel.")
def loop(
    *,
    only: Line = "",
    side: Loops = None,
    quick: Quick = False,
    rounds: Rounds = None,
    out: Out = None,
    json: Json = False,
) -> None:
    """Compare the timers of aiowheel's event loops with those of their base loops.

    Lines: churn, timeout, stall, fire. Other loops are measured as in `aiowheel bench timer`.

    \b
    Example:
      aiowheel bench loop --quick
      aiowheel bench loop --side mypackage:new_event_loop
      aiowheel bench loop --only timeout --out timeout.json
    """
    from benchmarks._loops import checked_side
    from benchmarks.loop import LINES, QUICK, LoopPlan, run

    _check_only(only, LINES)
    plan = QUICK if quick else LoopPlan()
    sides = tuple(map(checked_side, dict.fromkeys(side or ())))
    plan = _changed(plan, rounds=rounds, only=only, sides=sides)
    publish(run(plan), out, as_json=json, judged=not quick)


@bench.command(short_help="Compare the purgatory with other designs under load.")
def purgatory(
    *,
    micro: Annotated[
        bool, typer.Option("--micro", help="Measure single calls, not a load.")
    ] = False,
    requests: Annotated[int | None, number(min=100, help="Requests per rate.")] = None,
    seconds: Annotated[
        float | None, duration(least=0, help="Shorten slow rates to this; 0: never.")
    ] = None,
    rate: Annotated[
        list[int] | None,
        number(min=1, help="Requests per second; may be repeated."),
    ] = None,
    case: Annotated[
        list[str] | None,
        typer.Option(metavar="SHARE", help="Share of timeouts, low or high; may be repeated."),
    ] = None,
    side: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Run only this side; may be repeated.")
    ] = None,
    keys: Annotated[int, number(min=1, help="Keys per request.")] = 1,
    force: Annotated[bool, typer.Option("--force", help="Complete without a check.")] = False,
    quick: Quick = False,
    rounds: Rounds = None,
    out: Out = None,
    json: Json = False,
) -> None:
    """Compare the purgatory with older and other designs under load.

    Requests arrive at random times; each completes after a random time, or times out after 200 ms.
    With the plot extra, three charts are drawn beside the JSON file. --rate, --case and --side may
    be repeated.

    \b
    Example:
      aiowheel bench purgatory --quick
      aiowheel bench purgatory --case high --rate 200000 --side aiowheel
      aiowheel bench purgatory --micro
    """
    from benchmarks import purgatory as load
    from benchmarks import purgatory_micro
    from benchmarks._charts import draw

    if micro:
        small = purgatory_micro.QUICK if quick else purgatory_micro.MicroPlan()
        report = purgatory_micro.run(_changed(small, rounds=rounds))
        publish(report, out, as_json=json, judged=not quick)
        return
    _check_names("--case", case, load.CASES)
    _check_names("--side", side, load.DESIGNS)
    plan = load.QUICK if quick else load.LoadPlan()
    plan = _changed(
        plan,
        requests=requests,
        seconds=seconds,
        rates=tuple(rate) if rate else None,
        cases=tuple(case) if case else None,
        sides=tuple(side or ()),
        rounds=rounds,
        keys=keys,
        completion="force" if force else "check",
    )
    report = load.run(plan)
    path = publish(report, out, as_json=json, judged=not quick)
    if path == STANDARD_OUTPUT:  # charts are written beside the JSON file, and there is none
        return
    try:
        charts = draw(report.series, path)
    except MissingExtraError as error:
        print(f"aiowheel: no charts: {error}", file=sys.stderr)
        return
    if not json:
        for chart in charts:
            print(f"chart: {chart}")


@bench.command(short_help="Measure the closing of silent connections.")
def idle(
    *,
    connections: Annotated[
        int | None,
        number(min=1, help="Number of silent and of active connections."),
    ] = None,
    quick: Quick = False,
    rounds: Rounds = None,
    out: Out = None,
    json: Json = False,
) -> None:
    """Measure the cost of closing TCP connections that are silent for too long.

    Compares a touch per message with cancelling and arming a timer of the loop, and with a task and
    a timeout for each connection. The clients run in another process. If the limit of open files
    (ulimit -n) allows fewer connections than wanted, the table gives the number.

    \b
    Example:
      aiowheel bench idle --quick
      aiowheel bench idle --connections 5000 --out idle.json
    """
    from benchmarks.idle import QUICK, IdlePlan, run

    plan = QUICK if quick else IdlePlan()
    plan = _changed(plan, silent=connections, talking=connections, rounds=rounds)
    publish(run(plan), out, as_json=json, judged=not quick)


@bench.command(short_help="Measure answers to 10,000 waiting HTTP clients.")
def longpoll(
    *,
    clients: Annotated[int | None, number(min=1, help="Waiting connections.")] = None,
    topics: Annotated[int | None, number(min=1, help="Number of topics.")] = None,
    keys: Annotated[int, number(min=1, help="Topics per client.")] = 1,
    rate: Annotated[
        list[int] | None,
        number(min=1, help="Events per second; may be repeated."),
    ] = None,
    quick: Quick = False,
    rounds: Rounds = None,
    out: Out = None,
    json: Json = False,
) -> None:
    """Measure how fast 10,000 waiting HTTP clients get their messages.

    Compares a purgatory with an event and a task for each topic of each client, and with a
    condition for each topic, behind the same minimal server. The rate rises until one side does not
    keep up; --rate may be repeated. The clients run in another process.

    \b
    Example:
      aiowheel bench longpoll --quick
      aiowheel bench longpoll --clients 5000 --rate 500 --rate 1000
    """
    from benchmarks.longpoll import QUICK, LongPollPlan, run

    plan = QUICK if quick else LongPollPlan()
    rates = tuple(sorted(rate)) if rate else None
    plan = _changed(plan, clients=clients, topics=topics, keys=keys, rates=rates, rounds=rounds)
    if plan.keys > plan.topics:
        raise BadInputError(f"--keys must be at most --topics {plan.topics}, got {plan.keys}")
    fewest = int(plan.rates[0] * plan.seconds)
    if plan.clients < plan.topics and fewest < 2 * plan.topics:
        least = f"--clients must be at least --topics {plan.topics}, got {plan.clients}"
        raise BadInputError(f"{least}: {fewest} events may reach hardly any client")
    publish(run(plan), out, as_json=json, judged=not quick)


@bench.command(short_help="Measure programs of other projects on our loops.")
def programs(
    *,
    only: Annotated[str, typer.Option(metavar="PROGRAM", help="Run one program.")] = "",
    connections: Annotated[int | None, number(min=1, help="Number of websockets.")] = None,
    quick: Quick = False,
    rounds: Rounds = None,
    out: Out = None,
    json: Json = False,
) -> None:
    """Measure what programs of other projects gain on aiowheel's event loops.

    Programs: aiohttp, uvicorn (with FastAPI), asyncpg, redis, websockets. Each runs unchanged on
    asyncio's loop, on uvloop, and on both with the timers of aiowheel; if it can run without
    timeouts, also without them. Programs that are not installed are left out. PostgreSQL and Redis
    are started for the measurement, on a free loopback port and on a socket file; if they are
    missing, asyncpg and redis are left out. If the limit of open files (ulimit -n) allows fewer
    connections than --connections, the table gives the number.

    \b
    Example:
      aiowheel bench programs --quick
      aiowheel bench programs --only websockets --connections 2000
      aiowheel bench programs --out programs.json
    """
    from benchmarks.programs import PROGRAMS, QUICK, ProgramsPlan, run

    _check_only(only, PROGRAMS)
    plan = QUICK if quick else ProgramsPlan()
    plan = _changed(plan, only=only, connections=connections, rounds=rounds)
    publish(run(plan), out, as_json=json, judged=not quick)


@bench.command(short_help="Measure wake-ups of waits in other processes.")
def shared(
    *,
    only: Annotated[str, typer.Option(metavar="STORE", help="Measure one store.")] = "",
    workers: Annotated[int | None, number(min=1, help="Waiting processes.")] = None,
    waits: Annotated[int | None, number(min=1, help="Waits per process.")] = None,
    seconds: Annotated[float | None, duration(least=0.1, help="Length of a round.")] = None,
    rate: Annotated[
        list[int] | None,
        number(min=1, help="Publishes per second; may be repeated."),
    ] = None,
    keys: Annotated[int | None, number(min=1, help="Idle keys of two processes.")] = None,
    quick: Quick = False,
    rounds: Rounds = None,
    out: Out = None,
    json: Json = False,
) -> None:
    """Measure how fast a publish wakes waits in other processes, beside a raw write of the store.

    Stores: sqlite, postgres, redis. PostgreSQL and Redis are started for the measurement; if they
    are missing, they are left out. --rate may be repeated. Shared idle keys are measured as well.
    If pgbench is installed, it is measured beside the publishes.

    \b
    Example:
      aiowheel bench shared --quick
      aiowheel bench shared --only sqlite --waits 500 --rate 1000
    """
    from benchmarks.shared import QUICK, STORES, SharedPlan, run

    _check_only(only, STORES)
    plan = QUICK if quick else SharedPlan()
    plan = _changed(
        plan,
        only=only,
        workers=workers,
        waits=waits,
        seconds=seconds,
        rates=tuple(sorted(rate)) if rate else None,
        keys=keys,
        rounds=rounds,
    )
    publish(run(plan), out, as_json=json, judged=not quick)


@bench.command(short_help="Compare durable timers on SQLite and PostgreSQL.")
def durable(
    *,
    pending: Annotated[int | None, number(min=1, help="Timers in the store at the start.")] = None,
    quick: Quick = False,
    rounds: Rounds = None,
    out: Out = None,
    json: Json = False,
) -> None:
    """Compare durable timers on SQLite and PostgreSQL with the databases and the wheel alone.

    Measures scheduling by 1, 100 and 1,000 tasks, cancelling, bulk scheduling, lateness at 1,000
    timers per second, and overdue timers after a restart. Every commit is synced to the disk.
    PostgreSQL is started for the measurement; if it is missing, it is left out.

    \b
    Example:
      aiowheel bench durable --quick
      aiowheel bench durable --pending 100000 --out durable.json
    """
    from benchmarks.durable import QUICK, DurablePlan, run

    plan = QUICK if quick else DurablePlan()
    publish(
        run(_changed(plan, pending=pending, rounds=rounds)), out, as_json=json, judged=not quick
    )


def _changed(plan: P, **given: object) -> P:
    """Return *plan* with the given fields; an option that was not given is None."""
    changes = {name: value for name, value in given.items() if value is not None}
    return replace(plan, **changes)


def _check_only(only: str, known: Collection[str]) -> None:
    if only and only not in known:
        raise BadInputError(f"--only must be one of {', '.join(known)}, got {only!r}")


def _check_names(option: str, given: list[str] | None, known: Collection[str]) -> None:
    for name in given or ():
        if name not in known:
            names = ", ".join(map(repr, known))  # quoted, because some names contain commas
            raise BadInputError(f"{option} must be one of {names}, got {name!r}")
