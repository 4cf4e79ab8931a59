"""Paths as Spark wants them. Rank 5; no Spark."""

from __future__ import annotations

import os
import re
from pathlib import Path

_GLOB = re.compile(r"[*?\[\]{}\\]")


def spark_path(path: str | os.PathLike[str]) -> str:
    """Write a path for Spark's readers, which take every path for a pattern.

    Unescaped, a folder named `run[1]` is another one or none: a job ends or finds the rows of a
    neighbour, a stream waits for ever. Absolute, for what stands before a colon would be a scheme.
    A name with such a sign and a colon is beyond Hadoop: it says so.
    """
    return _GLOB.sub(r"\\\g<0>", str(Path(path).absolute()))
