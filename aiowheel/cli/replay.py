"""`aiowheel replay`: replays a recorded trace on another wheel. Rank 5."""

from collections.abc import Mapping
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from aiowheel._progress import Progress
from aiowheel.cli._duration import checked_ns, duration
from aiowheel.cli._job_output import print_json, print_lines, print_table
from aiowheel.cli._options import Json, named_as_options, number, path_of
from aiowheel.errors import MissingExtraError

if TYPE_CHECKING:
    from aiowheel.jobs.wheels.replay import Replay


def replay(
    trace: Annotated[
        Path,
        typer.Argument(metavar="TRACE", help="Folder of a TraceRecorder.", parser=path_of),
    ],
    *,
    tick: Annotated[float, duration(help="Tick of the wheel.")] = 0.001,
    wheel_size: Annotated[int, number(help="Buckets per level.")] = 256,
    timeout: Annotated[
        float | None, duration(show_default="as recorded", help="Timeout of every operation.")
    ] = None,
    purgatory: Annotated[
        str | None,
        typer.Option(metavar="NAME", show_default="all", help="Replay only this purgatory."),
    ] = None,
    json: Json = False,
) -> None:
    """Replay a trace in virtual time, on another wheel or with another timeout.

    \b
    Example:
      aiowheel replay trace/ --tick 0.01 --wheel-size 64
      aiowheel replay trace/ --purgatory fetch --timeout 0.1 --json
    """
    try:
        from aiowheel.jobs.report.origin import origin_of
        from aiowheel.jobs.wheels.checked import check_wheel_sizes
        from aiowheel.jobs.wheels.replay import replay_trace
    except ImportError as error:
        raise MissingExtraError("trace") from error
    tick_ns = checked_ns("--tick", tick)
    timeout_ns = None if timeout is None else checked_ns("--timeout", timeout)
    with named_as_options("wheel size"):
        check_wheel_sizes([wheel_size])
    with Progress() as progress:
        progress.show("reading")
        found = replay_trace(
            trace,
            tick_ns=tick_ns,
            wheel_size=wheel_size,
            timeout_ns=timeout_ns,
            purgatory=purgatory,
            show=partial(progress.show, "replaying"),
        )
    if json:
        print_json({"origin": origin_of(trace), **asdict(found)})
    else:
        _print(found, origin_of(trace), other_timeout=timeout is not None)


def _print(found: "Replay", origin: Mapping[str, str], *, other_timeout: bool) -> None:
    from aiowheel.jobs.report.spans import span_text

    def share(of: float) -> str:
        return f"{of:,.0f} ({100 * of / max(1, found.operations):.2f} %)"

    def span(seconds: float) -> str:
        return span_text(round(seconds * 1e9))

    recorded, replayed = found.recorded, found.replayed
    rows = [("operations", f"{found.operations:,}", f"{found.operations:,}")]
    rows.append(("timed out", share(recorded["expired"]), share(replayed["expired"])))
    rows += [
        (f"late, {name}", span(recorded[key]), span(replayed[key]))
        for name, key in (("half", "late_p50"), ("99 %", "late_p99"), ("most", "late_max"))
    ]
    rows += [
        (name, "", f"{replayed[key]:,}")
        for name, key in (
            ("inserts", "inserts"),
            ("cascades", "cascaded"),
            ("wake-ups", "wake_ups"),
            ("levels", "levels"),
            ("peak pending", "peak_pending"),
        )
    ]
    print_table(["", "recorded", "replayed"], rows, texts=1)
    late = (
        "of the replayed timeouts took longer in the trace than the new timeout"
        if other_timeout
        else "of the replayed timeouts ended in the trace after their deadline, by completion or "
        "cancellation: the event loop was too busy to fire them in time; a replay has no such delay"
    )
    remarks = [
        (found.ended_late, late),
        (found.at_once, "more were over at once and armed no timeout"),
        (found.without_timeout, "more had no timeout"),
        (found.unknown, "timed out in the trace before the new timeout: they time out here too"),
    ]
    for count, remark in remarks:
        if count:
            print(f"{count:,} {remark}")
    print_lines(origin.items())
