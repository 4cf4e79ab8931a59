"""The limit of open files."""

from aiowheel._open_files import allow_open_files

_MOST = 1_000_000
_OTHERS = 150  # event loop, pipes, listening sockets and files that were open before


def connections_allowed() -> int:
    """Raise the soft limit of open files to the hard limit; return the possible connections."""
    return allow_open_files(_MOST) - _OTHERS
