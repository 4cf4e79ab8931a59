"""Callbacks on a timer that are armed, moved, cancelled, dropped and fired; each is counted."""

from __future__ import annotations

from contextvars import Context, ContextVar
from random import Random

from aiowheel import Timer, TimerHandle

from .living import LONGEST, RING, InjectedError, Token

FAR = 3_600.0
BURST = 2_000
IN_CONTEXT: ContextVar[Token] = ContextVar("IN_CONTEXT")


class TimerWork:
    """The callbacks of a `Timer`."""

    def __init__(self, timer: Timer, chance: Random) -> None:
        self._timer = timer
        self._chance = chance
        self._ring: list[tuple[TimerHandle, Token] | None] = [None] * RING
        self._next = 0
        self.began = 0
        self.fired = 0
        self.cancelled = 0
        self.raised = 0
        self.early = 0
        self.unsure = 0

    def steps(self) -> dict[str, int]:
        """Return the methods among which a turn chooses, with their weights."""
        return {
            "arm": 30,
            "arm_far": 4,
            "arm_in_context": 4,
            "arm_raising": 2,
            "touch": 30,
            "reschedule": 8,
            "cancel": 30,
            "drop": 4,
        }

    def arm(self) -> None:
        """Arm a callback."""
        self._arm(self._chance.random() * LONGEST)

    def arm_far(self) -> None:
        """Arm a callback that is cancelled or moved nearer later."""
        self._arm(FAR)

    def arm_raising(self) -> None:
        """Arm a callback that raises."""
        self._arm(self._chance.random() * LONGEST).raises = True

    def arm_in_context(self) -> None:
        """Arm a callback whose context keeps an object alive."""
        context = Context()
        context.run(IN_CONTEXT.set, Token())
        self._arm(self._chance.random() * LONGEST, context)

    def burst(self) -> None:
        """Arm many callbacks for one moment."""
        for _ in range(BURST):
            self._arm(LONGEST / 2)

    def touch(self) -> None:
        """Move a deadline by its delay from now."""
        chosen = self._ring[self._chance.randrange(RING)]
        if chosen is not None:
            self._moved(*chosen, chosen[0].touch())

    def reschedule(self) -> None:
        """Move a deadline nearer or further."""
        chosen = self._ring[self._chance.randrange(RING)]
        if chosen is not None:
            when = self._timer.time() + self._chance.random() * LONGEST
            self._moved(*chosen, chosen[0].reschedule(when))

    def cancel(self) -> None:
        """Cancel a callback, which may already have run."""
        chosen = self._ring[self._chance.randrange(RING)]
        if chosen is not None:
            self._cancel(*chosen)

    def drop(self) -> None:
        """Drop a handle; the callback runs nevertheless."""
        self._drop(self._chance.randrange(RING))

    def settle(self) -> None:
        """Drop every handle."""
        for place in range(RING):
            self._drop(place)

    def pending(self) -> int:
        """Return the number of callbacks that have neither run nor been cancelled."""
        return self.began - self.fired - self.cancelled

    def flaws(self) -> list[str]:
        """Return descriptions of what is wrong."""
        flaws: list[str] = []
        if self.early:
            flaws.append(f"{self.early} callbacks ran early")
        if self.unsure:
            flaws.append(f"{self.unsure} handles did not know whether their callback had ended")
        return flaws

    def _arm(self, delay: float, context: Context | None = None) -> Token:
        token = Token()
        handle = self._timer.call_later(delay, self._run, token, context=context)
        token.deadline = handle.when()
        self.began += 1
        self._drop(self._next)
        self._ring[self._next] = (handle, token)
        self._next = (self._next + 1) % RING
        return token

    def _drop(self, place: int) -> None:
        kept = self._ring[place]
        self._ring[place] = None
        if kept is not None and kept[1].deadline > self._timer.time() + LONGEST:
            self._cancel(*kept)  # otherwise it would not end in time

    def _cancel(self, handle: TimerHandle, token: Token) -> None:
        cancelled = handle.cancel()
        self.cancelled += cancelled
        self.unsure += cancelled == token.ended
        token.ended = True

    def _moved(self, handle: TimerHandle, token: Token, moved: bool) -> None:  # noqa: FBT001
        self.unsure += moved == token.ended
        token.deadline = handle.when()

    def _run(self, token: Token) -> None:
        self.fired += 1
        self.early += self._timer.time() < token.deadline
        self.unsure += token.ended
        token.ended = True
        if token.raises:
            self.raised += 1
            raise InjectedError
