"""Random histories of durable timers in real processes on real databases, checked by the model.

Processes are killed, end and start at random. The clients of `histories` send them orders.

As a program: `python -m tests.durable.processes FIRST COUNT FOLDER [POSTGRES]`.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from asyncio.subprocess import PIPE, Process
from contextlib import suppress
from datetime import timedelta
from importlib import import_module
from pathlib import Path
from typing import Any

from aiowheel.durable import StoreError

from .histories import Begun, Play, flaws_of
from .victim import LEASE, store_at

ROOT = Path(__file__).parent.parent.parent
PATIENCE = 120.0  # seconds; long enough for a slow machine


class Actor:
    """A process that executes orders; see `actor`."""

    def __init__(self, process: Process) -> None:
        self.process = process
        self._answers: dict[int, asyncio.Future[Any]] = {}
        self._number = 0
        self._reading = asyncio.create_task(self._read())

    @classmethod
    async def start(cls, where: str, log: Path) -> Actor:
        """Start a process; return when it has its leases."""
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "tests.durable.actor", where, str(log)),
            stdin=PIPE,
            stdout=PIPE,
            cwd=ROOT,
            env=os.environ | {"PYTHONPATH": str(ROOT)},
        )
        assert process.stdout is not None
        line = await asyncio.wait_for(process.stdout.readline(), PATIENCE)
        assert line == b"ready\n", line
        return cls(process)

    async def _read(self) -> None:
        assert self.process.stdout is not None
        async for line in self.process.stdout:
            number, _, result = line.decode().partition(" ")
            self._answers.pop(int(number)).set_result(json.loads(result))
        for answer in self._answers.values():
            answer.set_exception(StoreError("the process has ended"))
        self._answers.clear()

    async def _order(self, method: str, name: str, due: timedelta, payload: bytes) -> Any:
        assert self.process.stdin is not None
        if self._reading.done():
            raise StoreError("the process has ended")
        self._number += 1
        due_us = int((time.time() + due.total_seconds()) * 1e6) + 1
        answer = self._answers[self._number] = asyncio.get_running_loop().create_future()
        order = [self._number, method, name, due_us, payload.decode()]
        with suppress(ConnectionError):
            self.process.stdin.write((json.dumps(order) + "\n").encode())
        result = await asyncio.wait_for(answer, PATIENCE)
        if isinstance(result, str):
            raise StoreError(result)
        return result

    async def schedule(
        self, name: str, _: str, *, due: timedelta, payload: bytes, **__: object
    ) -> bool:
        """As `DurableTimers.schedule`."""
        return bool(await self._order("schedule", name, due, payload))

    async def cancel(self, name: str) -> bool:
        """As `DurableTimers.cancel`."""
        return bool(await self._order("cancel", name, timedelta(0), b""))

    async def reschedule(self, name: str, due: timedelta) -> bool:
        """As `DurableTimers.reschedule`."""
        return bool(await self._order("reschedule", name, due, b""))

    async def end(self, *, kill: bool) -> None:
        """Kill the process, or close its input and wait until it ends."""
        assert self.process.stdin is not None
        if kill:
            self.process.kill()
        else:
            self.process.stdin.close()
        code = await asyncio.wait_for(self.process.wait(), PATIENCE)
        assert kill or code == 0
        await self._reading


class ProcessPlay(Play):
    """A run of a history with real processes, in real time."""

    seconds = 4.0
    pause = 1.0
    delays = (0.0, 0.2, 0.7, 2.0)
    moves = (0.2, 1.0)

    def __init__(self, seed: int, where: str, log: Path) -> None:
        super().__init__(seed)
        self.history.lease = LEASE
        self.where = where
        self.log = log
        self.kills = 0

    def now(self) -> float:
        """Return the machine's time, which is also that of the databases."""
        return time.time()

    def timers_of(self, process: Actor) -> Actor:
        """Return the process itself."""
        return process

    async def start(self) -> None:
        """Start a process."""
        self.processes.append(await Actor.start(self.where, self.log))

    async def disturb(self) -> None:
        """Kill, end and start processes."""
        while self.now() < self.until:
            await asyncio.sleep(self.chance.uniform(0, 1.5))
            kind = self.chance.choice(("kill", "kill", "start", "end"))
            if kind == "start" and len(self.processes) < 3:
                await self.start()
            elif kind != "start":
                if len(self.processes) == 1:
                    await self.start()
                process = self.processes.pop(self.chance.randrange(len(self.processes)))
                self.kills += kind == "kill"
                await process.end(kill=kind == "kill")

    async def settle(self) -> None:
        """Wait until no timer is pending, and read the log."""
        store = store_at(self.where)
        await store.open()
        with suppress(TimeoutError):
            async with asyncio.timeout(PATIENCE):
                while (await store.summary()).pending:  # noqa: ASYNC110 - there is no event
                    await asyncio.sleep(0.2)
        self.history.left = [repr(row) for row in await store.rows()] + await store.check()
        await store.aclose()
        for process in self.processes:
            await process.end(kill=False)
        for line in self.log.read_text().splitlines() if self.log.exists() else ():
            match line.split(" "):
                case ["begun", name, token, fire, at]:
                    begun = Begun(name, token.encode(), fire, int(at) / 1e6)
                    self.history.begun.append(begun)
                case ["ended", token]:
                    ended = self.history.ended
                    ended[token.encode()] = ended.get(token.encode(), 0) + 1
                case _:
                    pass


async def play(seed: int, folder: Path, postgres: str = "") -> tuple[list[str], int]:
    """Run one history; return its flaws and the number of killed processes."""
    where = str(folder / f"{seed}.db")
    if postgres:
        asyncpg: Any = import_module("asyncpg")  # it has no types
        connection = await asyncpg.connect(postgres)
        await connection.execute(f"CREATE DATABASE history_{seed}")
        await connection.close()
        where = f"{postgres.rpartition('/')[0]}/history_{seed}"
    played = ProcessPlay(seed, where, folder / f"{seed}.log")
    try:
        return list(flaws_of(await played.run())), played.kills
    finally:
        for process in played.processes:
            with suppress(ProcessLookupError):
                process.process.kill()


async def _main(first: int, count: int, folder: Path, postgres: str) -> None:
    kills = failures = 0
    for number in range(first, first + count):
        flaws, killed = await play(number, folder, postgres)
        kills += killed
        failures += bool(flaws)
        for flaw in flaws:
            print(f"seed {number}: {flaw}")  # noqa: T201 - a program that prints
    print(f"{count} histories, {kills} kills, {failures} with flaws")  # noqa: T201
    sys.exit(failures > 0)


if __name__ == "__main__":
    address = sys.argv[4] if len(sys.argv) > 4 else ""
    asyncio.run(_main(int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]), address))
