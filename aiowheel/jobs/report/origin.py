"""The origin of a result: the trace, its recorder, and the reading build. Rank 5; no Spark."""

from __future__ import annotations

import os

from aiowheel._build import build_info
from aiowheel.jobs.spark.uris import local_path
from aiowheel.trace import trace_files
from aiowheel.trace._stored import stored_recorder

_MOST = 3  # recorders listed by name


def origin_of(trace: str | os.PathLike[str]) -> dict[str, str]:
    """Return the lines of a header: the trace, its recorders, and the reading build.

    Args:
        trace: A folder, which must hold a trace, or the URI of a folder.

    Cost: reads the footer of every file of a folder.
    """
    folder = local_path(str(trace))
    if folder is None:
        place, recorders = str(trace), "not known: the trace is not on this machine"
    else:
        place, recorders = str(folder.resolve()), _recorders(folder)
    return {"trace": place, "recorded by": recorders, "read by": str(build_info())}


def _recorders(folder: os.PathLike[str]) -> str:
    found = {stored_recorder(file) for file in trace_files(folder)}
    known = sorted(each for each in found if each is not None)
    more = len(known) - _MOST
    known[_MOST:] = [f"{more} more"] if more > 0 else []
    if None in found:
        known.append("some files name no recorder")
    return "; ".join(known)
