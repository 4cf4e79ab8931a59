"""What the timer's tests share."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

Until = Callable[[Callable[[], object]], Awaitable[None]]


@pytest.fixture
def until() -> Until:
    """Let the loop turn until a condition holds; pytest's timeout is the bound."""

    async def turn(condition: Callable[[], object]) -> None:
        while not condition():  # noqa: ASYNC110 - what is waited for sets no event
            await asyncio.sleep(0)

    return turn
