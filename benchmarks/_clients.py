"""The client process of a measured server."""

import asyncio
import json
from asyncio.subprocess import PIPE
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING

from benchmarks._child import child_command, child_environment

if TYPE_CHECKING:
    from _typeshed import DataclassInstance


class Clients:
    """A line-based connection to the client process."""

    def __init__(self, stdin: asyncio.StreamWriter, stdout: asyncio.StreamReader) -> None:
        self._stdin = stdin
        self._stdout = stdout

    async def read_line(self) -> str:
        """Return the next line that the client process prints."""
        line = await self._stdout.readline()
        if not line:
            raise RuntimeError("the process of the clients ended too soon")
        return line.decode()

    def start_stage(self) -> None:
        """Send an empty line, which starts the next stage of the clients."""
        self._stdin.write(b"\n")


@asynccontextmanager
async def run_clients(module: str, task: "DataclassInstance") -> AsyncGenerator[Clients, None]:
    """Run `benchmarks.workloads.module` with *task*; the process ends with the block."""
    process = await asyncio.create_subprocess_exec(
        *child_command(f"workloads.{module}", json.dumps(asdict(task))),
        stdin=PIPE,
        stdout=PIPE,
        env=child_environment(),
    )
    stdin, stdout = process.stdin, process.stdout
    assert stdin is not None
    assert stdout is not None
    try:
        yield Clients(stdin, stdout)
    finally:
        stdin.close()  # the client process exits at the end of its input
        await process.wait()
