"""Tries mutants in forks of a process that has collected the tests: tenths of a second for each.

A program that `mutants` runs, in a copy of the tree:

    python -m tests.mutants.judge SESSION PRISTINE TEST...

pytest collects the tests once and, instead of running them, calls the plugin below. It notes which
lines each test executes and how long it takes. For each mutant a fork gets the changed functions
and runs the tests of the changed line, then those of the rest of the function, the quick ones
first, up to the first failure. A mutant that is no function, and one that no test executes, is
tried in a process of its own.
"""

from __future__ import annotations

import difflib
import faulthandler
import gc
import importlib
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import coverage
import pytest

from .swap import Swap, swap_of

_mutating: Any = importlib.import_module("cosmic_ray.mutating")
_plugins: Any = importlib.import_module("cosmic_ray.plugins")
_work_db: Any = importlib.import_module("cosmic_ray.work_db")
_work_item: Any = importlib.import_module("cosmic_ray.work_item")

OPTIONS = ("-q", "-p", "no:cacheprovider", "-m", "not slow")
#: Real seconds of one test, beside twenty times those that it took before: it may wait for ever.
PATIENCE = 20.0
_MOST_MEMORY = 4 << 30  # bytes: a mutant may never stop allocating


def in_fork(work: Callable[[], bool]) -> bool:
    """Return what *work* returns in a fork of this process; False if the fork dies."""
    child = os.fork()
    if child == 0:
        passed = False
        try:
            resource.setrlimit(resource.RLIMIT_AS, (_MOST_MEMORY, _MOST_MEMORY))
            passed = work()
        finally:
            os._exit(0 if passed else 1)
    return os.waitpid(child, 0)[1] == 0


class Judge:
    """A plugin of pytest that runs the collected tests for each mutant.

    Args:
        database: The mutants, and what has become of them.
        pristine: The folder of the tree as it was; the present one is a copy.
        tests: The files of the tests, for processes of their own.
    """

    def __init__(self, database: Any, pristine: Path, tests: Sequence[str]) -> None:
        self._database = database
        self._pristine = pristine
        self._tests = tests
        self._items: dict[str, pytest.Item] = {}
        self._seconds: dict[str, float] = {}  # by the name of a test
        self._covered: dict[str, dict[str, list[str]]] = {}  # names, by file and line

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Try every mutant that has not been tried."""
        self._session = session
        self._items = {item.nodeid: item for item in session.items}
        gc.collect()
        gc.freeze()  # a collection in a fork would copy every page
        self._measure()
        for work in self._database.pending_work_items:
            self._database.set_result(work.job_id, self._result(work.mutations[0]))
        return True

    # --- before -----------------------------------------------------------------------------

    def _measure(self) -> None:
        """Note the lines and the seconds of each test; those that fail are left out."""
        with tempfile.TemporaryFile("w+") as notes:
            in_fork(lambda: self._watch(notes.fileno()))
            notes.seek(0)
            self._seconds, self._covered = json.load(notes)
        if not in_fork(lambda: self._pass(sorted(self._seconds, key=self._seconds.__getitem__))):
            raise pytest.UsageError("tests that fail without a mutant must be mended first")

    def _watch(self, notes: int) -> bool:
        watcher = coverage.Coverage(data_file=None, config_file=False, include=["aiowheel/*"])
        seconds: dict[str, float] = {}
        watcher.start()
        for name in self._items:
            watcher.switch_context(name)
            began = time.perf_counter()
            if self._pass([name]):
                seconds[name] = time.perf_counter() - began
            self._session.testsfailed = 0
        watcher.stop()
        data = watcher.get_data()
        covered = {file: data.contexts_by_lineno(file) for file in data.measured_files()}
        with os.fdopen(os.dup(notes), "w") as file:
            json.dump([seconds, covered], file)
        return True

    # --- one mutant -------------------------------------------------------------------------

    def _result(self, mutation: Any) -> Any:
        path: Path = mutation.module_path
        operator = _plugins.get_operator(mutation.operator_name)()
        before = path.read_text("utf-8")
        after: str = _mutating.mutate_code(before, operator, mutation.occurrence)
        lines = before.splitlines(), after.splitlines()
        survived = self._survives(path, mutation.start_pos[0], before, after)
        return _work_item.WorkResult(
            worker_outcome=_work_item.WorkerOutcome.NORMAL,
            test_outcome="survived" if survived else "killed",
            diff="\n".join(difflib.unified_diff(*lines, lineterm="", n=0)),
        )

    def _survives(self, path: Path, line: int, before: str, after: str) -> bool:
        module = importlib.import_module(".".join(path.with_suffix("").parts))
        try:
            swap = swap_of(module, before, after)
        except SyntaxError:
            return False
        tests = self._tests_of(str(module.__file__), line, swap or [])
        if not tests:
            return self._survives_alone(path, after)
        return in_fork(lambda: self._pass_with(swap or [], tests))

    def _tests_of(self, file: str, line: int, swap: Swap) -> list[str]:
        """Return the tests of these functions, those of *line* first, the quick ones first."""
        covered = self._covered.get(file, {})
        exact = set(covered.get(str(line), ()))
        own = {each for function, _ in swap for _, _, each in function.__code__.co_lines()}
        found = {name for each in own for name in covered.get(str(each), ())}
        found &= self._seconds.keys()
        return sorted(found, key=lambda name: (name not in exact, self._seconds[name]))

    def _pass_with(self, swap: Swap, tests: Sequence[str]) -> bool:
        for function, code in swap:
            function.__code__ = code
        return self._pass(tests)

    def _pass(self, names: Sequence[str]) -> bool:
        """Run tests up to the first failure; this process ends where one takes too long."""
        for name, following in zip(names, [*names[1:], None], strict=True):
            limit = PATIENCE + 20 * self._seconds.get(name, PATIENCE)
            faulthandler.dump_traceback_later(limit, exit=True)
            item = self._items[name]
            item.ihook.pytest_runtest_protocol(
                item=item, nextitem=None if following is None else self._items[following]
            )
            faulthandler.cancel_dump_traceback_later()
            if self._session.testsfailed:
                return False
        return True

    def _survives_alone(self, path: Path, after: str) -> bool:
        path.write_text(after, "utf-8")
        command = [sys.executable, "-m", "pytest", *OPTIONS, "-x", *self._tests]
        try:
            # Compiled files tell a source by its second and its size: none is written.
            done = subprocess.run(
                command,
                check=False,
                stdout=subprocess.DEVNULL,
                timeout=600,
                env=os.environ | {"PYTHONDONTWRITEBYTECODE": "1"},
            )
        except subprocess.TimeoutExpired:
            return False
        finally:
            shutil.copy2(self._pristine / path, path)
        return done.returncode == 0


def main(session: str, pristine: str, *tests: str) -> int:
    """Try the mutants of a session."""
    with _work_db.use_db(session, _work_db.WorkDB.Mode.open) as database:
        return int(pytest.main([*OPTIONS, *tests], [Judge(database, Path(pristine), tests)]))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
