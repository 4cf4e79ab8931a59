"""Free loopback ports, for servers that get their port as an argument."""

from __future__ import annotations

import socket
from contextlib import ExitStack


def free_port() -> int:
    """Return a port that is free now."""
    return free_ports(1)[0]


def free_ports(count: int) -> list[int]:
    """Return different ports that are free now."""
    with ExitStack() as stack:
        probes = [stack.enter_context(socket.socket()) for _ in range(count)]
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [probe.getsockname()[1] for probe in probes]
