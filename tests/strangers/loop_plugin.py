"""A pytest plugin that sets the loop for the tests of another project and records their results.

It is loaded with `-p`, with `loops_under_test` of `tests/stdlib` on the path. The environment names
the loop (`STRANGERS_LOOP`) and the results file (`STRANGERS_RESULTS`). The file gets a line of JSON
`[test, end]` for each phase of a test that has a result, and at last `[null, loops]` with the
number of created loops. A failing phase follows the passed ones, so the last line of a test holds
its end.
"""

from __future__ import annotations

import json
import os

import pytest
from loops_under_test import LOOPS, CountedLoop

RESULTS = open(os.environ["STRANGERS_RESULTS"], "a", encoding="utf-8")  # noqa: PTH123, SIM115
# The loop is set here because modules of the tests, and other plugins, keep imported classes.
LOOPS[os.environ["STRANGERS_LOOP"]]()


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Record a failure, a skip, or that the test itself passed."""
    if report.failed:
        _write(report.nodeid, f"failed: {report.longreprtext[-2_000:]}")
    elif report.skipped:
        _write(report.nodeid, "skipped")
    elif report.when == "call":
        _write(report.nodeid, "passed")


def pytest_sessionfinish() -> None:
    """Record that the run has finished."""
    _write(None, CountedLoop.loops)
    RESULTS.close()


def _write(test: str | None, end: str | int) -> None:
    RESULTS.write(json.dumps([test, end]) + "\n")
    RESULTS.flush()  # a crash must not lose the earlier lines
