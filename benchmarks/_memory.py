"""The memory of the process."""

import gc
import os
import resource
import sys
from pathlib import Path

_PAGE = os.sysconf("SC_PAGE_SIZE")
_STATM = Path("/proc/self/statm")
_MAXRSS_UNIT = 1 if sys.platform == "darwin" else 1024


def resident_bytes() -> int:
    """Return resident memory after a full collection, or its peak if the system reports no more."""
    gc.collect()
    if _STATM.exists():
        return int(_STATM.read_text(encoding="ascii").split()[1]) * _PAGE
    return peak_bytes()


def peak_bytes() -> int:
    """Return the peak of resident memory."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * _MAXRSS_UNIT
