"""Clients that leave at once, on a real server."""

import pytest

from .disconnects import disconnect

pytestmark = [pytest.mark.one_build, pytest.mark.realtime, pytest.mark.both_loops]


async def test_clients_that_leave_at_once_leave_nothing_behind() -> None:
    """Every operation is cancelled by its own disconnect, and nobody logs an error.

    300 clients; `python tests/integrations/disconnects.py 5000` is the same with more.
    """
    result = await disconnect(300)

    assert result.waited == (300, 600)
    assert result.left == (0, 0)
    assert result.logged == []
