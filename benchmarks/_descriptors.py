"""The limit of open files."""

from __future__ import annotations

import sys

_OTHERS = 150  # event loop, pipes, listening sockets and files that were open before


def connections_allowed() -> int:
    """Raise the soft limit of open files to the hard limit; return the possible connections."""
    if sys.platform == "win32":  # Windows does not count sockets as files
        return 1_000_000
    import resource

    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard == resource.RLIM_INFINITY:
        hard = 1_000_000
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard - _OTHERS
