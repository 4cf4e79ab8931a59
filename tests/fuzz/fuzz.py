"""Feed one target with bytes that reach more and more of its code, until the time is over.

A program, run once for each target by `make fuzz MINUTES=10`:

    python -m tests.fuzz.fuzz TARGET [--seconds 600] [--corpus FOLDER]

The engine is libFuzzer, through atheris. An input that fails is kept in `failures/TARGET`, from
which the suite reads it, and ends the run with status 1. Inputs that reached new code are kept in
the corpus; `--coverage` runs them again and prints which lines of the target's files they reach.
"""

from __future__ import annotations

import argparse
import gc
import importlib
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import FunctionType
from typing import Any

ROOT = Path(__file__).parent.parent.parent
LONGEST_INPUT = 1_000  # bytes


def run(name: str, seconds: int, corpus: Path) -> None:
    """Fuzz a target; the process ends inside this call."""
    atheris: Any = importlib.import_module("atheris")
    target = importlib.import_module("tests.fuzz.targets").TARGETS[name]
    instrument(atheris.instrument_func)
    corpus.mkdir(parents=True, exist_ok=True)
    for number, seed in enumerate(target.seeds):
        (corpus / f"seed-{number}").write_bytes(seed)
    kept = target.folder()
    kept.mkdir(parents=True, exist_ok=True)
    arguments = [
        sys.argv[0],
        f"-max_total_time={seconds}",
        f"-max_len={LONGEST_INPUT}",
        f"-artifact_prefix={kept}/",
        "-timeout=25",
        "-rss_limit_mb=2048",
        "-print_final_stats=1",
        str(corpus),
    ]
    atheris.Setup(arguments, target.run)
    atheris.Fuzz()


def instrument(each: Callable[[FunctionType], object]) -> None:
    """Make every branch of the package visible to the engine.

    This happens after the imports, not during them as atheris proposes: the package has its own
    importer, which runs before that of atheris.
    """
    known = {
        id(vars(module)) for name, module in sys.modules.items() if name.startswith("aiowheel")
    }
    for function in gc.get_objects():
        if isinstance(function, FunctionType) and id(function.__globals__) in known:
            each(function)


def replay(name: str, corpus: Path) -> None:
    """Run the inputs of a corpus again."""
    target = importlib.import_module("tests.fuzz.targets").TARGETS[name]
    for path in sorted(corpus.iterdir()):
        target.run(path.read_bytes())


def report(name: str, corpus: Path) -> int:
    """Print which lines of the target's files its corpus reaches."""
    from .targets import TARGETS

    coverage = [sys.executable, "-m", "coverage"]
    data = f"--data-file={corpus}.coverage"
    included = f"--include={','.join(TARGETS[name].modules)}"
    again = ["-m", "tests.fuzz.fuzz", name, "--replay", "--corpus", str(corpus)]
    subprocess.run([*coverage, "run", data, *again], check=True, cwd=ROOT)
    return subprocess.run([*coverage, "report", data, included], check=False, cwd=ROOT).returncode


def main() -> int:
    """Fuzz, replay or report; return 0 if atheris is not installed."""
    parser = argparse.ArgumentParser(description="Feed a target with bytes.")
    parser.add_argument("target")
    parser.add_argument("--seconds", type=int, default=600)
    parser.add_argument("--corpus", type=Path)
    parser.add_argument(
        "--replay", action="store_true", help="run the corpus once, without fuzzing"
    )
    parser.add_argument("--coverage", action="store_true", help="print what the corpus reaches")
    options = parser.parse_args()
    corpus = (options.corpus or ROOT / "build" / "fuzz" / options.target).absolute()
    if options.replay:
        replay(options.target, corpus)
        return 0
    if options.coverage:
        return report(options.target, corpus) if corpus.is_dir() else 0
    try:
        importlib.import_module("atheris")
    except ImportError:
        print(f"skipped: atheris cannot be imported on Python {sys.version.split()[0]}")
        return 0
    run(options.target, options.seconds, corpus)
    return 0


if __name__ == "__main__":
    sys.exit(main())
