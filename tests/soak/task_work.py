"""Tasks that sleep and that run under timeouts; some are cancelled."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from random import Random
from typing import Any

import aiowheel
from aiowheel import Timer

from .living import LONGEST, Token


class TaskWork:
    """Sleeps and timeouts of a `Timer`, and of the loop's shared timer."""

    def __init__(self, timer: Timer, chance: Random) -> None:
        self._timer = timer
        self._chance = chance
        self._tasks: set[asyncio.Task[None]] = set()
        self.began = 0
        self.finished = 0
        self.timed_out = 0
        self.cancelled = 0
        self.unsure = 0

    def steps(self) -> dict[str, int]:
        """Return the methods among which a turn chooses, with their weights."""
        return {"start": 3, "cancel": 1}

    def start(self) -> None:
        """Start a task."""
        kind = self._chance.choice((self._limited, self._moved_on, self._waited_for))
        work: Coroutine[Any, Any, None] = kind(self._delay(), self._delay())
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        self.began += 1

    def cancel(self) -> None:
        """Cancel a task, whatever it awaits."""
        for task in self._tasks:
            task.cancel()
            return

    def settle(self) -> None:
        """Do nothing: the tasks end by themselves."""

    def pending(self) -> int:
        """Return the number of tasks that have not ended."""
        return self.began - self.finished - self.timed_out - self.cancelled

    def flaws(self) -> list[str]:
        """Return descriptions of what is wrong."""
        return [f"{self.unsure} tasks ended as they must not"] if self.unsure else []

    def _delay(self) -> float:
        return self._chance.random() * LONGEST

    async def _limited(self, limit: float, length: float) -> None:
        token = Token()
        async with self._timer.timeout(limit):
            await self._timer.sleep(length, token)

    async def _moved_on(self, limit: float, length: float) -> None:
        token = Token()
        async with aiowheel.move_on_after(limit) as block:
            await aiowheel.sleep(length, token)
        if block.expired():
            raise TimeoutError

    async def _waited_for(self, limit: float, length: float) -> None:
        await self._timer.wait_for(aiowheel.sleep(length, Token()), limit)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if task.cancelled():
            self.cancelled += 1
        elif task.exception() is None:
            self.finished += 1
        elif isinstance(task.exception(), TimeoutError):
            self.timed_out += 1
        else:
            self.unsure += 1
