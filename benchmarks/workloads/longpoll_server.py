"""A minimal HTTP server of long polls, the same for every way to wait.

`GET /?7=3&9=0` waits for versions of topics 7 and 9 later than 3 and 0, and answers in the same
form; `POST /?7` publishes a version. Source: RFC 9112, restricted to what the benchmark's clients
send.
"""

import asyncio
from collections.abc import Mapping
from typing import cast

from benchmarks.baselines.long_polls import LongPolls

POLL_SECONDS = 60.0  # longer than a round, so that no poll times out
END_OF_HEAD = b"\r\n\r\n"
_NO_CONTENT = b"HTTP/1.1 204 No Content\r\n\r\n"


def parse(query: str) -> dict[int, int]:
    """Return the versions by topic."""
    return {int(topic): int(version) for topic, _, version in _pairs(query)}


def _pairs(query: str) -> list[tuple[str, str, str]]:
    return [pair.partition("=") for pair in query.split("&")]


def unparse(versions: Mapping[int, int]) -> str:
    """Return the query for *versions*, the inverse of `parse`."""
    return "&".join(f"{topic}={version}" for topic, version in versions.items())


class HttpConnection(asyncio.Protocol):
    """One client; a task answers every request, as in common frameworks."""

    def __init__(self, polls: LongPolls) -> None:
        self._polls = polls
        self._rest = b""
        self._task: asyncio.Task[None] | None = None  # of the last request
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Store the transport."""
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        """Answer the complete requests."""
        *requests, self._rest = (self._rest + data).split(END_OF_HEAD)
        for request in requests:
            method, target, _ = request.split(b" ", 2)
            query = target[2:].decode()
            answer = self._poll(parse(query)) if method == b"GET" else self._publish(int(query))
            self._task = asyncio.get_running_loop().create_task(answer)

    async def _poll(self, seen: Mapping[int, int]) -> None:
        self._polls.waiting += 1
        try:
            await self._polls.wait(seen, POLL_SECONDS)
        finally:
            self._polls.waiting -= 1
        changed = self._polls.changed(seen)
        if changed:
            body = unparse(changed)
            head = f"HTTP/1.1 200 OK\r\nContent-Length: {len(body)}\r\n\r\n"
            self._transport.write((head + body).encode())
        else:
            self._transport.write(_NO_CONTENT)

    async def _publish(self, topic: int) -> None:
        await self._polls.publish(topic)
        self._transport.write(_NO_CONTENT)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio's
        """Cancel the request of the disconnected client."""
        if self._task is not None:
            self._task.cancel()
