"""Threads that arm and cancel deadlines of the loop, advance counters and check keys."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from random import Random

from aiowheel import Purgatory, ThreadsafeHandle, Timer

from .living import LONGEST, Token

THREADS = 2
CALLS = 20  # deadlines that a thread arms between two pauses
PAUSE = 0.01


class ThreadWork:
    """Calls from other threads; each thread counts its own calls.

    The threads live for one phase: `open` starts them and `settle` tells them to end.
    """

    def __init__(self, timer: Timer, purgatory: Purgatory, chance: Random) -> None:
        self._timer = timer
        self._purgatory = purgatory
        self._chance = chance
        self._callers: list[Caller] = []
        self._stop = threading.Event()
        self.began = 0
        self.cancelled = 0
        self.fired = 0
        self.unsure = 0

    def open(self) -> None:
        """Start the threads of a phase."""
        self._stop = threading.Event()
        for number in range(THREADS):
            chance = Random(self._chance.random())
            caller = Caller(self._timer, self._purgatory, self._stop, self._run, chance, number)
            self._callers.append(caller)
            caller.start()

    def settle(self) -> None:
        """Tell the threads to end; until they have ended, work is pending."""
        self._stop.set()

    def pending(self) -> int:
        """Return the number of pending calls; a thread counts as one until all its calls end."""
        for caller in [caller for caller in self._callers if self._has_ended(caller)]:
            caller.join()
            self._callers.remove(caller)
            self._purgatory.forget(caller.counter)
            self.began += caller.began
            self.cancelled += caller.cancelled
        return len(self._callers) + self.began - self.cancelled - self.fired

    def _has_ended(self, caller: Caller) -> bool:
        # The loop may run the last call of a thread after the thread has ended.
        return (
            not caller.is_alive() and (self._purgatory.value(caller.counter) or 0) == caller.raised
        )

    def flaws(self) -> list[str]:
        """Return descriptions of what is wrong."""
        return [f"{self.unsure} cancelled calls of threads were made"] if self.unsure else []

    def _run(self, token: Token) -> None:
        self.fired += 1
        self.unsure += token.ended


class Caller(threading.Thread):
    """One thread.

    Attributes:
        counter: The key of the counter that only this thread advances.
        raised: Its last value.
    """

    def __init__(
        self,
        timer: Timer,
        purgatory: Purgatory,
        stop: threading.Event,
        callback: Callable[[Token], object],
        chance: Random,
        number: int,
    ) -> None:
        super().__init__(name=f"soak-{number}", daemon=True)
        self._timer = timer
        self._purgatory = purgatory
        self._stop_event = stop
        self._callback = callback
        self._chance = chance
        self._handles: deque[tuple[ThreadsafeHandle, Token]] = deque(maxlen=100)
        self.counter = ("raised by", number, id(self))
        self.raised = 0
        self.began = 0
        self.cancelled = 0

    def run(self) -> None:
        """Make calls until the phase ends."""
        while not self._stop_event.wait(PAUSE):
            for _ in range(CALLS):
                self._arm()
                self._cancel()
            self.raised += 1
            self._purgatory.advance_threadsafe(self.counter, self.raised)
            self._purgatory.check_and_complete_threadsafe(self._chance.randrange(100))
        self._handles.clear()

    def _arm(self) -> None:
        token = Token()
        delay = self._chance.random() * LONGEST
        handle = self._timer.call_later_threadsafe(delay, self._callback, token)
        self.began += 1
        self._handles.append((handle, token))

    def _cancel(self) -> None:
        if self._chance.random() < 0.5:
            handle, token = self._handles.popleft()
            if handle.cancel():
                token.ended = True
                self.cancelled += 1
