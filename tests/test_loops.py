"""The `both_loops` mark gives each test the loop that its id names."""

import asyncio

import pytest

pytestmark = pytest.mark.one_build


@pytest.mark.both_loops
async def test_the_id_names_the_running_loop(request: pytest.FixtureRequest) -> None:
    """`[uvloop]` really is uvloop, and `[asyncio]` is not."""
    module = type(asyncio.get_running_loop()).__module__

    assert module.partition(".")[0] in request.node.name


async def test_without_the_mark_the_loop_is_asyncios(request: pytest.FixtureRequest) -> None:
    """One loop, and no loop's name in the id."""
    assert type(asyncio.get_running_loop()).__module__.startswith("asyncio.")
    assert "[" not in request.node.name
