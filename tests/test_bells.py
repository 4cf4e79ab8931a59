"""Sockets by which processes of one machine wake each other."""

import asyncio
import gc
from pathlib import Path

import pytest

from aiowheel._bells import Bells

pytestmark = [pytest.mark.one_build, pytest.mark.posix]


async def test_a_socket_that_cannot_be_bound_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where the path of the folder is too long for an address."""
    bells = Bells(tmp_path / "bells")
    monkeypatch.setattr(bells, "_address", lambda name: str(tmp_path / ("x" * 200) / name))

    with pytest.raises(OSError, match="too long"):
        bells.listen(asyncio.get_running_loop(), lambda: None)
    bells.close()

    gc.collect()  # a socket that is left open warns
