"""Plant each bug in a copy of the tree, and check that a simulation or the suite finds it.

`python -m tests.planted.run [NAME ...]` runs all bugs, or those whose name has one of the words. It
prints a table, and exits with 1 if a bug was not found.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from .patches import ROOT, Planted, all_planted

SEEDS = 1000
_COPIED = (
    "aiowheel",
    "benchmarks",
    "tests",
    "examples",
    "pyproject.toml",
    "_aiowheel_pytestplugin.py",
)
_LIMIT = 600  # seconds for one program, which a bug may make hang


class Copy:
    """A copy of the sources in a temporary folder, without compiled modules."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        # Python compares whole seconds to detect a changed source.
        self._time = time.time()
        ignored = shutil.ignore_patterns("*.so", "__pycache__", "_compiled.*")
        for name in _COPIED:
            source = ROOT / name
            if source.is_dir():
                shutil.copytree(source, folder / name, ignore=ignored)
            else:
                shutil.copy(source, folder / name)

    def write(self, file: str, text: str) -> None:
        """Replace a source file."""
        path = self._folder / file
        path.write_text(text, encoding="utf-8")
        self._time += 2
        os.utime(path, (self._time, self._time))

    def run(self, *words: str) -> tuple[bool, str, float]:
        """Run Python in the copy; return whether it failed, its output, and the seconds."""
        began = time.perf_counter()
        try:
            done = subprocess.run(
                [sys.executable, *words],
                capture_output=True,
                text=True,
                check=False,
                timeout=_LIMIT,
                cwd=self._folder,
                env=os.environ | {"PYTHONPATH": str(self._folder), "AIOWHEEL_NO_EXTENSIONS": "1"},
            )
        except subprocess.TimeoutExpired:
            return True, "it hangs", time.perf_counter() - began
        failed = done.returncode != 0
        return failed, done.stdout + done.stderr, time.perf_counter() - began


def find(copy: Copy, planted: Planted) -> tuple[str, str, float]:
    """Return the finder of the bug, the seed if it was a simulation, and the seconds."""
    source = (ROOT / planted.file).read_text(encoding="utf-8")
    copy.write(planted.file, planted.applied(source))
    spent = 0.0
    try:
        if planted.world != "none":
            words = ("--world", planted.world, "--seeds", str(SEEDS))
            failed, text, spent = copy.run("-m", "aiowheel.testing.simulation", *words)
            seed = re.search(r"^seed (\d+) of \w+ broke a rule", text, re.MULTILINE)
            if failed and seed is not None:
                return f"world {planted.world.rpartition(':')[2]}", seed[1], spent
        options = ["-x", "-q", "-p", "no:cacheprovider", "--timeout", "120"]
        options += ["--hypothesis-profile", "thorough"]
        failed, text, seconds = copy.run("-m", "pytest", *options, *planted.suite.split())
        spent += seconds
        if failed and ("failed" in text or "error" in text or text == "it hangs"):
            return planted.suite, "", spent
        return "", "", spent
    finally:
        copy.write(planted.file, source)


def main(words: list[str]) -> int:
    """Run the bugs and print the table."""
    chosen = [
        each for each in all_planted() if not words or any(word in each.name for word in words)
    ]
    if not chosen:
        print(f"no planted bug has a name with {' or '.join(words)}", file=sys.stderr)
        return 2
    missed = simulated = 0
    print(f"{'bug':<34}{'found by':<44}{'seed':>5}{'seconds':>9}")
    with tempfile.TemporaryDirectory() as folder:
        copy = Copy(Path(folder))
        for planted in chosen:
            found, seed, seconds = find(copy, planted)
            missed += not found
            simulated += bool(seed)
            shown = found or "NOTHING"
            print(f"{planted.name:<34}{shown:<44}{seed:>5}{seconds:>9.1f}", flush=True)
    count = len(chosen) - missed
    print(
        f"{count} of {len(chosen)} found: {simulated} by a simulation within {SEEDS} seeds, "
        f"{count - simulated} by the suite"
    )
    return min(missed, 1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
