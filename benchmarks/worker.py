"""The child process of one side: it runs one round for every line on stdin.

Run as `python -m benchmarks.worker TASK` with TASK as JSON; see `Side`.
"""

import json
import sys
from collections.abc import AsyncGenerator, Callable
from importlib import import_module
from typing import Any, cast

from benchmarks._loops import run_on
from benchmarks._side import Figures

Workload = Callable[..., AsyncGenerator[Figures, None]]


def workload_named(name: str) -> Workload:
    """Return the workload `module:function`."""
    module, _, function = name.partition(":")
    return cast(Workload, getattr(import_module(f"benchmarks.workloads.{module}"), function))


async def serve(task: dict[str, Any]) -> None:
    """Answer every line on stdin with the figures of another round.

    Reading blocks the loop between two rounds on purpose, because the other sides are measured
    then.
    """
    rounds = workload_named(task["workload"])(**task["arguments"])
    while sys.stdin.readline():
        print(json.dumps(await anext(rounds)), flush=True)
    await rounds.aclose()


if __name__ == "__main__":
    assignment: Any = json.loads(sys.argv[1])
    run_on(assignment["loop"], serve(assignment))
