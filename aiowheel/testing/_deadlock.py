"""The waiting tasks, as lines for the text of a deadlock error. Rank 4."""

from __future__ import annotations

import asyncio
import linecache
import os
from asyncio import Task
from collections.abc import Iterable, Iterator
from types import FrameType

import aiowheel

#: Frames of these folders belong to the tool that a task waits in, not to the code that uses it.
_MACHINERY = tuple(folder + os.sep for folder in (*asyncio.__path__, *aiowheel.__path__))


def waiting_lines(tasks: Iterable[Task[object]]) -> list[str]:
    """Return a line for each task, by name: its name and the line of code where it waits."""
    ordered = sorted(tasks, key=lambda task: (len(task.get_name()), task.get_name()))
    return [f"{task.get_name()} {_place(task)}" for task in ordered]


def _place(task: Task[object]) -> str:
    frames = list(frames_of(task.get_coro()))
    if not frames:
        return f"in {task.get_coro()!r}"
    own = [each for each in frames if not each.f_code.co_filename.startswith(_MACHINERY)]
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
