"""The limit of file descriptors for the demo's clients."""

from __future__ import annotations

from aiowheel._open_files import allow_open_files

_PER_CLIENT = 2  # both ends of a connection are in this process
_OTHERS = 200  # descriptors for files, event loops and Spark


def clients_allowed(wanted: int) -> int:
    """Raise the soft limit of open files for *wanted* clients.

    Returns:
        *wanted*, or the smaller number of clients that the hard limit allows.
    """
    limit = allow_open_files(wanted * _PER_CLIENT + _OTHERS)
    return max(1, (limit - _OTHERS) // _PER_CLIENT)
