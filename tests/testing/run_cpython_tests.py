"""Runs the interpreter's own asyncio tests on virtual loops.

A program: `python run_cpython_tests.py MODULE...` prints one JSON object: how many tests ran, how
many virtual loops they made, and the names of those that failed.
"""

import asyncio
import json
import sys
import unittest
import warnings

from aiowheel.testing import VirtualClockEventLoop

made = 0


class VirtualPolicy(asyncio.DefaultEventLoopPolicy):
    """New loops are virtual."""

    def new_event_loop(self) -> asyncio.AbstractEventLoop:
        """Count it, and make it patient: child processes of the tests take their time."""
        global made  # noqa: PLW0603 - a program of one page
        made += 1
        return VirtualClockEventLoop(patience=5)


def main(modules: list[str]) -> None:
    """Run the modules, keeping the policy when they go back to the default one."""
    warnings.simplefilter("ignore")  # the tests' own business
    choose = asyncio.set_event_loop_policy  # pyright: ignore[reportDeprecated]

    def choose_virtual(policy: asyncio.AbstractEventLoopPolicy | None) -> None:
        choose(VirtualPolicy() if policy is None else policy)

    asyncio.set_event_loop_policy = choose_virtual
    choose_virtual(None)
    names = [f"test.test_asyncio.{module}" for module in modules]
    suite = unittest.defaultTestLoader.loadTestsFromNames(names)
    result = unittest.TextTestRunner(sys.stderr, verbosity=0).run(suite)
    failed = [str(test) for test, _ in result.failures + result.errors]
    print(json.dumps({"ran": result.testsRun, "loops": made, "failed": failed}))  # noqa: T201


if __name__ == "__main__":
    main(sys.argv[1:])
