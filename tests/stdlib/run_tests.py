"""Run tests of other projects on the given loop, and report each result.

A program: `python run_tests.py DESCRIPTOR`, with a `Task` as JSON on stdin. It writes lines of JSON
to the file descriptor: `[test, null]` when a test begins, `[test, end]` when it ends, and
`[null, counts]` when all have ended.
"""

import asyncio
import importlib
import json
import os
import sys
import unittest
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from functools import wraps
from typing import Any, TypedDict

from loops_under_test import LOOPS, CountedLoop

import aiowheel

CALLS: Counter[str] = Counter()


class Task(TypedDict):
    """What to run.

    Attributes:
        loop: A name in `LOOPS`.
        module: Its dotted name.
        skip: Names of tests to leave out.
        only: Names of the only tests to run; empty for all.
        replace: Whether asyncio's `timeout`, `timeout_at` and `wait_for` are replaced by ours.
    """

    loop: str
    module: str
    skip: list[str]
    only: list[str]
    replace: bool


def counted(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function with a count of its calls: a run without any has tested nothing."""

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        CALLS[function.__name__] += 1
        return function(*args, **kwargs)

    return call


def point_asyncio_at_ours() -> None:
    """Replace the names that the tests use, in the modules from which they use them."""
    for name, home in (
        ("timeout", asyncio.timeouts),
        ("timeout_at", asyncio.timeouts),
        ("wait_for", asyncio.tasks),
    ):
        ours = counted(getattr(aiowheel, name))
        setattr(asyncio, name, ours)
        setattr(home, name, ours)


def cases(suite: unittest.TestSuite) -> Iterator[unittest.TestCase]:
    """Yield every test in nested suites."""
    for each in suite:
        if isinstance(each, unittest.TestSuite):
            yield from cases(each)
        else:
            yield each


class ReportingResult(unittest.TestResult):
    """A result that reports the begin and the end of every test."""

    def __init__(self, send_report: Callable[[object, object], None]) -> None:
        super().__init__()
        self._report = send_report
        self._end = ""

    def startTest(self, test: unittest.TestCase) -> None:
        """Report the begin."""
        super().startTest(test)
        self._end = "passed"
        self._report(test.id(), None)

    def stopTest(self, test: unittest.TestCase) -> None:
        """Report the end; a failed subtest is a failed test."""
        super().stopTest(test)
        self._report(test.id(), self._end)

    def addSkip(self, test: unittest.TestCase, reason: str) -> None:
        """Record a skipped test, or a skipped class or module."""
        super().addSkip(test, reason)
        self._end = f"skipped: {reason}"

    def addFailure(self, test: unittest.TestCase, err: Any) -> None:
        """Record a failed assertion."""
        super().addFailure(test, err)
        self._fail(test, self.failures[-1][1])

    def addError(self, test: unittest.TestCase, err: Any) -> None:
        """Record another error, in a test or around a class or module."""
        super().addError(test, err)
        self._fail(test, self.errors[-1][1])

    def addSubTest(self, test: unittest.TestCase, subtest: unittest.TestCase, err: Any) -> None:
        """Record the end of a subtest."""
        super().addSubTest(test, subtest, err)
        if err is not None:
            self._end = (self.failures + self.errors)[-1][1]

    def _fail(self, test: unittest.TestCase, text: str) -> None:
        self._end = text
        if not isinstance(test, unittest.TestCase):  # pyright: ignore[reportUnnecessaryIsInstance]
            self._report(test.id(), text)  # an _ErrorHolder, which neither starts nor stops


def run(task: Task, send_report: Callable[[object, object], None]) -> None:
    """Run the tests of a task."""
    LOOPS[task["loop"]]()
    if task["replace"]:
        point_asyncio_at_ours()
    module = importlib.import_module(task["module"])
    tests = {
        test.id(): test for test in cases(unittest.defaultTestLoader.loadTestsFromModule(module))
    }
    chosen = (set(task["only"]) or tests.keys()) - set(task["skip"])
    unittest.TestSuite(tests[name] for name in tests if name in chosen).run(
        ReportingResult(send_report)
    )
    send_report(None, {"loops": CountedLoop.loops, **CALLS})


def main() -> None:
    """Read the task, run it, and report."""
    warnings.simplefilter("ignore")  # warnings of other projects' tests
    descriptor = int(sys.argv[1])
    os.set_inheritable(descriptor, False)
    report = open(descriptor, "w", encoding="utf-8")  # noqa: SIM115 - closed with the process

    def send_report(test: object, end: object) -> None:
        report.write(json.dumps([test, end]) + "\n")
        report.flush()

    run(json.load(sys.stdin), send_report)


if __name__ == "__main__":
    main()
