"""Whether one of several servers answers. Rank 5; no Spark."""

from __future__ import annotations

import socket
from typing import Final

_ANSWER_SECONDS: Final = 5.0


def silent_servers(servers: str) -> list[str]:
    """Return why each of the servers accepts no connection; nothing if one of them accepts one.

    Args:
        servers: HOST:PORT of each, separated by commas.
    """
    reasons: list[str] = []
    for server in servers.split(","):
        host, _, port = server.rpartition(":")
        try:
            socket.create_connection((host.strip("[]"), int(port)), _ANSWER_SECONDS).close()
        # A port beyond 65,535; a name that is no host's.
        except (OSError, OverflowError, UnicodeError) as error:
            reasons.append(f"{server}: {getattr(error, 'strerror', None) or error}")
        else:
            return []
    return reasons
