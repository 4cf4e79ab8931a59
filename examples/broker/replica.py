"""One broker process of several: a copy of the log, and waits on shared counters."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

from aiowheel.shared import SharedCounters
from examples.broker.client import Client
from examples.broker.frames import MAX_BYTES, Message

END, COMMITTED = "orders: end", "orders: committed"
_AROUND = 100  # bytes of an answer around its records, at most


def copied(name: str) -> str:
    """Return the counter of the records that a follower has on its disk."""
    return f"orders: copied by {name}"


class Replica:
    """A copy of the log; the first of *names* leads, and the others copy from it.

    Args:
        name: The name of this process.
        names: The names of all processes, the leader first.
        folder: The folder with a file of records and one with the port for each process.
        shared: Open counters, on the same store in all processes.
    """

    def __init__(self, name: str, names: list[str], folder: Path, shared: SharedCounters) -> None:
        self._name, self._leader, self._followers = name, names[0], names[1:]
        self._folder = folder
        self._shared = shared
        self._file = (folder / f"{name}.log").open("a+b")
        self._file.seek(0)
        whole = [line for line in self._file if line.endswith(b"\n")]
        self._file.truncate(sum(map(len, whole)))  # a killed process may leave half a line
        self.records: list[str] = [json.loads(line) for line in whole]

    async def answer(self, call: str, arguments: Message) -> Any:
        """Answer a client, or another process."""
        match call:
            case "produce" if self._name != self._leader:
                async with Client(self._port_of_leader()) as leader:
                    return await leader.call("produce", **arguments)
            case "produce":
                return await self.produce(**arguments)
            case "fetch":
                return await self.fetch(**arguments)
            case "copy":
                return self._read(arguments["offset"], len(self.records))
            case unknown:
                return {"error": f"there is no call {unknown!r}"}

    async def produce(self, records: list[str], max_wait: float) -> str:
        """Append, and answer when every follower has the records on its disk (acks=all)."""
        self._append(records)
        end = len(self.records)
        await self._shared.advance(END, end)
        is_committed = await self._shared.wait_until({COMMITTED: end}, max_wait)
        return "NONE" if is_committed else "REQUEST_TIMED_OUT"

    async def fetch(self, offset: int, max_wait: float) -> list[str]:
        """Read committed records; every process has them, so each of them may answer.

        An answer is limited to one message: to continue, fetch the record after the last one.
        """
        await self._shared.wait_until({COMMITTED: offset + 1}, max_wait)
        return self._read(offset, await self._shared.value(COMMITTED) or 0)

    async def work(self) -> None:
        """Copy from the leader; as the leader, commit the records that all followers have."""
        await (self._commit() if self._name == self._leader else self._follow())

    async def _commit(self) -> None:
        await self._shared.advance(END, len(self.records))
        while True:
            committed = await self._shared.value(COMMITTED) or 0
            await self._shared.wait_until(
                {copied(name): committed + 1 for name in self._followers}, None
            )
            values = [await self._shared.value(copied(name)) or 0 for name in self._followers]
            await self._shared.advance(COMMITTED, min(values))

    async def _follow(self) -> None:
        while True:
            await self._shared.advance(copied(self._name), len(self.records))
            await self._shared.wait_until({END: len(self.records) + 1}, None)
            try:
                async with Client(self._port_of_leader()) as leader:
                    self._append(await leader.call("copy", offset=len(self.records)))
            except OSError:  # the leader has died and may restart on another port
                await asyncio.sleep(0.1)

    def _read(self, start: int, end: int) -> list[str]:
        """Return the records from *start* to *end*, as many as fit into one answer."""
        found: list[str] = []
        size = _AROUND
        for place in range(start, min(end, len(self.records))):
            record = self.records[place]
            size += len(json.dumps(record)) + len(", ")
            if found and size > MAX_BYTES:
                break
            found.append(record)  # the first one fits: it came in a message, with more around it
        return found

    def _append(self, records: list[str]) -> None:
        self._file.write(b"".join(json.dumps(record).encode() + b"\n" for record in records))
        self._file.flush()
        self.records += records

    def _port_of_leader(self) -> int:
        return int((self._folder / f"{self._leader}.port").read_text())
