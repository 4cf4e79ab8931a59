"""Changes one part of the core at many places, one at a time, and checks whether its tests fail.

A program, run for each part by `make mutants`:

    python -m tests.mutants.mutants wheel|timer|purgatory [--sample 150] [--seed 1] [--report]

cosmic-ray creates the mutants in a copy of the tree under `build/mutants/PART`. The session file
there has the results, so that an interrupted run continues at the next mutant. The tests are those
of the part, on the pure build; `judge` runs them. A surviving mutant without an effect is listed in
`equivalent.txt` with the reason; every other survivor shows that a test is missing.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
EQUIVALENT = Path(__file__).with_name("equivalent.txt")
COPIED = ("aiowheel", "tests", "pyproject.toml", "_aiowheel_pytestplugin.py")
LEAST_KILLED = 0.9
#: Quick files first, for mutants that get their own process; the empty name is the folder.
TESTS = {
    "wheel": ("test_wheel.py", "test_level_edges.py", "test_wakeups.py", "test_occupancy.py", ""),
    "timer": ("test_manual_timer.py", "test_handle.py", "test_timer.py", "test_fairness.py", ""),
    "purgatory": ("test_watching.py", "test_exactly_once.py", "test_thresholds.py", ""),
}
#: Operators whose mutants have no effect here: annotations are not evaluated, and None, booleans
#: and members of an enumeration are equal if and only if they are identical.
LEFT_OUT = (
    "ReplaceBinaryOperator_BitOr_.*",
    "ReplaceComparisonOperator_(Is|IsNot|Eq|NotEq)_(Eq|NotEq|Is|IsNot)",
)
OPPOSITES = ("Is_IsNot", "IsNot_Is", "Eq_NotEq", "NotEq_Eq")


@dataclass(frozen=True, slots=True)
class Mutant:
    """One mutant with a result.

    Attributes:
        name: File, function, the line before and the line after; it changes only with the code.
        survived: Whether every test passed.
    """

    name: str
    survived: bool


class Session:
    """The mutants of one part, and their results."""

    def __init__(self, part: str) -> None:
        self._part = part
        self._folder = ROOT / "build" / "mutants" / part
        self._tree = self._folder / "tree"  # unchanged since the mutants were listed
        self._work = self._folder / "work"  # has the current mutant, also after an interruption
        self._file = self._folder / "session.sqlite"
        self._config = self._folder / "config.toml"

    def prepare(self, sample: int | None, seed: int) -> None:
        """Copy the tree and list the mutants, unless an earlier run has done so."""
        if self._file.exists():
            return
        shutil.rmtree(self._folder, ignore_errors=True)
        self._tree.mkdir(parents=True)
        ignored = shutil.ignore_patterns("*.so", "__pycache__", "_compiled.*")
        for name in COPIED:
            source = ROOT / name
            if source.is_dir():
                shutil.copytree(source, self._tree / name, ignore=ignored)
            else:
                shutil.copy2(source, self._tree / name)
        self._config.write_text(self._configuration())
        self._python(self._tree, "cosmic_ray.cli", "init", self._config, self._file)
        self._leave_out(sample, seed)

    def run(self) -> None:
        """Run the tests on the mutants without a result."""
        shutil.rmtree(self._work, ignore_errors=True)
        shutil.copytree(self._tree, self._work)
        tests = (f"tests/{self._part}/{name}" for name in TESTS[self._part])
        self._python(self._work, "tests.mutants.judge", self._file, self._tree, *tests)

    def mutants(self) -> list[Mutant]:
        """Return the mutants with a result."""
        command = [sys.executable, "-m", "cosmic_ray.cli", "dump", str(self._file)]
        dumped = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        found: list[Mutant] = []
        for line in dumped.splitlines():
            item, result = json.loads(line)
            if result is not None:
                mutation = item["mutations"][0]
                place = f"{self._part}/{Path(mutation['module_path']).name}"
                name = f"{place} {mutation['definition_name']}: {_changed(result['diff'])}"
                found.append(Mutant(name, result["test_outcome"] == "survived"))
        return found

    def _configuration(self) -> str:
        files = sorted((self._tree / "aiowheel" / self._part).glob("_[a-z]*.py"))
        modules = [str(path.relative_to(self._tree)) for path in files]
        return "\n".join(
            [
                "[cosmic-ray]",
                f"module-path = {json.dumps(modules)}",
                "timeout = 600.0",
                'test-command = ""',
                "[cosmic-ray.distributor]",
                'name = "local"',
                "",
            ]
        )

    def _leave_out(self, sample: int | None, seed: int) -> None:
        """Remove the mutants without an effect, and those beyond the sample."""
        left_out = re.compile(f"core/({'|'.join(LEFT_OUT)})")
        with closing(sqlite3.connect(self._file)) as session, session:
            rows = session.execute("SELECT job_id, operator_name FROM mutation_specs").fetchall()
            kept = [
                job
                for job, operator in sorted(rows)
                if not left_out.fullmatch(operator) or operator.endswith(OPPOSITES)
            ]
            if sample is not None and sample < len(kept):
                order = sorted(kept)
                kept = random.Random(seed).sample(order, sample)
            gone = [(job,) for job in {job for job, _ in rows} - set(kept)]
            for table in ("mutation_specs", "work_items"):
                session.executemany(f"DELETE FROM {table} WHERE job_id = ?", gone)
        print(f"{self._part}: {len(kept)} of {len(rows)} mutants")

    @staticmethod
    def _python(folder: Path, module: str, *words: object) -> None:
        command = [sys.executable, "-m", module, *map(str, words)]
        pure = {"AIOWHEEL_NO_EXTENSIONS": "1", "PYTHONPATH": str(folder)}
        subprocess.run(
            command,
            check=True,
            cwd=folder,
            env={**os.environ, **pure},
            stdout=subprocess.DEVNULL,  # hides the output of pytest
        )


def _changed(diff: str) -> str:
    """Return the changed lines of a diff as one text."""
    lines = [line for line in diff.splitlines() if line[:3] not in {"---", "+++"}]
    return " ".join(f"{line[0]} {line[1:].strip()}" for line in lines if _is_change(line))


def _is_change(line: str) -> bool:
    return line[:1] in {"-", "+"} and line[1:].strip() != ""


def equivalents() -> dict[str, str]:
    """Return, by the name of a mutant, the reason why it has no effect."""
    lines = EQUIVALENT.read_text("utf-8").splitlines()
    pairs = zip(lines[1::3], lines[2::3], strict=False)  # a blank line, the mutant, the reason
    return {name: reason.strip() for name, reason in pairs}


def report(part: str, mutants: list[Mutant]) -> bool:
    """Print the survivors; return whether enough mutants were killed."""
    known = equivalents()
    tried = [mutant for mutant in mutants if not (mutant.survived and mutant.name in known)]
    survivors = [mutant.name for mutant in tried if mutant.survived]
    for name in survivors:
        print(f"    survived: {name}")
    share = 1 - len(survivors) / len(tried) if tried else 1.0
    same = len(mutants) - len(tried)
    print(f"{part}: {len(tried)} mutants tried, {same} more change nothing, {share:.1%} killed")
    return share >= LEAST_KILLED


def main() -> int:
    """Run the tests on the mutants of one part; return 1 if too many survive."""
    parser = argparse.ArgumentParser(description="Check whether tests fail for changed code.")
    parser.add_argument("part", choices=tuple(TESTS))
    parser.add_argument("--sample", type=int, help="number of random mutants; default: all")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--report", action="store_true", help="only print the known results")
    options = parser.parse_args()
    session = Session(options.part)
    if not options.report:
        session.prepare(options.sample, options.seed)
        session.run()
    return not report(options.part, session.mutants())


if __name__ == "__main__":
    sys.exit(main())
