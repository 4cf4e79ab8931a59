"""The arithmetic of the verdicts, on made-up figures without measurement."""

from __future__ import annotations

import pytest

from benchmarks import purgatory, purgatory_micro, timer
from benchmarks._compare import judge_firing
from benchmarks._report import Report
from benchmarks._rounds import Series
from benchmarks._side import Figures, Side

pytestmark = pytest.mark.one_build


def series(name: str, *rounds: Figures) -> Series:
    """Return the rounds of one side."""
    return Series(Side(name, ""), list(rounds))


def test_a_ratio_is_taken_round_by_round() -> None:
    """A round on a slow machine counts like any other."""
    ours = series("ours", {"fire": 2.0}, {"fire": 30.0}, {"fire": 2.4})
    theirs = series("theirs", {"fire": 2.0}, {"fire": 20.0}, {"fire": 2.0})

    assert ours.times(theirs, "fire") == 1.2


@pytest.mark.parametrize(("pending", "bound"), [(1, 1.2), (100, 1.1)])
def test_a_firing_is_judged_beside_uvloops_own(pending: int, bound: float) -> None:
    """The bound depends on the number of pending timers."""
    report = Report("timer", {})
    found = {
        "aiowheel, uvloop": series("", {"fire": 1.15}),
        "own, uvloop": series("", {"fire": 1.0}),
    }

    judge_firing(report, found, pending)

    (verdict,) = report.verdicts
    assert (verdict.measured, verdict.bound) == (1.15, bound)
    assert verdict.passed is (pending == 1)


def test_a_firing_is_not_judged_at_other_sizes_or_without_uvloop() -> None:
    """The table is written without a verdict."""
    report = Report("timer", {})
    found = {
        "aiowheel, asyncio": series("", {"fire": 9.0}),
        "own, asyncio": series("", {"fire": 1.0}),
    }

    judge_firing(report, found, 1)
    judge_firing(report, {name.replace("asyncio", "uvloop"): one for name, one in found.items()}, 7)

    assert report.verdicts == []


@pytest.mark.parametrize(("size", "passed"), [(100_000, False), (1_000_000, True)])
def test_touch_is_judged_by_the_clock_at_large_sizes(size: int, passed: bool) -> None:  # noqa: FBT001
    """At a million pending timers the bound is relative to reading the clock and the handle."""
    ours = {"touch": 250.0, "touch_empty": 50.0, "clock": 210.0, "clock_empty": 50.0}
    own = {"replace": 2_050.0, "replace_empty": 50.0}
    found = {"aiowheel, uvloop": series("", ours), "own, uvloop": series("", own)}

    verdict = timer._touch_verdict(found, "uvloop", size)

    assert verdict.measured == (1.25 if size == 1_000_000 else 10.0)
    assert verdict.passed is passed


def test_awaiting_excludes_the_future_and_the_callback_form() -> None:
    """The harness of the callback form is subtracted, and the sides are compared per round."""
    measured = {
        "aiowheel": series("", {"awaited": 2_500.0}, {"awaited": 9_000.0}, {"awaited": 2_600.0}),
        "bare future": series("", {"awaited": 1_200.0}, {"awaited": 7_000.0}, {"awaited": 1_200.0}),
        "callback form": series("", *[{"check": 900.0, "check_empty": 200.0}] * 3),
    }

    assert purgatory_micro.awaiting_ns(measured) == 700.0


def test_an_overloaded_purgatory_must_expire_and_accept() -> None:
    """At 300,000 per second neither the timers nor the requests may starve."""
    report = Report("purgatory", {})
    starved = {"expired_percent": 9.0, "model_percent": 50.0, "achieved": 213_260.0, "cpu_us": 4.6}

    purgatory.judge(report, "high", 300_000, series("aiowheel", starved))
    purgatory.judge(report, "low", 300_000, series("aiowheel", starved))

    assert [(each.measured, each.passed) for each in report.verdicts] == [
        (9.0, False),
        (213_260.0, True),
    ]


@pytest.mark.parametrize(("expired", "passed"), [(49.2, True), (50.9, True), (46.0, False)])
def test_the_expired_share_must_match_the_model(expired: float, passed: bool) -> None:  # noqa: FBT001
    """Deviations in both directions count, at the highest rate for one core."""
    report = Report("purgatory", {})
    figures = {"expired_percent": expired, "model_percent": 50.0}

    purgatory.judge(
        report, "high", 200_000, series("", {**figures, "achieved": 199_000.0, "cpu_us": 3.5})
    )

    (verdict,) = (each for each in report.verdicts if "the model" in each.what)
    assert verdict.passed is passed
