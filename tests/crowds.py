"""Clients of a server whose workers are killed."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import psutil

NO_TAG = '"none"'


class Connection:
    """An HTTP/1.1 client with one connection, which a killed server may end at any time."""

    def __init__(self, port: int, gate: asyncio.Semaphore) -> None:
        self._port = port
        self._gate = gate
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def ask(
        self, method: str, path: str, tag: str = NO_TAG, body: str = ""
    ) -> tuple[int, str, str]:
        """Return status, tag and body of the answer.

        Raises:
            OSError, EOFError: There is no answer; the next call connects again.
        """
        try:
            if self._streams is None:
                async with self._gate:
                    self._streams = await asyncio.open_connection("127.0.0.1", self._port)
            reader, writer = self._streams
            head = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n"
            writer.write(f"{head}If-None-Match: {tag}\r\n\r\n{body}".encode())
            lines = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
            fields = dict(line.lower().split(": ", 1) for line in lines[1:] if line)
            text = await reader.readexactly(int(fields.get("content-length", "0")))
            if fields.get("connection") == "close":
                self.close()
        except BaseException:
            self.close()
            raise
        return int(lines[0].split()[1]), fields.get("etag", ""), text.decode()

    def close(self) -> None:
        """Close the connection."""
        if self._streams is not None:
            self._streams[1].close()
            self._streams = None


def busiest_of(server: psutil.Process) -> psutil.Process:
    """Return the worker with the most connections."""
    crowds: dict[psutil.Process, int] = {}
    for child in server.children():
        with suppress(psutil.NoSuchProcess):
            crowds[child] = len(child.net_connections())
    return max(crowds, key=lambda each: crowds[each])
