"""The limit of open files of this process. Rank 4."""

import sys


def allow_open_files(wanted: int) -> int:
    """Raise the soft limit of open files to *wanted*, as far as the hard limit allows.

    Returns:
        *wanted*, or the limit if it is lower.
    """
    if sys.platform == "win32":  # sockets do not count as open files on Windows
        return wanted
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return wanted
    limit = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
    return limit
