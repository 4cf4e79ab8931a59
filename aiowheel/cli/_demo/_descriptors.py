"""The limit of file descriptors for the demo's clients. Rank 5."""

from __future__ import annotations

import sys

_PER_CLIENT = 2  # both ends of a connection are in this process
_OTHERS = 200  # descriptors for files, event loops and Spark


def clients_allowed(wanted: int) -> int:
    """Raise the soft limit of open files for *wanted* clients.

    Returns:
        *wanted*, or the smaller number of clients that the hard limit allows.
    """
    if sys.platform == "win32":  # sockets do not count as open files on Windows
        return wanted
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = wanted * _PER_CLIENT + _OTHERS
    if soft == resource.RLIM_INFINITY or soft >= needed:
        return wanted
    limit = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
    return max(1, min(wanted, (limit - _OTHERS) // _PER_CLIENT))
