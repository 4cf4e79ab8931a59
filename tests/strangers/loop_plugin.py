"""A pytest plugin that puts a loop under the tests of another project, and notes how each ends.

Loaded with `-p`, beside `loops_under_test` of `tests/stdlib`. The environment names the loop
(`STRANGERS_LOOP`) and the file of results (`STRANGERS_RESULTS`): a line of JSON `[test, end]` for
each phase of a test that says how it ended, and at last `[null, loops]`, the number of loops made.
A phase that fails comes after the ones that passed, so the last line of a test is its end.
"""

from __future__ import annotations

import json
import os

import pytest
from loops_under_test import LOOPS, Made

RESULTS = open(os.environ["STRANGERS_RESULTS"], "a", encoding="utf-8")  # noqa: PTH123, SIM115
# Now: modules of the tests, and of other plugins, keep the classes that they import.
LOOPS[os.environ["STRANGERS_LOOP"]]()


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Note a failure, a skip, or that the test itself passed."""
    if report.failed:
        _write(report.nodeid, f"failed: {report.longreprtext[-2_000:]}")
    elif report.skipped:
        _write(report.nodeid, "skipped")
    elif report.when == "call":
        _write(report.nodeid, "passed")


def pytest_sessionfinish() -> None:
    """Note that the run came to its end."""
    _write(None, Made.loops)
    RESULTS.close()


def _write(test: str | None, end: str | int) -> None:
    RESULTS.write(json.dumps([test, end]) + "\n")
    RESULTS.flush()  # a crash must not take the earlier ones along
