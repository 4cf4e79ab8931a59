"""Run the unchanged test suites of other projects on a base loop and on a wheel loop, and compare.

A program, run by `make test-strangers`:

    python -m tests.strangers.compare_suites [--base asyncio|uvloop] [--out FILE] [PROJECT ...]

It prints a row for each suite, and the name of each test that passed only on the base loop. It
exits with 1 if `DIFFERENCES` does not explain such a test. Those tests first run once more on both
loops, because many of them measure time and the machine may be busy.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from .projects import BUILD, PROJECTS, ROOT, Project, Server

RESULTS = Path(__file__).with_name("results.json")
#: Import paths of the plugin and our loops, after the suite's own folder.
PATHS = (Path(__file__).parent, ROOT / "tests" / "stdlib", ROOT)
HOURS = 1  # limit for a suite that hangs in spite of the limit of each test
#: The reason why a test passes only on a base loop, by project and test.
DIFFERENCES: Mapping[tuple[str, str], str] = {
    ("aiohttp", "tests/test_web_functional.py::test_keepalive_expires_on_time[pyloop]"): (
        "the test replaces `time` of a loop object; "
        "a wheel loop, like uvloop, reads its clock without this method"
    ),
    ("anyio", "tests/test_to_thread.py::test_asyncio_run_does_not_leak_event_loop"): (
        "an idle worker thread of anyio may hold the closed loop for a moment; "
        "the test also fails at random on asyncio and uvloop"
    ),
}


@dataclass(slots=True)
class Suite:
    """How each test of a suite ended on one loop.

    Attributes:
        loop: Its name in `loops_under_test.LOOPS`.
        ends: By test: "passed", "skipped" or "failed: " and the reason.
        loops: Number of loops that the run created; None if the run did not finish.
    """

    loop: str
    ends: dict[str, str] = field(default_factory=dict[str, str])
    loops: int | None = None

    def passed(self) -> set[str]:
        """Return the tests that passed."""
        return {test for test, end in self.ends.items() if end == "passed"}

    def failed(self) -> set[str]:
        """Return the tests that failed."""
        return {test for test, end in self.ends.items() if end.startswith("failed")}


@dataclass(frozen=True, slots=True)
class Row:
    """The comparison of one suite: a row of the table.

    Attributes:
        project: Name and release.
        base: The base loop.
        on_base: Number of tests that passed on it.
        on_wheel: Number of tests that passed on the wheel above it.
        failed_on_both: Number of tests that failed on both.
        loops: Number of wheel loops that the tests created.
        on_wheel_alone: Tests that passed only on the wheel.
        in_second_run: Tests that failed on the wheel once and passed in the second run.
        differences: Tests that passed only on the base loop, and why.
    """

    project: str
    base: str
    on_base: int
    on_wheel: int
    failed_on_both: int
    loops: int
    on_wheel_alone: list[str]
    in_second_run: list[str]
    differences: dict[str, str]

    def __str__(self) -> str:
        """Return the row of a table in Markdown."""
        numbers = (self.on_base, self.on_wheel, self.failed_on_both, self.loops)
        figures = (f"{number:,}" for number in (*numbers, len(self.differences)))
        return f"| {self.project} | {self.base} | {' | '.join(figures)} |"


def run_suite(project: Project, loop: str, server: Server, only: Collection[str] = ()) -> Suite:
    """Run a suite, or some of its tests, on one loop, in a process of its own."""
    name = f"{loop.replace(' ', '-')}{'-again' if only else ''}"
    folder = project.source.parent
    results, output = folder / f"{name}.jsonl", folder / f"{name}.txt"
    results.unlink(missing_ok=True)
    command: list[str | Path] = [
        *(project.python, "-m", "pytest", "-p", "loop_plugin", "-p", "no:cacheprovider"),
        *("-o", "addopts=", "--timeout=120", "--tb=short", "-q"),
        *(*project.options, *server.options, *(only or project.tests)),
    ]
    environment = {
        **{name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ},
        **server.environment,
        "PYTHONPATH": os.pathsep.join(map(str, (project.source, *PATHS))),
        "STRANGERS_LOOP": loop,
        "STRANGERS_RESULTS": str(results),
    }
    with output.open("w") as written:
        subprocess.run(
            command,
            cwd=project.source,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=written,
            stderr=subprocess.STDOUT,
            timeout=HOURS * 3600,
            check=False,
        )
    return read_results(loop, results)


def read_results(loop: str, results: Path) -> Suite:
    """Read the results file of the plugin."""
    suite = Suite(loop)
    for line in results.read_text("utf-8").splitlines() if results.exists() else ():
        test, end = json.loads(line)
        if test is None:
            suite.loops = end
        else:
            suite.ends[test] = end
    return suite


def compare(project: Project, base: str) -> Row:
    """Run one suite on a base loop and on the wheel above it; run differing tests again."""
    project.prepare()
    with project.server() as server:
        theirs, ours = (run_suite(project, loop, server) for loop in (base, f"wheel on {base}"))
        doubtful = theirs.passed() - ours.passed()
        if doubtful:
            for suite in (theirs, ours):
                again = run_suite(project, suite.loop, server, sorted(doubtful))
                suite.ends.update(
                    {test: again.ends.get(test, "failed: no end") for test in doubtful}
                )
    if not (ours.loops and theirs.loops):
        sys.exit(f"{project.name}: a run made no loop or had no end, see {project.source.parent}")
    return Row(
        project=f"{project.name} {project.version}",
        base=base,
        on_base=len(theirs.passed()),
        on_wheel=len(ours.passed()),
        failed_on_both=len(theirs.failed() & ours.failed()),
        loops=ours.loops,
        on_wheel_alone=sorted(ours.passed() & theirs.failed()),
        in_second_run=sorted(doubtful & ours.passed()),
        differences={
            test: DIFFERENCES.get((project.name, test), "")
            for test in sorted(theirs.passed() - ours.passed())
        },
    )


def kept(file: Path) -> dict[tuple[str, str], dict[str, Any]]:
    """Return the rows of earlier runs, by project and base."""
    rows: list[dict[str, Any]] = json.loads(file.read_text("utf-8")) if file.exists() else []
    return {(row["project"].split()[0], row["base"]): row for row in rows}


def main() -> int:
    """Compare, print and write; return 1 if a difference is not explained."""
    names = [project.name for project in PROJECTS]
    parser = argparse.ArgumentParser(description="Run suites of other projects on our loops.")
    parser.add_argument("--base", action="append", choices=["asyncio", "uvloop"])
    parser.add_argument("--out", type=Path, default=BUILD / "results.json", help="rows as JSON")
    parser.add_argument("projects", nargs="*", metavar="PROJECT", help=", ".join(names))
    options = parser.parse_args()
    unexplained = False
    for project in PROJECTS:
        if options.projects and project.name not in options.projects:
            continue
        for base in options.base or ("asyncio", "uvloop"):
            row = compare(project, base)
            print(row, flush=True)
            for test, reason in row.differences.items():
                print(f"    {test}: {reason or 'NOT EXPLAINED'}", flush=True)
                unexplained |= not reason
            rows = kept(options.out) | {(project.name, base): asdict(row)}
            text = json.dumps([rows[key] for key in sorted(rows)], indent=1)
            options.out.write_text(f"{text}\n", "utf-8")
    return unexplained


if __name__ == "__main__":
    sys.exit(main())
