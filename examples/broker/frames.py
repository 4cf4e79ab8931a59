"""The format of a message: four bytes of length, then JSON."""

from __future__ import annotations

import asyncio
import json
from typing import Any

Message = dict[str, Any]

MAX_BYTES = 1_000_000


async def read_message(reader: asyncio.StreamReader) -> Message | None:
    """Return the next message; None if the other side has closed the connection."""
    try:
        size = int.from_bytes(await reader.readexactly(4))
        if size > MAX_BYTES:
            raise ValueError(f"a message has at most {MAX_BYTES} bytes, got {size}")
        message: Message = json.loads(await reader.readexactly(size))
    except (asyncio.IncompleteReadError, ConnectionError):
        return None
    return message


def write_message(writer: asyncio.StreamWriter, message: Message) -> None:
    """Write a message to the transport.

    Raises:
        ValueError: The message has more than MAX_BYTES; no data is sent.
    """
    body = json.dumps(message).encode()
    if len(body) > MAX_BYTES:
        raise ValueError(f"a message has at most {MAX_BYTES} bytes, got {len(body)}")
    writer.write(len(body).to_bytes(4) + body)
