"""Consistency checks of the demo's numbers.

Each number is counted twice: by the clients and by the server, or live and in the trace.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import pyarrow.compute as pc

from aiowheel.errors import AiowheelError
from aiowheel.trace import read_trace

from . import _app, _hold
from ._crowd import CrowdResult
from ._hold import HoldResult

EARLY = "early"  # expired before the deadline; these operations also count as "expired"

Outcomes = Counter[tuple[str, str]]  # operations by (purgatory, outcome)


class Sum(NamedTuple):
    """Two counts that must be equal, and a description of each."""

    what: str
    counted: int
    other: str
    expected: int


def crowd_sums(result: CrowdResult) -> list[Sum]:
    """Compare the counts of the clients with those of the server."""
    return [
        Sum(
            "clients answered or timed out",
            result.answered + result.timed_out,
            "clients",
            result.clients,
        ),
        Sum("answered clients", result.answered, "requests completed", result.completed),
        Sum("timed out clients", result.timed_out, "requests expired", result.expired),
        Sum("silent connections found", result.silent_found, "silent clients", result.silent),
    ]


def hold_sums(result: HoldResult) -> list[Sum]:
    """Compare the plan with the counts of the purgatory."""
    return [
        Sum("operations held at once", result.held, "operations", result.operations),
        Sum(
            "operations completed or expired",
            result.completed + result.expired,
            "operations",
            result.operations,
        ),
        Sum("completions reported", result.reported, "completions counted", result.completed),
        Sum("operations left over", result.left, "none", 0),
    ]


def outcome_sums(where: str, outcomes: Outcomes, crowd: CrowdResult, hold: HoldResult) -> list[Sum]:
    """Compare the live counts with those of *where*: the trace or the report."""
    happened = {
        (_app.PURGATORY, "completed"): crowd.completed,
        (_app.PURGATORY, "expired"): crowd.expired,
        (_hold.PURGATORY, "completed"): hold.completed,
        (_hold.PURGATORY, "expired"): hold.expired,
    }
    sums = [
        Sum(
            f"{purgatory} operations {outcome} in {where}",
            outcomes[purgatory, outcome],
            "counted live",
            count,
        )
        for (purgatory, outcome), count in happened.items()
    ]
    total = sum(happened.values())
    counted = sum(count for (_, outcome), count in outcomes.items() if outcome != EARLY)
    return [
        *sums,
        Sum(f"operations in {where}", counted, "counted live", total),
        Sum(f"timeouts ahead of their deadline in {where}", _early(outcomes), "allowed", 0),
    ]


def _early(outcomes: Outcomes) -> int:
    return sum(count for (_, outcome), count in outcomes.items() if outcome == EARLY)


def check(sums: Iterable[Sum]) -> None:
    """Compare the two counts of each sum.

    Raises:
        AiowheelError: Two counts differ; the text names the first such pair.
    """
    for one in sums:
        if one.counted != one.expected:
            raise AiowheelError(
                f"the demo's sums do not agree: {one.counted:,} {one.what}, "
                f"but {one.expected:,} {one.other}"
            )


def trace_outcomes(folder: Path) -> Outcomes:
    """Return the numbers of operations in a trace."""
    table = read_trace(folder, columns=["purgatory", "outcome", "lateness"])
    early = table.filter(pc.less(table["lateness"], 0))
    outcomes: Outcomes = Counter()
    for one in table.group_by(["purgatory", "outcome"]).aggregate([([], "count_all")]).to_pylist():
        outcomes[one["purgatory"], one["outcome"]] = one["count_all"]
    for one in early.group_by("purgatory").aggregate([([], "count_all")]).to_pylist():
        outcomes[one["purgatory"], EARLY] = one["count_all"]
    return outcomes
