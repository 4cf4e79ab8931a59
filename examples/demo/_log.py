"""Idle detection on the user's access log."""

from __future__ import annotations

import contextlib
import io
import json
from pathlib import Path
from typing import Any

from aiowheel.cli.idle import idle
from aiowheel.readers import Format

TIMEOUT = 30.0  # seconds


def find_idle_hosts(log: str, out: Path, *, as_json: bool) -> Any:
    """Run `aiowheel idle` on *log*; print its report, or return it as a JSON object.

    Raises:
        BadInputError: The log cannot be read, or holds no request.
    """
    if not as_json:
        idle([log], timeout=TIMEOUT, out=str(out), format=Format.CLF)
        return None
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        idle([log], timeout=TIMEOUT, out=str(out), format=Format.CLF, json=True)
    return json.loads(printed.getvalue())
