"""Enough file descriptors for the crowd. Rank 5."""

from __future__ import annotations

import sys

_PER_CLIENT = 2  # both ends of a connection are in this process
_OTHERS = 200  # files, event loops, Spark, what was open before


def clients_allowed(wanted: int) -> int:
    """Raise the soft limit of open files as far as needed and allowed.

    Returns:
        *wanted*, or fewer when the hard limit holds no more.
    """
    if sys.platform == "win32":  # sockets are not counted as files there
        return wanted
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = wanted * _PER_CLIENT + _OTHERS
    if soft == resource.RLIM_INFINITY or soft >= needed:
        return wanted
    limit = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
    return max(1, min(wanted, (limit - _OTHERS) // _PER_CLIENT))
