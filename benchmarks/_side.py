"""One contender in its own process.

The separate process keeps the million objects of one side out of the other side's garbage
collections, and lets the pure build run beside the compiled one.
"""

import json
import os
import signal
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self, cast

from benchmarks._child import child_command, child_environment

Figures = dict[str, float]


@dataclass(frozen=True, slots=True)
class Side:
    """One contender to measure.

    Attributes:
        name: The name of its column.
        workload: `module:function` below `benchmarks.workloads`.
        arguments: The arguments of the workload; JSON values.
        loop: A name of `_loops`, or "module:factory".
        pure: Whether to run the sources even if compiled modules exist.
    """

    name: str
    workload: str
    arguments: Mapping[str, object] = field(default_factory=dict[str, object])
    loop: str = "asyncio"
    pure: bool = False


class Worker:
    """The process of one side; use it in a `with` block and call `ask` for each round."""

    def __init__(self, side: Side) -> None:
        self.side = side
        task = {
            "workload": side.workload,
            "arguments": dict(side.arguments),
            "loop": side.loop,
        }
        environment = child_environment()
        if side.pure:
            environment["AIOWHEEL_NO_EXTENSIONS"] = "1"
            environment.pop("AIOWHEEL_REQUIRE_EXTENSIONS", None)
        self._process = subprocess.Popen(  # noqa: S603 - our own module
            child_command("worker", json.dumps(task)),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
            text=True,
            process_group=0,  # so that Ctrl-C reaches only this process, which then ends the other
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc_val: BaseException | None,
        exc_tb: TracebackType | None,
    ) -> None:
        # Killed: freeing a million timers one by one would take seconds. The whole process group:
        # client processes would otherwise report the lost server.
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.communicate()

    def ask(self) -> Figures:
        """Run one round and return its figures."""
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        stdin.write("\n")
        stdin.flush()
        line = stdout.readline()
        if not line:
            raise RuntimeError(f"the process of {self.side} ended with {self._process.wait()}")
        return cast(Figures, json.loads(line))
