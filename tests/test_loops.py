"""The `both_loops` mark gives each test the loop that its id names."""

import asyncio

import pytest

pytestmark = pytest.mark.one_build


@pytest.mark.both_loops
async def test_the_id_names_the_running_loop(request: pytest.FixtureRequest) -> None:
    """The id `[uvloop]` means a loop of uvloop, and `[asyncio]` a loop of asyncio."""
    module = type(asyncio.get_running_loop()).__module__

    assert module.partition(".")[0] in request.node.name


async def test_without_the_mark_the_loop_is_asyncios(request: pytest.FixtureRequest) -> None:
    """The test runs once, and its id names no loop."""
    assert type(asyncio.get_running_loop()).__module__.startswith("asyncio.")
    assert "[" not in request.node.name
