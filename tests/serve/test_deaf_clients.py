"""The memory held by hundreds of subscribers that do not read."""

import base64
import contextlib
import os
import socket
import sys
from pathlib import Path

import httpx
import psutil
import pytest

from .conftest import Process, process, waiters_reach

pytestmark = [pytest.mark.realtime, pytest.mark.one_build, pytest.mark.slow]

CLIENTS = 300
PING = b"\x89\xfd\0\0\0\0" + 125 * b"p"  # a frame of the largest size
MOST_PINGS = 64 * 2**20  # bytes
MESSAGE = 60_000  # bytes, close to the limit
MESSAGES = 40  # more than the topic keeps
MOST_OF_PROCESS = 256 * 1024  # bytes, a client
MOST_OF_KERNEL = 192 * 1024  # bytes, a client
EVENTS = b"Accept: text/event-stream\r\n"


def websocket() -> bytes:
    """Return the headers of a websocket handshake."""
    key = base64.b64encode(os.urandom(16))
    return (
        b"Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
        b"Sec-WebSocket-Key: %b\r\n" % key
    )


def deaf(server: Process, headers: bytes) -> socket.socket:
    """Open a subscriber with the smallest receive buffer, which never reads."""
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
    client.connect(("127.0.0.1", server.port))
    client.sendall(b"GET /topics/a HTTP/1.1\r\nHost: localhost\r\n%b\r\n" % headers)
    return client


def unsent(port: int) -> int:
    """Return the bytes that the kernel holds for connections of this local port."""
    total = 0
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        _, local, _, state, queues, *_ = line.split()
        if int(local.rpartition(":")[2], 16) == port and state == "01":  # established
            total += int(queues.partition(":")[0], 16)
    return total


@pytest.mark.skipif(not Path("/proc/net/tcp").exists(), reason="needs Linux's /proc")
async def test_clients_that_do_not_read_hold_bounded_memory() -> None:
    """Each costs one page in the process and a bounded buffer in the kernel."""
    patience = ["--receive-timeout", "300", "--heartbeat", "300"]
    with process(*patience) as server, contextlib.ExitStack() as stack:
        url = f"{server.url}/topics/a"
        memory = psutil.Process(server.process.pid)
        async with httpx.AsyncClient(timeout=60) as client:
            await client.post(url, content="x" * MESSAGE)
            for number in range(CLIENTS):
                headers = EVENTS if number % 2 else websocket()
                stack.enter_context(deaf(server, headers))
            await waiters_reach(server, CLIENTS)
            before = memory.memory_info().rss
            for _ in range(MESSAGES):
                answer = await client.post(url, content="x" * MESSAGE)
                assert answer.status_code == 201
            kept = (await client.get(f"{url}?timeout=0")).json()["messages"]
            grown = memory.memory_info().rss - before
            in_kernel = unsent(server.port)
            await waiters_reach(server, CLIENTS)

    sys.stdout.write(
        f"\n{CLIENTS} clients that read nothing of {MESSAGES} messages of {MESSAGE:,} bytes: "
        f"{grown / CLIENTS / 1024:.0f} KiB more of the process a client, "
        f"{in_kernel / CLIENTS / 1024:.0f} KiB of the kernel\n"
    )
    assert 10 < len(kept) < 20
    assert grown < CLIENTS * MOST_OF_PROCESS
    assert 0 < in_kernel < CLIENTS * MOST_OF_KERNEL


def test_a_client_that_pings_and_does_not_read_is_disconnected() -> None:
    """It would fill the memory with the answers to its pings."""
    patience = ["--receive-timeout", "300", "--heartbeat", "300"]
    with process(*patience) as server, deaf(server, websocket()) as client:
        assert client.recv(4_096).startswith(b"HTTP/1.1 101")
        pings = 500 * PING
        with pytest.raises(ConnectionError):
            for _ in range(MOST_PINGS // len(pings)):
                client.sendall(pings)
