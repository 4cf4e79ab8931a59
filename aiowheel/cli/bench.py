"""`aiowheel bench`: what it costs here, beside what asyncio and uvloop cost here. Rank 5."""

import sys
from collections.abc import Collection
from typing import Annotated

import typer

from aiowheel.cli._bench_file import Out, publish, publish_summary
from aiowheel.cli._destination import STANDARD_OUTPUT
from aiowheel.cli._duration import duration
from aiowheel.errors import BadInputError, MissingExtraError

Quick = Annotated[bool, typer.Option("--quick", help="Small sizes, to see that it runs.")]
Rounds = Annotated[int | None, typer.Option(min=1, help="Rounds of each side, in turn.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]

Loops = Annotated[
    list[str] | None,
    typer.Option(
        "--side", metavar="MODULE:FACTORY", help="Measure this event loop too; several times."
    ),
]

bench: typer.Typer = typer.Typer(rich_markup_mode=None, invoke_without_command=True)


@bench.callback()
def every(context: typer.Context) -> None:
    """Measure on this machine, all sides in one run, taking turns.

    Without a subcommand: as `all --quick`.

    \b
    Example:
      aiowheel bench
      aiowheel bench wheel --out wheel.json
    """
    if context.invoked_subcommand is None:
        every_program(quick=True)


@bench.command("all")
def every_program(
    *,
    quick: Annotated[
        bool, typer.Option("--quick", help="Small sizes of those that need no clients.")
    ] = False,
) -> None:
    """Every benchmark, one after the other, and one picture of what they found.

    The picture is aiowheel-bench/summary.png, with the plot extra: a panel for each table, with the
    first of its figures. The full size takes hours, --quick some two minutes. What is not installed
    is left out.

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


@bench.command()
def wheel(
    *, quick: Quick = False, rounds: Rounds = None, out: Out = None, json: Json = False
) -> None:
    """The passive wheel against asyncio's timers, uvloop's, and a heap.

    \b
    Example:
      aiowheel bench wheel --quick
      aiowheel bench wheel --out wheel.json
    """
    from dataclasses import replace

    from aiowheel.bench.wheel import QUICK, WheelPlan, run

    plan = QUICK if quick else WheelPlan()
    publish(run(replace(plan, rounds=rounds or plan.rounds)), out, as_json=json)


@bench.command()
def timer(
    *,
    only: Annotated[str, typer.Option(metavar="LINE", help="Run one line of the table.")] = "",
    side: Loops = None,
    quick: Quick = False,
    rounds: Rounds = None,
    out: Out = None,
    json: Json = False,
) -> None:
    """The running timer against asyncio's timers and uvloop's.

    Lines: churn, crowd, timeout, wait_for, memory, stall, lateness, burst, idle, fire. rloop is
    measured where it is installed, and so is zuvloop from Python 3.14 on; --side adds any other
    event loop, by the function or class that makes one.

    \b
    Example:
      aiowheel bench timer --quick
      aiowheel bench timer --side mypackage:new_event_loop
      aiowheel bench timer --only churn --out churn.json
    """
    from dataclasses import replace

    from aiowheel.bench._loops import checked_side
    from aiowheel.bench.timer import LINES, QUICK, TimerPlan, run

    if only and only not in LINES:
        raise BadInputError(f"--only must be one of {', '.join(LINES)}, got {only!r}")
    plan = QUICK if quick else TimerPlan()
    sides = tuple(checked_side(spec) for spec in dict.fromkeys(side or ()))
    plan = replace(plan, rounds=rounds or plan.rounds, only=only, sides=sides)
    publish(run(plan), out, as_json=json)


@bench.command()
def loop(
    *,
    only: Annotated[str, typer.Option(metavar="LINE", help="Run one line of the table.")] = "",
    side: Loops = None,
    quick: Quick = False,
    rounds: Rounds = None,
    out: Out = None,
    json: Json = False,
) -> None:
    """Our event loops' own timers against those of the loops they stand on.

    Lines: churn, timeout, stall, fire. Other loops are measured as in `aiowheel bench timer`.

    \b
    Example:
      aiowheel bench loop --quick
      aiowheel bench loop --side mypackage:new_event_loop
      aiowheel bench loop --only timeout --out timeout.json
    """
    from dataclasses import replace

    from aiowheel.bench._loops import checked_side
    from aiowheel.bench.loop import LINES, QUICK, LoopPlan, run

    if only and only not in LINES:
        raise BadInputError(f"--only must be one of {', '.join(LINES)}, got {only!r}")
    plan = QUICK if quick else LoopPlan()
    sides = tuple(checked_side(spec) for spec in dict.fromkeys(side or ()))
    plan = replace(plan, rounds=rounds or plan.rounds, only=only, sides=sides)
    publish(run(plan), out, as_json=json)


@bench.command()
def purgatory(
    *,
    micro: Annotated[bool, typer.Option("--micro", help="Single calls instead of a load.")] = False,
    requests: Annotated[int | None, typer.Option(min=100, help="Requests at each rate.")] = None,
    seconds: Annotated[
        float | None, duration(least=0, help="Fewer requests at slow rates; 0: never.")
    ] = None,
    rate: Annotated[list[int] | None, typer.Option(min=1, help="Requests a second.")] = None,
    case: Annotated[list[str] | None, typer.Option(help="low or high, of timeouts.")] = None,
    side: Annotated[list[str] | None, typer.Option(help="Run only this one.")] = None,
    keys: Annotated[int, typer.Option(min=1, help="Keys a request watches.")] = 1,
    force: Annotated[bool, typer.Option("--force", help="Complete by force, no check.")] = False,
    quick: Quick = False,
    rounds: Rounds = None,
    out: Out = None,
    json: Json = False,
) -> None:
    """The purgatory under load, against older and other designs.

    A load of requests arrives at random, completes at random, or times out after 200 ms; with the
    plot extra, three charts are drawn beside the JSON file. --rate, --case and --side may be given
    several times.

    \b
    Example:
      aiowheel bench purgatory --quick
      aiowheel bench purgatory --case high --rate 200000 --side aiowheel
      aiowheel bench purgatory --micro
    """
    from dataclasses import replace

    from aiowheel.bench import purgatory as load
    from aiowheel.bench import purgatory_micro
    from aiowheel.bench._charts import draw

    if micro:
        small = purgatory_micro.QUICK if quick else purgatory_micro.MicroPlan()
        rounds = rounds or small.rounds
        publish(purgatory_micro.run(replace(small, rounds=rounds)), out, as_json=json)
        return
    _check_names("--case", case, load.CASES)
    _check_names("--side", side, load.DESIGNS)
    plan = load.QUICK if quick else load.LoadPlan()
    plan = replace(
        plan,
        requests=requests or plan.requests,
        seconds=plan.seconds if seconds is None else seconds,
        rates=tuple(rate or plan.rates),
        cases=tuple(case or plan.cases),
        sides=tuple(side or ()),
        rounds=rounds or plan.rounds,
        keys=keys,
        completion="force" if force else "check",
    )
    report = load.run(plan)
    path = publish(report, out, as_json=json)
    if path == STANDARD_OUTPUT:  # there is no file beside which charts could lie
        return
    try:
        charts = draw(report.series, path)
    except MissingExtraError as error:
        print(f"aiowheel: no charts: {error}", file=sys.stderr)
        return
    for chart in charts:
        if not json:
            print(f"chart: {chart}")


@bench.command()
def idle(
    *,
    connections: Annotated[
        int | None, typer.Option(min=1, help="Silent ones, and as many that talk.")
    ] = None,
    quick: Quick = False,
    rounds: Rounds = None,
    out: Out = None,
    json: Json = False,
) -> None:
    """What it costs to close TCP connections that have been silent for too long.

    A touch per message, against cancelling and arming a timer of the loop and against a task with
    a timeout for each connection. Clients are a process of their own. A process may hold only so
    many connections (ulimit -n): where that is less than wanted, the table says so.

    \b
    Example:
      aiowheel bench idle --quick
      aiowheel bench idle --connections 5000 --out idle.json
    """
    from dataclasses import replace

    from aiowheel.bench.idle import QUICK, IdlePlan, run

    plan = QUICK if quick else IdlePlan()
    plan = replace(
        plan,
        silent=connections or plan.silent,
        talking=connections or plan.talking,
        rounds=rounds or plan.rounds,
    )
    publish(run(plan), out, as_json=json)


@bench.command()
def longpoll(
    *,
    clients: Annotated[int | None, typer.Option(min=1, help="Connections that wait.")] = None,
    topics: Annotated[int | None, typer.Option(min=1, help="What they wait for.")] = None,
    keys: Annotated[int, typer.Option(min=1, help="Topics a client waits for.")] = 1,
    rate: Annotated[list[int] | None, typer.Option(min=1, help="Events a second.")] = None,
    quick: Quick = False,
    rounds: Rounds = None,
    out: Out = None,
    json: Json = False,
) -> None:
    """Ten thousand HTTP clients that wait for news, and how soon they get it.

    A purgatory against an event and a task for each topic of each client, and against a condition
    for each topic, behind the same bare server. The rate rises until one of them does not keep
    up; --rate may be given several times. Clients are a process of their own.

    \b
    Example:
      aiowheel bench longpoll --quick
      aiowheel bench longpoll --clients 5000 --rate 500 --rate 1000
    """
    from dataclasses import replace

    from aiowheel.bench.longpoll import QUICK, LongPollPlan, run

    plan = QUICK if quick else LongPollPlan()
    plan = replace(
        plan,
        clients=clients or plan.clients,
        topics=topics or plan.topics,
        keys=keys,
        rates=tuple(sorted(rate or plan.rates)),
        rounds=rounds or plan.rounds,
    )
    if plan.keys > plan.topics:
        raise BadInputError(f"--keys must be at most --topics {plan.topics}, got {plan.keys}")
    fewest = int(plan.rates[0] * plan.seconds)
    if plan.clients < plan.topics and fewest < 2 * plan.topics:
        least = f"--clients must be at least --topics {plan.topics}, got {plan.clients}"
        raise BadInputError(f"{least}: {fewest} events may reach next to nobody")
    publish(run(plan), out, as_json=json)


@bench.command()
def programs(
    *,
    only: Annotated[str, typer.Option(metavar="PROGRAM", help="Run one program.")] = "",
    connections: Annotated[
        int | None, typer.Option(min=1, help="Websockets that are kept alive.")
    ] = None,
    quick: Quick = False,
    rounds: Rounds = None,
    out: Out = None,
    json: Json = False,
) -> None:
    """What other people's programs gain on a loop whose timers are the wheel.

    Programs: aiohttp, uvicorn (with FastAPI), asyncpg, redis, websockets. Each runs unchanged on
    asyncio's loop, on uvloop, and on both with our timers; where it can do without timeouts, also
    without. A program that is not installed is left out. PostgreSQL and Redis are started for the
    measurement, on a free loopback port and on a socket file; where they are missing, asyncpg and
    redis are left out. A process may hold only so many connections (ulimit -n): where that is less
    than --connections, the table names the number.

    \b
    Example:
      aiowheel bench programs --quick
      aiowheel bench programs --only websockets --connections 2000
      aiowheel bench programs --out programs.json
    """
    from dataclasses import replace

    from aiowheel.bench.programs import PROGRAMS, QUICK, ProgramsPlan, run

    if only and only not in PROGRAMS:
        raise BadInputError(f"--only must be one of {', '.join(PROGRAMS)}, got {only!r}")
    plan = QUICK if quick else ProgramsPlan()
    plan = replace(
        plan,
        only=only,
        connections=connections or plan.connections,
        rounds=rounds or plan.rounds,
    )
    publish(run(plan), out, as_json=json)


@bench.command()
def shared(
    *,
    only: Annotated[str, typer.Option(metavar="STORE", help="Measure one store.")] = "",
    workers: Annotated[int | None, typer.Option(min=1, help="Processes that wait.")] = None,
    waits: Annotated[int | None, typer.Option(min=1, help="Waits of each process.")] = None,
    seconds: Annotated[float | None, duration(least=0.1, help="A round of one rate.")] = None,
    rate: Annotated[list[int] | None, typer.Option(min=1, help="Publishes a second.")] = None,
    keys: Annotated[int | None, typer.Option(min=1, help="Idle keys of two processes.")] = None,
    quick: Quick = False,
    rounds: Rounds = None,
    out: Out = None,
    json: Json = False,
) -> None:
    """How soon a publish wakes up waits in other processes, beside a raw write of the store.

    Stores: sqlite, postgres, redis. PostgreSQL and Redis are started for the measurement; where
    they are missing, they are left out. --rate may be given several times. Idle keys are measured
    as well, and pgbench beside publishes where it is installed.

    \b
    Example:
      aiowheel bench shared --quick
      aiowheel bench shared --only sqlite --waits 500 --rate 1000
    """
    from dataclasses import replace

    from aiowheel.bench.shared import QUICK, STORES, SharedPlan, run

    if only and only not in STORES:
        raise BadInputError(f"--only must be one of {', '.join(STORES)}, got {only!r}")
    plan = QUICK if quick else SharedPlan()
    plan = replace(
        plan,
        only=only,
        workers=workers or plan.workers,
        waits=waits or plan.waits,
        seconds=seconds or plan.seconds,
        rates=tuple(sorted(rate or plan.rates)),
        keys=keys or plan.keys,
        rounds=rounds or plan.rounds,
    )
    publish(run(plan), out, as_json=json)


@bench.command()
def durable(
    *,
    pending: Annotated[
        int | None, typer.Option(min=0, help="Timers in the store beforehand.")
    ] = None,
    quick: Quick = False,
    rounds: Rounds = None,
    out: Out = None,
    json: Json = False,
) -> None:
    """Durable timers on SQLite and PostgreSQL, against the databases and the wheel alone.

    Scheduling by 1, 100 and 1,000 tasks, cancelling, bulk, lateness at 1,000 a second, and what is
    overdue at a restart. Every commit waits for the disk. PostgreSQL is started for the
    measurement; where it is missing, it is left out.

    \b
    Example:
      aiowheel bench durable --quick
      aiowheel bench durable --pending 100000 --out durable.json
    """
    from dataclasses import replace

    from aiowheel.bench.durable import QUICK, DurablePlan, run

    plan = QUICK if quick else DurablePlan()
    plan = replace(
        plan,
        pending=plan.pending if pending is None else pending,
        rounds=rounds or plan.rounds,
    )
    publish(run(plan), out, as_json=json)


def _check_names(option: str, given: list[str] | None, known: Collection[str]) -> None:
    for name in given or ():
        if name not in known:
            names = ", ".join(map(repr, known))  # some have commas of their own
            raise BadInputError(f"{option} must be one of {names}, got {name!r}")
