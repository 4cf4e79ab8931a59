"""The alarm of a sleeping task. Rank 1."""

from __future__ import annotations

from asyncio import Future
from typing import cast

from mypy_extensions import mypyc_attr

from aiowheel.errors import TimerClosedError
from aiowheel.timer._alarm import Alarm


@mypyc_attr(acyclic=True, free_list_len=1)
class Wakeup(Alarm):
    """Sets the future of a sleeper; its payload."""

    __slots__ = ()

    def fire(self) -> None:
        future = cast("Future[None]", self._payload)
        self._payload = None
        if not future.done():
            future.set_result(None)

    def drop(self) -> None:
        future = cast("Future[None]", self._payload)
        self._payload = None
        if not future.done() and not future.get_loop().is_closed():
            future.set_exception(TimerClosedError("the timer was closed while a task slept on it"))
