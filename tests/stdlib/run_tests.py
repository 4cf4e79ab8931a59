"""Runs tests of other projects on the loop asked for, and tells of each as it ends.

A program: `python run_tests.py DESCRIPTOR`, with a `Task` as JSON on stdin. Lines of JSON go to the
file descriptor: `[test, null]` when a test begins, `[test, end]` when it ends, and `[null, counts]`
when all have.
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

from loops_under_test import LOOPS, Made

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
    """The function, its calls noted: a run that never reached ours has tested nothing."""

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        CALLS[function.__name__] += 1
        return function(*args, **kwargs)

    return call


def point_asyncio_at_ours() -> None:
    """Replace the names that the tests use, in the modules they use them from."""
    for name, home in (
        ("timeout", asyncio.timeouts),
        ("timeout_at", asyncio.timeouts),
        ("wait_for", asyncio.tasks),
    ):
        ours = counted(getattr(aiowheel, name))
        setattr(asyncio, name, ours)
        setattr(home, name, ours)


def cases(suite: unittest.TestSuite) -> Iterator[unittest.TestCase]:
    """Every test in nested suites."""
    for each in suite:
        if isinstance(each, unittest.TestSuite):
            yield from cases(each)
        else:
            yield each


class Telling(unittest.TestResult):
    """Tells of every test when it begins and when it ends."""

    def __init__(self, tell: Callable[[object, object], None]) -> None:
        super().__init__()
        self._tell = tell
        self._end = ""

    def startTest(self, test: unittest.TestCase) -> None:
        """Note that it begins."""
        super().startTest(test)
        self._end = "passed"
        self._tell(test.id(), None)

    def stopTest(self, test: unittest.TestCase) -> None:
        """Tell how it ended; a failed subtest is a failed test."""
        super().stopTest(test)
        self._tell(test.id(), self._end)

    def addSkip(self, test: unittest.TestCase, reason: str) -> None:
        """A test that does not apply; or a whole class or module."""
        super().addSkip(test, reason)
        self._end = f"skipped: {reason}"

    def addFailure(self, test: unittest.TestCase, err: Any) -> None:
        """An assertion failed."""
        super().addFailure(test, err)
        self._fail(test, self.failures[-1][1])

    def addError(self, test: unittest.TestCase, err: Any) -> None:
        """Something else was raised, in a test or around a class or module."""
        super().addError(test, err)
        self._fail(test, self.errors[-1][1])

    def addSubTest(self, test: unittest.TestCase, subtest: unittest.TestCase, err: Any) -> None:
        """One of several parts ended."""
        super().addSubTest(test, subtest, err)
        if err is not None:
            self._end = (self.failures + self.errors)[-1][1]

    def _fail(self, test: unittest.TestCase, text: str) -> None:
        self._end = text
        if not isinstance(test, unittest.TestCase):  # pyright: ignore[reportUnnecessaryIsInstance]
            self._tell(test.id(), text)  # an _ErrorHolder, which neither starts nor stops


def run(task: Task, tell: Callable[[object, object], None]) -> None:
    """Run the tests of a task."""
    LOOPS[task["loop"]]()
    if task["replace"]:
        point_asyncio_at_ours()
    module = importlib.import_module(task["module"])
    tests = {
        test.id(): test for test in cases(unittest.defaultTestLoader.loadTestsFromModule(module))
    }
    chosen = (set(task["only"]) or tests.keys()) - set(task["skip"])
    unittest.TestSuite(tests[name] for name in tests if name in chosen).run(Telling(tell))
    tell(None, {"loops": Made.loops, **CALLS})


def main() -> None:
    """Read the task, run it, tell."""
    warnings.simplefilter("ignore")  # the tests' own business
    descriptor = int(sys.argv[1])
    os.set_inheritable(descriptor, False)
    report = open(descriptor, "w", encoding="utf-8")  # noqa: SIM115 - closed with the process

    def tell(test: object, end: object) -> None:
        report.write(json.dumps([test, end]) + "\n")
        report.flush()

    run(json.load(sys.stdin), tell)


if __name__ == "__main__":
    main()
