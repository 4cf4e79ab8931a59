"""The waiting tasks, as lines for the text of a deadlock error. Rank 4."""

from __future__ import annotations

import linecache
import os
import sys
from asyncio import Task
from collections.abc import Iterable, Iterator
from types import FrameType

#: Frames of these packages belong to the tool that a task waits in, not to the code that uses it.
_TOOLS = ("asyncio", "aiowheel", "anyio")


def waiting_lines(tasks: Iterable[Task[object]]) -> list[str]:
    """Return a line for each task, by name: its name and the line of code where it waits."""
    ordered = sorted(tasks, key=lambda task: (len(task.get_name()), task.get_name()))
    tools = [sys.modules[name].__path__ for name in _TOOLS if name in sys.modules]
    folders = tuple(folder + os.sep for path in tools for folder in path)
    return [f"{task.get_name()} {_place(task, folders)}" for task in ordered]


def _place(task: Task[object], tools: tuple[str, ...]) -> str:
    frames = list(frames_of(task.get_coro()))
    if not frames:
        return f"in {task.get_coro()!r}"
    own = [each for each in frames if not each.f_code.co_filename.startswith(tools)]
    frame = (own or frames)[-1]
    code = frame.f_code
    source = linecache.getline(code.co_filename, frame.f_lineno).strip()
    return f"in {code.co_qualname}, {code.co_filename}:{frame.f_lineno}: {source}"


def frames_of(coro: object) -> Iterator[FrameType]:
    """Yield the frames of a suspended coroutine from outside in; compiled code has no frame."""
    while coro is not None:
        for prefix, inner in (("cr", "cr_await"), ("gi", "gi_yieldfrom"), ("ag", "ag_await")):
            frame = getattr(coro, f"{prefix}_frame", None)
            if frame is not None:
                yield frame
                coro = getattr(coro, inner)
                break
        else:
            return
