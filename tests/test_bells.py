"""Sockets with which processes wake each other."""

from __future__ import annotations

import asyncio
import errno
import gc
import socket
import sys
from pathlib import Path
from typing import Any

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
    """A path that is too long makes `bind` fail; the socket must not leak."""
    monkeypatch.setattr(_bells, "_LONGEST_ADDRESS", 1_000)
    gc.collect()
    recwarn.clear()  # warnings that earlier tests left
    bells = Bells(tmp_path / ("x" * 200))
    with pytest.raises(OSError, match="too long"):
        bells.listen(asyncio.get_running_loop(), lambda _: None)
    bells.close()
    del bells
    gc.collect()
    assert [each for each in recwarn if each.category is ResourceWarning] == []


async def test_a_process_without_descriptors_rings_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a free descriptor a hint is lost; the data is stored, and a later hint is sent."""
    rung = asyncio.Event()
    listening, ringing = Bells(tmp_path / "bells"), Bells(tmp_path / "bells")
    listening.listen(asyncio.get_running_loop(), lambda _: rung.set())

    def refuse(*_: Any) -> socket.socket:
        raise OSError(errno.EMFILE, "Too many open files")

    with monkeypatch.context() as limited:
        limited.setattr(socket, "socket", refuse)
        ringing.ring()
    assert not rung.is_set()

    ringing.ring()

    await rung.wait()
    listening.close()
    ringing.close()
