"""Descriptions of the demo's results as text."""

from __future__ import annotations

from aiowheel.jobs.report.spans import span_text

from ._crowd import CrowdResult
from ._hold import HoldResult
from ._loop import loop_name
from ._plan import CrowdPlan, HoldPlan


def tell_crowd(result: CrowdResult, plan: CrowdPlan) -> str:
    """Return a paragraph on part 1."""
    text = (
        f"A web server (Starlette on uvicorn, {loop_name()}) ran on 127.0.0.1:{result.port}, and "
        f"{result.clients:,} clients connected to it. Each client requested the news of one of "
        f"{result.topics:,} topics. There was no news yet, so the requests waited in a purgatory, "
        f"{result.parked:,} of them at the same time, on one timer. Then "
        f"{result.published:,} topics got a message: {result.answered:,} clients were answered"
    )
    if result.news_after:
        half = result.news_after[len(result.news_after) // 2]
        text += (
            f", half of them within {_seconds(half)} of the message, the last after "
            f"{_seconds(result.news_after[-1])}"
        )
    text += (
        f". The other {result.timed_out:,} clients got an empty answer after the timeout of "
        f"{plan.poll_timeout:g} s. Afterwards {result.silent:,} clients kept their connection and "
        f"sent nothing more: the server found {result.silent_found:,} of them idle, after "
        f"{plan.idle_timeout:g} s of silence. {_tell_talking(result)}"
    )
    return text


def _tell_talking(result: CrowdResult) -> str:
    if result.talking_found:
        return (
            f"The other {result.talking:,} clients kept sending; {result.talking_found:,} of them "
            "became idle as well, because this machine stalled for longer than that."
        )
    return f"The other {result.talking:,} clients kept sending, and none of them became idle."


def tell_hold(result: HoldResult, plan: HoldPlan) -> str:
    """Return a paragraph on part 2."""
    each = result.watch_seconds / result.operations
    return (
        f"{result.held:,} delayed operations waited at once, each for either of two keys "
        f"({result.keys:,} keys in all) and at most {plan.shortest_timeout:g} to "
        f"{plan.longest_timeout:g} s. Watching all of them took {_seconds(result.watch_seconds)}, "
        f"{_seconds(each)} each. {result.events:,} events completed {result.completed:,} of them; "
        f"the other {result.expired:,} timed out, each at its own time. No operation was left."
    )


def _seconds(value: float) -> str:
    return span_text(round(value * 1e9))
