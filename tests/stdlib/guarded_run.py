"""Run tests in a child process that may hang or crash: that test fails, the others continue."""

import json
import os
import select
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

PROGRAM = Path(__file__).with_name("run_tests.py")


@dataclass(slots=True)
class Run:
    """The results of tests on one loop.

    Attributes:
        loop: Its name in `loops_under_test.LOOPS`.
        ends: By test: "passed", "skipped: ...", or the error.
        counts: Created loops, and calls of ours where asyncio's functions were replaced.
    """

    loop: str
    ends: dict[str, str] = field(default_factory=dict[str, str])
    counts: Counter[str] = field(default_factory=Counter[str])

    def passed(self) -> set[str]:
        """Return the tests that passed."""
        return {test for test, end in self.ends.items() if end == "passed"}

    def skipped(self) -> set[str]:
        """Return the tests that were skipped."""
        return {test for test, end in self.ends.items() if end.startswith("skipped")}

    def failed(self) -> set[str]:
        """Return the tests that failed, hung or crashed."""
        return self.ends.keys() - self.passed() - self.skipped()


@dataclass(frozen=True, slots=True)
class Selection:
    """The tests to run, and how.

    Attributes:
        modules: Dotted names.
        skip: Names of tests to leave out.
        only: Names of the only tests to run; empty for all.
        replace: Whether asyncio's timeouts are replaced by ours.
        path: Folders to put on the import path.
        seconds: Limit for one test, after which it counts as hung.
    """

    modules: tuple[str, ...]
    skip: frozenset[str] = frozenset()
    only: frozenset[str] = frozenset()
    replace: bool = False
    path: tuple[str, ...] = ()
    seconds: float = 10.0

    def run_on(self, loop: str) -> Run:
        """Run all tests: a process for each module, and another after a hang or a crash."""
        run = Run(loop)
        for module in self.modules:
            while not _Child(self, loop, module, self.skip | run.ends.keys()).follow(run):
                pass
        return run


class _Child:
    """One process of `run_tests.py`."""

    def __init__(self, tests: Selection, loop: str, module: str, skip: frozenset[str]) -> None:
        self._module = module
        self._seconds = tests.seconds
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115 - closed in follow
        self._reading, writing = os.pipe()
        paths = [*tests.path, *filter(None, [os.environ.get("PYTHONPATH")])]
        self._process = subprocess.Popen(
            [sys.executable, str(PROGRAM), str(writing)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=self._stderr,
            pass_fds=[writing],
            start_new_session=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        )
        os.close(writing)
        task = {
            "loop": loop,
            "module": module,
            "skip": sorted(skip),
            "only": sorted(tests.only),
            "replace": tests.replace,
        }
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(task).encode())
        self._process.stdin.close()

    def follow(self, run: Run) -> bool:
        """Record how the tests end; return False if some must run in another process."""
        running: str | None = None
        finished = False
        for test, end in self._reports():
            if test is None:
                run.counts.update(end)
                finished = True
            elif end is None:
                running = test
            else:
                run.ends[test] = end
                running = None
        why = self._end()
        if not finished:
            run.ends[running or self._module] = why
        return finished or running is None

    def _reports(self) -> Iterator[tuple[Any, Any]]:
        """Yield the reports of the process, until it ends or a test takes too long."""
        rest = b""
        while select.select([self._reading], [], [], self._seconds)[0]:
            chunk = os.read(self._reading, 65536)
            if not chunk:
                return
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                yield tuple(json.loads(line))

    def _end(self) -> str:
        """End the process with its children; return why its reports ended."""
        os.close(self._reading)
        try:
            status = f"the process ended with status {self._process.wait(timeout=1)}"
        except subprocess.TimeoutExpired:
            status = f"hung for {self._seconds:g} s"
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        with self._stderr:
            self._stderr.seek(0)
            return f"{status}\n{self._stderr.read().decode(errors='replace')[-2000:]}"
