"""Runs the tests on mutants in forks of a process that has collected them: tenths of a second each.

A program that `mutants` runs, in a copy of the tree:

    python -m tests.mutants.judge SESSION PRISTINE TEST...

pytest collects the tests once and then calls the plugin below instead of running them. The plugin
records which functions each test calls and how long the test takes. For each mutant, a fork gets
the changed functions and runs the tests that call them, up to the first failure: first those that
have killed other mutants of these functions, then the quickest. A mutant outside functions, or of a
function that no test calls, gets its own process.
"""

from __future__ import annotations

import difflib
import faulthandler
import importlib
import json
import mmap
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import pytest

from .swap import Swap, swap_of

_mutating: Any = importlib.import_module("cosmic_ray.mutating")
_plugins: Any = importlib.import_module("cosmic_ray.plugins")
_work_db: Any = importlib.import_module("cosmic_ray.work_db")
_work_item: Any = importlib.import_module("cosmic_ray.work_item")

OPTIONS = ("-q", "-p", "no:cacheprovider", "-m", "not slow", "--hypothesis-profile", "thorough")
#: Seconds of processor time; a test that takes more is left out.
SLOW = 0.25
#: Real seconds after which a test counts as hanging, which mutants may cause.
PATIENCE = 8.0
_MOST_MEMORY = 4 << 30  # bytes; a mutant may allocate endlessly


def limit_memory() -> None:
    """Limit the memory of this process."""
    resource.setrlimit(resource.RLIMIT_AS, (_MOST_MEMORY, _MOST_MEMORY))


def in_fork(work: Callable[[], bool]) -> bool:
    """Return the result of *work* in a fork of this process; False if the fork dies."""
    child = os.fork()
    if child == 0:
        passed = False
        try:
            limit_memory()
            passed = work()
        finally:
            os._exit(0 if passed else 1)
    return os.waitpid(child, 0)[1] == 0


class Judge:
    """A pytest plugin that runs the collected tests for each mutant.

    Args:
        database: The mutants and their results.
        pristine: The folder of the unchanged tree; the current folder is a copy.
        tests: The test files, for mutants that get their own process.
    """

    def __init__(self, database: Any, pristine: Path, tests: Sequence[str]) -> None:
        self._database = database
        self._pristine = pristine
        self._tests = tests
        self._patience = 600.0
        self._items: dict[str, pytest.Item] = {}
        self._quick: list[str] = []  # the names of tests, the quickest first
        self._calls: dict[str, set[str]] = {}  # the places of functions, by the name of a test
        # The tests that have killed a mutant of a function, the latest last; a dict, as a set.
        self._killers: defaultdict[str, dict[str, None]] = defaultdict(dict)
        self._running = mmap.mmap(-1, 4)  # the place of a fork's running test in its list

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Run the tests on every mutant without a result."""
        self._session = session
        self._items = {item.nodeid: item for item in session.items}
        self._measure()
        for work in self._database.pending_work_items:  # forks first, because they are fast
            self._try(work, self._survives)
        if self._database.pending_work_items and not self._pass_alone():
            raise pytest.UsageError("tests that fail in a process of their own must be fixed first")
        for work in self._database.pending_work_items:
            self._try(work, self._survives_alone)
        return True

    # --- before -----------------------------------------------------------------------------

    def _measure(self) -> None:
        """Record the calls and the seconds of each test."""
        with tempfile.TemporaryFile("w+") as notes:
            in_fork(lambda: self._watch(notes.fileno()))
            notes.seek(0)
            seconds, calls = json.load(notes)
        self._quick = sorted((name for name in seconds if seconds[name] < SLOW), key=seconds.get)
        self._calls = {name: set(places) for name, places in calls.items()}
        if not in_fork(lambda: self._pass(self._quick)):
            raise pytest.UsageError("tests that fail without a mutant must be fixed first")
        self._patience = PATIENCE

    def _watch(self, notes: int) -> bool:
        seconds: dict[str, float] = {}
        calls: dict[str, list[str]] = {}
        called: set[CodeType] = set()

        def trace(frame: FrameType, _event: str, _argument: object) -> None:
            called.add(frame.f_code)

        for name in self._items:
            called.clear()
            sys.settrace(trace)
            threading.settrace(trace)
            began = time.process_time()
            passed = self._pass([name])
            sys.settrace(None)
            if passed:
                seconds[name] = time.process_time() - began
                calls[name] = [_place(code) for code in called if "/aiowheel/" in code.co_filename]
            self._session.testsfailed = 0
        with os.fdopen(os.dup(notes), "w") as file:
            json.dump([seconds, calls], file)
        return True

    # --- one mutant -------------------------------------------------------------------------

    def _try(self, work: Any, survives: Callable[[Path, str, str], bool | None]) -> None:
        mutation = work.mutations[0]
        path: Path = mutation.module_path
        operator = _plugins.get_operator(mutation.operator_name)()
        before = path.read_text("utf-8")
        after: str = _mutating.mutate_code(before, operator, mutation.occurrence)
        survived = survives(path, before, after)
        if survived is None:
            return
        lines = before.splitlines(), after.splitlines()
        result = _work_item.WorkResult(
            worker_outcome=_work_item.WorkerOutcome.NORMAL,
            test_outcome="survived" if survived else "killed",
            diff="\n".join(difflib.unified_diff(*lines, lineterm="", n=0)),
        )
        self._database.set_result(work.job_id, result)

    def _survives(self, path: Path, before: str, after: str) -> bool | None:
        """Return whether a mutant survives in a fork; None if it needs its own process."""
        module = importlib.import_module(".".join(path.with_suffix("").parts))
        try:
            swap = swap_of(module, before, after) or []
        except SyntaxError:
            return False
        changed = {_place(function.__code__) for function, _ in swap}
        killers = [name for place in changed for name in reversed(self._killers[place])]
        quick = [name for name in self._quick if not changed.isdisjoint(self._calls[name])]
        tests = list(dict.fromkeys(killers + quick))
        if not tests:
            return None
        self._running[:] = bytes(4)
        if in_fork(lambda: self._pass_with(swap, tests)):
            return True
        killer = tests[int.from_bytes(self._running[:], "little")]
        for place in changed & self._calls[killer]:
            self._killers[place].pop(killer, None)
            self._killers[place][killer] = None
        return False

    def _pass_with(self, swap: Swap, tests: Sequence[str]) -> bool:
        for function, code in swap:
            function.__code__ = code
        return self._pass(tests)

    def _pass(self, names: Sequence[str]) -> bool:
        """Run tests up to the first failure; if a test takes too long, this process exits."""
        for place, (name, following) in enumerate(zip(names, [*names[1:], None], strict=True)):
            self._running[:] = place.to_bytes(4, "little")
            faulthandler.dump_traceback_later(self._patience, exit=True)
            item = self._items[name]
            item.ihook.pytest_runtest_protocol(
                item=item, nextitem=None if following is None else self._items[following]
            )
            faulthandler.cancel_dump_traceback_later()
            if self._session.testsfailed:
                return False
        return True

    def _survives_alone(self, path: Path, _before: str, after: str) -> bool:
        path.write_text(after, "utf-8")
        try:
            return self._pass_alone()
        finally:
            shutil.copy2(self._pristine / path, path)

    def _pass_alone(self) -> bool:
        """Run all tests in a process of their own, up to the first failure."""
        # A thread ends the process; code under test may swallow the exception of a signal.
        patience = (f"--timeout={4 * PATIENCE}", "--timeout-method=thread")
        command = [sys.executable, "-m", "pytest", *OPTIONS, "-x", *patience, *self._tests]
        try:
            # Bytecode files identify a source by its second and size, so none must be written.
            done = subprocess.run(
                command,
                check=False,
                stdout=subprocess.DEVNULL,
                timeout=600,
                preexec_fn=limit_memory,
                env=os.environ | {"PYTHONDONTWRITEBYTECODE": "1"},
            )
        except subprocess.TimeoutExpired:
            return False
        return done.returncode == 0


def _place(code: CodeType) -> str:
    return f"{code.co_filename}:{code.co_firstlineno}:{code.co_qualname}"


def main(session: str, pristine: str, *tests: str) -> int:
    """Run the tests on the mutants of a session."""
    with _work_db.use_db(session, _work_db.WorkDB.Mode.open) as database:
        return int(pytest.main([*OPTIONS, *tests], [Judge(database, Path(pristine), tests)]))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
