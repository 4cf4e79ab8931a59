"""Calls that arrive while one is under way share the next one. Rank 5.

Source: the group commit of databases. A call begins after it was asked for, so a read that is
shared sees what its callers have seen.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

A = TypeVar("A")
R = TypeVar("R")


class Grouped(Generic[A, R]):
    """Runs a function for many arguments at a time; one run is under way at most.

    Args:
        run: Takes arguments and returns a result, or an exception, for each; an exception that it
            raises is that of every caller.
        most: Arguments of one run.
    """

    def __init__(
        self, run: Callable[[Sequence[A]], Awaitable[Sequence[R | Exception]]], most: int
    ) -> None:
        self._run = run
        self._most = most
        self._waiting: list[tuple[A, asyncio.Future[R]]] = []
        self._task: asyncio.Task[None] | None = None

    def __call__(self, argument: A) -> asyncio.Future[R]:
        """Have the next run include *argument*; cancelling the future does not take it back."""
        loop = asyncio.get_running_loop()
        caller: asyncio.Future[R] = loop.create_future()
        self._waiting.append((argument, caller))
        if self._task is None:
            self._task = loop.create_task(self._run_all())
        return caller

    async def drain(self) -> None:
        """Wait until every call has its result."""
        while self._task is not None:
            await asyncio.wait([self._task])

    async def _run_all(self) -> None:
        try:
            while self._waiting:
                batch = self._waiting[: self._most]
                del self._waiting[: self._most]
                results: Sequence[R | Exception]
                try:
                    results = await self._run([argument for argument, _ in batch])
                except Exception as error:
                    results = [error] * len(batch)
                for (_, caller), result in zip(batch, results, strict=True):
                    _settle(caller, result)
        finally:
            self._task = None


def _settle(caller: asyncio.Future[R], result: R | Exception) -> None:
    if caller.done():  # its task was cancelled
        return
    if isinstance(result, Exception):
        caller.set_exception(result)
        caller.exception()  # retrieved: a caller that went away must not log it
    else:
        caller.set_result(result)
