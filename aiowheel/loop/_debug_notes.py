"""The debug information about a handle, and asyncio's texts for it. Rank 3.

The texts (`repr`, log messages) come from asyncio's own code, so they match the running Python.
"""

from __future__ import annotations

import asyncio
from asyncio.format_helpers import _format_callback_source, extract_stack
from collections.abc import Callable
from inspect import signature
from os.path import dirname
from sys import _getframe
from traceback import StackSummary
from types import FrameType
from typing import Any

_HERE = dirname(__file__)  # noqa: PTH120 - pathlib takes 2 ms to import
_SHOWS_ARGUMENTS = (
    "debug" in signature(_format_callback_source).parameters
)  # from 3.12.8 and 3.13.1


def callback_text(callback: Callable[..., object], args: tuple[object, ...], *, debug: bool) -> str:
    """Return a callback as in asyncio's messages: `shout('hello') at program.py:5`."""
    options: dict[str, Any] = {"debug": debug} if _SHOWS_ARGUMENTS else {}
    return _format_callback_source(callback, args, **options)


class NotedHandle(asyncio.TimerHandle):
    """asyncio's handle, which updates the notes of a `LoopHandle` when it runs."""

    __slots__ = ("notes",)

    notes: DebugNotes  # set by `hand_over`

    def _run(self) -> None:
        self.notes.ready = None
        self.notes.has_run = True
        super()._run()

    def cancelled_text(self) -> str:
        """Cancel the handle and return its `repr`, without the callback if that cannot be shown."""
        try:
            self.cancel()
            return repr(self)
        except Exception:  # the `repr` of the callback raises; the handle is cancelled
            return f"<TimerHandle cancelled when={self.when()}>"


NotedHandle.__name__ = "TimerHandle"  # the `repr` shows the name of the class


class NoLoop:
    """A stand-in for a loop, with the methods that asyncio's handle calls."""

    def __init__(self, *, debug: bool) -> None:
        self._debug = debug

    def get_debug(self) -> bool:
        """Return whether arguments are shown."""
        return self._debug

    def _timer_handle_cancelled(self, handle: object) -> None:
        """Do nothing, because there is no heap of handles."""


class DebugNotes:
    """The debug information about one handle.

    Attributes:
        loop: asyncio's loop, which runs the callback like its own and therefore reports a slow one;
            None on uvloop.
        source_traceback: The stack where the timer was armed, the innermost frame last.
        text: The `repr` from before the handle was cancelled.
        ready: The asyncio handle that was passed to *loop*, until it runs.
        has_run: Whether that handle has run or is running.
    """

    __slots__ = ("has_run", "loop", "ready", "source_traceback", "text")

    def __init__(self, loop: asyncio.AbstractEventLoop | None) -> None:
        self.loop: asyncio.AbstractEventLoop | None = loop
        self.source_traceback: StackSummary | None = None
        self.text: str = ""
        self.ready: NotedHandle | None = None
        self.has_run: bool = False

    def note_caller(self) -> None:
        """Store the stack where the timer was armed."""
        frame: FrameType | None = _getframe(1)
        while frame is not None and frame.f_code.co_filename.startswith(_HERE):
            frame = frame.f_back  # frames of this package exist only in the pure build
        self.source_traceback = extract_stack(frame)

    def hand_over(self, ready: NotedHandle) -> None:
        """Pass *ready* to the loop, which runs it like its own handles."""
        ready.notes = self
        self.ready = ready
        loop: Any = self.loop
        loop._add_callback(ready)

    def withdraw(self) -> bool:
        """Give up the handle that was passed to the loop; return True if it had not run.

        The caller cancels that handle.
        """
        ready, self.ready = self.ready, None
        return ready is not None
