"""Fixtures that the purgatory's tests share."""

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest

from aiowheel import DelayedOperation, ManualTimer, Purgatory, Timer


class Gate(DelayedOperation[str]):
    """An operation that completes once it is opened, and then runs a hook."""

    def __init__(self, timeout: float | None = 30.0) -> None:
        super().__init__(timeout)
        self.open = False
        self.ends = 0  # calls of `on_complete`
        self.then: Callable[[], object] = int

    def try_complete(self) -> bool:
        """Return whether the gate is open."""
        return self.open

    def on_complete(self) -> str:
        """Count the call, run the hook, return the outcome."""
        self.ends += 1
        self.then()
        return self.outcome.name


@pytest.fixture
def timer() -> ManualTimer:
    """A timer without a loop."""
    return ManualTimer()


@pytest.fixture
def purgatory(timer: ManualTimer) -> Purgatory:
    """A purgatory without a loop."""
    return Purgatory("test", timer=timer)


@pytest.fixture
async def running() -> AsyncIterator[Purgatory]:
    """A purgatory on a running timer; it is closed at the end and must be empty then."""
    async with Timer() as timer:
        async with Purgatory("running", timer=timer) as purgatory:
            yield purgatory
        assert (len(purgatory), purgatory.watched, len(timer)) == (0, 0, 0)


@pytest.fixture
async def error_reports() -> AsyncIterator[list[dict[str, object]]]:
    """The reports to the loop's exception handler during the test."""
    heard: list[dict[str, object]] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: heard.append(context))
    yield heard
    loop.set_exception_handler(None)
