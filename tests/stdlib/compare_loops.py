"""Run the interpreter's own asyncio tests on the base loops and on wheel loops, and compare.

A program:

    python tests/stdlib/compare_loops.py [--base asyncio|uvloop] [MODULE...]

For each base it prints how many tests passed on both, which failed on both, and which failed only
on the wheel; it exits with 1 if there are tests of the last kind. Such a test first runs again on
both loops, because many tests measure time and the machine may be busy.
"""

import argparse
import sys
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from importlib.util import find_spec

from guarded_run import Run, Selection

PACKAGE = "test.test_asyncio."
#: Every module in which timers matter; some Python versions lack some of them.
MODULES = (
    "test_base_events",
    "test_eager_task_factory",
    "test_events",
    "test_locks",
    "test_queues",
    "test_runners",
    "test_streams",
    "test_taskgroups",
    "test_tasks",
    "test_timeouts",
    "test_waitfor",
)
#: Tests that check what a wheel replaces, with the reason; each is printed when it is left out.
LEFT_OUT = {
    "test_base_events.BaseEventLoopTests.test_call_later": "looks for the handle in asyncio's heap",
    "test_base_events.BaseEventLoopTests.test__run_once_cancelled_event_cleanup": (
        "counts the cancelled handles left in asyncio's heap; a wheel keeps none"
    ),
}


@dataclass(frozen=True, slots=True)
class Comparison:
    """The same tests on a base loop and on a wheel loop."""

    base: Run
    ours: Run

    def passed(self) -> set[str]:
        """Return the tests that passed on both."""
        return self.base.passed() & self.ours.passed()

    def failed(self) -> set[str]:
        """Return the tests that failed on both."""
        return self.base.failed() & self.ours.failed()

    def only_ours(self) -> set[str]:
        """Return the tests that passed on the base loop and failed or were skipped on the wheel."""
        return self.base.passed() - self.ours.passed()

    def print(self) -> None:
        """Print the three lists; of passed tests only the number."""
        skipped = len(self.base.skipped() & self.ours.skipped())
        print(f"== {self.ours.loop} beside {self.base.loop}")
        print(f"passed on both: {len(self.passed())}   (skipped on both: {skipped})")
        self._print_list("failed on both", self.failed())
        self._print_list("only ours", self.only_ours())
        for test in sorted(self.only_ours()):
            print(f"\n{test}\n{self.ours.ends.get(test, 'did not run')}")

    @staticmethod
    def _print_list(title: str, tests: Iterable[str]) -> None:
        names = sorted(test.removeprefix(PACKAGE) for test in tests)
        print(f"{title}: {len(names)}")
        for name in names:
            print(f"    {name}")


def compare(tests: Selection, base: str) -> Comparison:
    """Run *tests* on both loops at the same time; run differing tests again, in turn."""
    loops = (base, f"wheel on {base}")
    with ThreadPoolExecutor(2) as pool:
        comparison = Comparison(*pool.map(tests.run_on, loops))
    doubtful = comparison.only_ours()
    if doubtful:
        again = Comparison(*map(replace(tests, only=frozenset(doubtful)).run_on, loops))
        comparison.base.ends.update(again.base.ends)
        comparison.ours.ends.update(again.ours.ends)
    return comparison


def cpython_tests(modules: Iterable[str]) -> Selection:
    """Return the interpreter's own tests of those *modules* that it has."""
    names = (PACKAGE + module for module in modules)
    skip = frozenset(PACKAGE + test for test in LEFT_OUT)
    return Selection(tuple(name for name in names if find_spec(name) is not None), skip=skip)


def main() -> int:
    """Compare and print; return 1 if a test failed only on the wheel."""
    parser = argparse.ArgumentParser(description="Compare our loops with their bases.")
    parser.add_argument("--base", action="append", choices=["asyncio", "uvloop"])
    parser.add_argument("modules", nargs="*", metavar="MODULE", help=", ".join(MODULES))
    options = parser.parse_args()
    tests = cpython_tests(options.modules or MODULES)
    print(f"CPython {sys.version.split()[0]}: {len(tests.modules)} modules")
    for test, reason in LEFT_OUT.items():
        print(f"left out: {test}: {reason}")
    comparisons = [compare(tests, base) for base in options.base or ("asyncio", "uvloop")]
    for comparison in comparisons:
        comparison.print()
    return any(comparison.only_ours() for comparison in comparisons)


if __name__ == "__main__":
    sys.exit(main())
