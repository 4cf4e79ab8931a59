"""One keep-alive HTTP/1.1 connection of a client, on asyncio streams.

Source: RFC 9112, limited to the responses of the demo's server: a status line, headers, and a body
of `Content-Length` bytes.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import NamedTuple, Self

from aiowheel.errors import AiowheelError


class Response(NamedTuple):
    """The status and the body of a response."""

    status: int
    body: bytes


class HttpConnection:
    """A connection that sends one request at a time and reads its response.

    Attributes:
        address: "host:port" of the client's end, by which the server identifies the connection.
    """

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        host, port = writer.get_extra_info("sockname")[:2]
        self.address = f"{host}:{port}"

    @classmethod
    async def open(cls, port: int) -> Self:
        """Connect to *port* on the loopback interface."""
        return cls(*await asyncio.open_connection("127.0.0.1", port))

    async def request(self, method: str, target: str, body: bytes = b"") -> Response:
        """Send a request, and wait without a timeout for its response.

        Raises:
            AiowheelError: The server closed the connection without a response.
        """
        head = (
            f"{method} {target} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        self._writer.write(head.encode() + body)
        try:
            answer = await self._reader.readuntil(b"\r\n\r\n")
            status_line, *headers = answer.decode("latin-1").rstrip().split("\r\n")
            return Response(
                status=int(status_line.split(" ", 2)[1]),
                body=await self._reader.readexactly(_content_length(headers)),
            )
        except (asyncio.IncompleteReadError, ConnectionError) as error:
            raise AiowheelError(f"{self.address}: the server closed the connection") from error

    async def aclose(self) -> None:
        """Close the connection. Idempotent."""
        self._writer.close()
        with contextlib.suppress(ConnectionError):  # the connection was lost before
            await self._writer.wait_closed()


def _content_length(headers: list[str]) -> int:
    for header in headers:
        name, _, value = header.partition(":")
        if name.lower() == "content-length":
            return int(value)
    return 0
