"""Simultaneous disconnects on a real server."""

import pytest

from .disconnects import disconnect

pytestmark = [pytest.mark.one_build, pytest.mark.realtime, pytest.mark.both_loops]


async def test_simultaneous_disconnects_leave_nothing() -> None:
    """Each disconnect cancels its operation, and nothing is logged.

    The test has 300 clients; `python tests/integrations/disconnects.py 5000` has more.
    """
    result = await disconnect(300)

    assert result.waited == (300, 600)
    assert result.left == (0, 0)
    assert result.logged == []
