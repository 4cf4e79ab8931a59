"""Group commit: calls that arrive while a run is in progress share the next run. Rank 5.

Source: the group commit of databases. A run starts after each of its calls was made, so a shared
read sees every write that its callers have seen.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

from aiowheel._background import settle
from aiowheel.errors import StoreUnavailableError

A = TypeVar("A")
R = TypeVar("R")


class Grouped(Generic[A, R]):
    """Collects calls and runs a function on batches of their arguments, one run at a time.

    Args:
        run: Takes a batch of arguments, and returns one result or exception per argument. If it
            raises, every caller of the batch gets that exception.
        most: Maximum number of arguments per run.
    """

    def __init__(
        self, run: Callable[[Sequence[A]], Awaitable[Sequence[R | Exception]]], most: int
    ) -> None:
        self._run = run
        self._most = most
        self._waiting: list[tuple[A, asyncio.Future[R]]] = []
        self._task: asyncio.Task[None] | None = None

    def __call__(self, argument: A) -> asyncio.Future[R]:
        """Add *argument* to a later run, and return the future of its result.

        Cancelling the future does not withdraw the argument.
        """
        loop = asyncio.get_running_loop()
        caller: asyncio.Future[R] = loop.create_future()
        self._waiting.append((argument, caller))
        if self._task is None:
            self._start()
        return caller

    async def drain(self) -> None:
        """Wait until every call has its result."""
        while self._task is not None:
            await asyncio.wait([self._task])

    def _start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run_all())
        self._task.add_done_callback(self._on_done)

    def _on_done(self, _: asyncio.Task[None]) -> None:
        self._task = None
        # `asyncio.run` may have cancelled the task, with all others, before the callers' end.
        if self._waiting:
            self._start()

    async def _run_all(self) -> None:
        while self._waiting:
            batch = self._waiting[: self._most]
            del self._waiting[: self._most]
            results: Sequence[R | Exception]
            try:
                results = await self._run([argument for argument, _ in batch])
            except Exception as error:
                results = [error] * len(batch)
            except asyncio.CancelledError:
                text = "cancelled during the call, which may have been carried out"
                for _, caller in batch:
                    settle(caller, StoreUnavailableError(text))
                raise
            for (_, caller), result in zip(batch, results, strict=True):
                settle(caller, result)
