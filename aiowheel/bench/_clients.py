"""The process that the clients of a measured server live in. Rank 5."""

import asyncio
import json
import sys
from asyncio.subprocess import PIPE
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from _typeshed import DataclassInstance


class Clients:
    """Talks to the process line by line."""

    def __init__(self, stdin: asyncio.StreamWriter, stdout: asyncio.StreamReader) -> None:
        self._stdin = stdin
        self._stdout = stdout

    async def told(self) -> str:
        """The next line that the clients say."""
        line = await self._stdout.readline()
        if not line:
            raise RuntimeError("the process of the clients ended too soon")
        return line.decode()

    def go_on(self) -> None:
        """Let them begin their next stage."""
        self._stdin.write(b"\n")


@asynccontextmanager
async def run_clients(module: str, task: "DataclassInstance") -> AsyncGenerator[Clients, None]:
    """Run `aiowheel.bench.workloads.module` with *task*; it ends with the block."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        f"aiowheel.bench.workloads.{module}",
        json.dumps(asdict(task)),
        stdin=PIPE,
        stdout=PIPE,
    )
    stdin, stdout = process.stdin, process.stdout
    assert stdin is not None
    assert stdout is not None
    try:
        yield Clients(stdin, stdout)
    finally:
        stdin.close()  # what they read to its end before they leave
        await process.wait()
