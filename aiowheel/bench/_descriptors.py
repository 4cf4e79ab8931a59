"""As many open files as the system lets a process have. Rank 5."""

from __future__ import annotations

import sys

_OTHERS = 150  # event loop, pipes, listening sockets, what was open before


def connections_allowed() -> int:
    """Raise the soft limit of open files to the hard one; how many connections that leaves."""
    if sys.platform == "win32":  # sockets are not counted as files there
        return 1_000_000
    import resource

    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard == resource.RLIM_INFINITY:
        hard = 1_000_000
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard - _OTHERS
