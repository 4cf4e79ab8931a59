"""The command and the variables of a process that runs a module of this package."""

import os
import sys
from pathlib import Path

_ROOT = str(Path(__file__).parents[1])


def child_command(module: str, task: str) -> list[str]:
    """Return the command of `benchmarks.module` with *task* as its only argument."""
    # -P: a folder `benchmarks` in the current folder is another project's.
    return [sys.executable, "-P", "-m", f"benchmarks.{module}", task]


def child_environment() -> dict[str, str]:
    """Return the variables of this process, with imports from this checkout before all others."""
    others = os.environ.get("PYTHONPATH")
    return os.environ | {"PYTHONPATH": os.pathsep.join([_ROOT, others] if others else [_ROOT])}
