"""The background tasks of objects that wait for a store."""

from __future__ import annotations

import asyncio

import pytest

from aiowheel._background import LastingTask

pytestmark = [pytest.mark.both_loops, pytest.mark.one_build]


async def test_a_task_that_fails_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    """Its exception must not vanish: without the task, the callers of its object may wait."""

    async def fail() -> None:
        raise ZeroDivisionError

    task = LastingTask(fail, "aiowheel example")
    for _ in range(3):
        await asyncio.sleep(0)
    await task.end()

    assert caplog.messages == [
        "aiowheel.background_task_failed task='aiowheel example' error='ZeroDivisionError()'"
    ]
