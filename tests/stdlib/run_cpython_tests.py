"""Runs the interpreter's own asyncio tests with asyncio's timeouts replaced by ours.

A program: `python run_cpython_tests.py asyncio|uvloop MODULE...` prints one JSON object: what
became of every test by its name, and how often each replaced function was called.
"""

import asyncio
import importlib
import json
import sys
import unittest
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from functools import wraps
from typing import Any

import aiowheel

CALLS: Counter[str] = Counter()


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


def short_name(test: Any) -> str:
    """`module.Class.test`, for a subtest that of its test."""
    name: str = getattr(test, "test_case", test).id()
    return name.removeprefix("test.test_asyncio.")


def cases(suite: unittest.TestSuite) -> Iterator[unittest.TestCase]:
    """Every test in nested suites."""
    for each in suite:
        if isinstance(each, unittest.TestSuite):
            yield from cases(each)
        else:
            yield each


def run(module: str) -> dict[str, str]:
    """What became of each test of a module: "passed", "skipped" or a traceback."""
    imported = importlib.import_module(f"test.test_asyncio.{module}")
    suite = unittest.defaultTestLoader.loadTestsFromModule(imported)
    ends = {short_name(test): "passed" for test in cases(suite)}
    result = unittest.TestResult()
    suite.run(result)
    ends.update({short_name(test): "skipped" for test, _ in result.skipped})
    ends.update({short_name(test): text for test, text in result.failures + result.errors})
    return ends


def use_uvloop() -> None:
    """Have the tests run on uvloop: they take their loops from the policy."""
    import uvloop

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        policy = uvloop.EventLoopPolicy()
        asyncio.set_event_loop_policy(policy)  # pyright: ignore[reportDeprecated] - up to 3.13

    def keep(policy: object) -> None:
        """`tearDownModule` would put asyncio's back."""

    asyncio.set_event_loop_policy = keep


def main(loop: str, modules: list[str]) -> None:
    """Run the modules on a loop and print the report."""
    if loop == "uvloop":
        use_uvloop()
    point_asyncio_at_ours()
    ends: dict[str, str] = {}
    for module in modules:
        ends.update(run(module))
    sys.stdout.write(json.dumps({"ends": ends, "calls": CALLS}))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
