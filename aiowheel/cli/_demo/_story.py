"""Descriptions of the demo's results as text. Rank 5."""

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
        f"{result.clients:,} clients connected to it. Each asked for the news of one of "
        f"{result.topics:,} topics. There was none yet, so the requests waited in a purgatory, "
        f"{result.parked:,} of them at one time, with one timer for all. Then "
        f"{result.published:,} topics got a message: {result.answered:,} clients were answered"
    )
    if result.news_after:
        half = result.news_after[len(result.news_after) // 2]
        text += (
            f", half of them within {_seconds(half)} of the message, the last after "
            f"{_seconds(result.news_after[-1])}"
        )
    text += (
        f". For the other {result.timed_out:,} nothing came, and after "
        f"{plan.poll_timeout:g} s they got an empty answer. Afterwards {result.silent:,} clients "
        f"kept their connection and said nothing more: the server found {result.silent_found:,} "
        f"of them idle, by {plan.idle_timeout:g} s of silence. {_tell_talking(result)}"
    )
    return text


def _tell_talking(result: CrowdResult) -> str:
    if result.talking_found:
        return (
            f"The other {result.talking:,} kept talking; {result.talking_found:,} of them were "
            "called idle as well, because this machine stalled longer than that."
        )
    return f"The other {result.talking:,} kept talking, and none of them was called idle."


def tell_hold(result: HoldResult, plan: HoldPlan) -> str:
    """Return a paragraph on part 2."""
    each = result.watch_seconds / result.operations
    return (
        f"{result.held:,} delayed operations waited at once, each for either of two keys "
        f"({result.keys:,} keys in all) and at most {plan.shortest_timeout:g} to "
        f"{plan.longest_timeout:g} s. To watch them all took {_seconds(result.watch_seconds)}, "
        f"{_seconds(each)} each. {result.events:,} events completed {result.completed:,} of them; "
        f"the other {result.expired:,} timed out, each at its own time. Nothing was left over."
    )


def _seconds(value: float) -> str:
    return span_text(round(value * 1e9))
