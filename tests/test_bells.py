"""Sockets by which processes wake each other."""

from __future__ import annotations

import asyncio
import gc
import socket
import sys
from pathlib import Path

import pytest

from aiowheel import _bells
from aiowheel._bells import Bells

pytestmark = [
    pytest.mark.one_build,
    pytest.mark.skipif(
        not hasattr(socket, "AF_UNIX") or sys.platform == "win32",
        reason="the system has no Unix datagram sockets",
    ),
]


async def test_a_socket_that_cannot_be_bound_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, recwarn: pytest.WarningsRecorder
) -> None:
    """Its path is too long, say."""
    monkeypatch.setattr(_bells, "_LONGEST_ADDRESS", 1_000)
    gc.collect()
    recwarn.clear()  # of what other tests have left
    bells = Bells(tmp_path / ("x" * 200))
    with pytest.raises(OSError, match="too long"):
        bells.listen(asyncio.get_running_loop(), lambda _: None)
    bells.close()
    del bells
    gc.collect()
    assert [each for each in recwarn if each.category is ResourceWarning] == []
