"""Fixtures for real programs on a loop whose timers are on the wheel."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

import aiowheel
from aiowheel.loop import LoopHandle, WheelEventLoopMixin

Main = Callable[[], Coroutine[Any, Any, None]]


@pytest.fixture(params=[False, True], ids=["selector", "uvloop"])
def armed_by(request: pytest.FixtureRequest) -> Callable[[Main], set[str]]:
    """Return a function that runs a program under `aiowheel.run` and returns what it armed.

    The result is the set of the callbacks' dotted names. The test fails if the program arms a timer
    of the base loop, or if a timer is pending after the program has ended.
    """
    if request.param:
        pytest.importorskip("uvloop")

    def armed(program: Main) -> set[str]:
        names: set[str] = set()

        async def watched() -> None:
            loop = asyncio.get_running_loop()
            assert isinstance(loop, WheelEventLoopMixin)
            handles = _record_timers(loop, names)
            await program()
            assert all(type(handle) is LoopHandle for handle in handles)
            assert [handle for handle in handles if not _is_over(handle)] == []
            assert loop._wheel_driver.counts.pending == 0
            assert loop._wheel_driver.counts.scheduled >= len(handles) > 0

        aiowheel.run(watched(), uvloop=request.param)
        return names

    return armed


def _record_timers(loop: asyncio.AbstractEventLoop, names: set[str]) -> list[object]:
    """Let the loop record the callback's name and the handle of every timer."""
    handles: list[object] = []

    def recording(method: Callable[..., object]) -> Callable[..., object]:
        def record(when: float, callback: Any, *args: object, **context: Any) -> object:
            names.add(f"{callback.__module__}.{callback.__qualname__}")
            handle = method(when, callback, *args, **context)
            handles.append(handle)
            return handle

        return record

    vars(loop).update(call_later=recording(loop.call_later), call_at=recording(loop.call_at))
    return handles


def _is_over(handle: object) -> bool:
    return isinstance(handle, LoopHandle) and (handle.cancelled() or handle.fired())
