"""The oracle of timers, which keeps a list of deadlines instead of a wheel. Rank 4."""

from __future__ import annotations

from random import Random

from aiowheel._units import FOREVER
from aiowheel.testing.simulation._loop import SimulationLoop


class Deadline:
    """The expected deadline and state of one callback.

    Attributes:
        due_ns: When the callback is due.
        number: The position in the order of arming.
        state: "pending", "fired" or "cancelled".
        moved: Whether the deadline was changed.
        latest_ns: The time by which the callback has fired, if no fault delays it.
        ahead: Whether the callback was armed before it was due, on a clock that was not set back.
    """

    __slots__ = ("ahead", "due_ns", "latest_ns", "moved", "number", "state")

    def __init__(self, due_ns: int, number: int, *, ahead: bool) -> None:
        self.due_ns = min(due_ns, FOREVER)
        self.latest_ns = self.due_ns
        self.number = number
        self.ahead = ahead
        self.state = "pending"
        self.moved = False


class Deadlines:
    """The pending deadlines, and the rules for their firing.

    Args:
        loop: The loop whose clock is used.
        tick_ns: The width of a bucket, in nanoseconds.
    """

    def __init__(self, loop: SimulationLoop, tick_ns: int) -> None:
        self._loop = loop
        self._tick_ns = tick_ns
        self._pending: dict[Deadline, None] = {}
        self._made = 0
        self._last_in_order = (-FOREVER, 0)
        self.fired = 0
        self.cancelled = 0

    def __len__(self) -> int:
        return len(self._pending)

    def add(self, due_ns: int) -> Deadline:
        """Add a deadline that is armed now."""
        self._made += 1
        ahead = due_ns > self._loop.now_ns == self._loop.peak_ns
        deadline = Deadline(due_ns, self._made, ahead=ahead)
        self._set_latest(deadline)
        self._pending[deadline] = None
        return deadline

    def move(self, deadline: Deadline, due_ns: int) -> None:
        """Change a pending deadline."""
        is_later = due_ns > deadline.due_ns
        deadline.due_ns = min(due_ns, FOREVER)
        deadline.moved = True
        self._set_latest(deadline, is_later=is_later)

    def _set_latest(self, deadline: Deadline, *, is_later: bool = False) -> None:
        """Set the latest time to fire: the deadline rounded up to a tick, or itself if it is due.

        A move to a later time only stores the new deadline, so the wheel still rounds it up.
        """
        if is_later or deadline.due_ns > self._loop.now_ns:
            deadline.latest_ns = -(-deadline.due_ns // self._tick_ns) * self._tick_ns
        else:
            deadline.latest_ns = deadline.due_ns

    def cancel(self, deadline: Deadline) -> bool:
        """Cancel a deadline; return whether it was pending."""
        if deadline.state != "pending":
            return False
        deadline.state = "cancelled"
        del self._pending[deadline]
        self.cancelled += 1
        return True

    def fire(self, deadline: Deadline) -> None:
        """Assert that a deadline may fire now, and end it."""
        assert deadline.state == "pending", f"a deadline fired that was {deadline.state}"
        early = deadline.due_ns - self._loop.now_ns
        assert early <= 0, f"a deadline fired {early} ns early"
        deadline.state = "fired"
        del self._pending[deadline]
        self.fired += 1
        self._check_order(deadline)

    def _check_order(self, deadline: Deadline) -> None:
        """Assert the order of deadlines that were armed ahead of time and never moved."""
        tick = -(-deadline.due_ns // self._tick_ns)
        if deadline.moved or not deadline.ahead:
            return
        place = (tick, deadline.number)
        assert place > self._last_in_order, f"{place} fired after {self._last_in_order}"
        self._last_in_order = place

    def check_idle(self) -> None:
        """Assert that nothing is late while nothing is ready to run."""
        now_ns = self._loop.now_ns
        if now_ns < self._loop.peak_ns:
            return  # after a step back, nothing fires until the clock has reached its peak
        for deadline in self._pending:
            late = now_ns - deadline.latest_ns
            assert late < 0, f"a deadline is {late} ns later than the end of its tick"

    def pending(self) -> list[Deadline]:
        """Return the pending deadlines in the order of arming."""
        return list(self._pending)


def drawn_delay_ns(chance: Random, tick_ns: int, wheel_size: int) -> int:
    """Return a delay near the edges of ticks and levels, where bugs of wheels are likely."""
    kind = chance.randrange(8)
    if kind == 0:
        return chance.choice((0, 1, -1, -1_000_000_000, tick_ns - 1, tick_ns + 1))
    if kind == 1:
        return chance.randrange(2 * tick_ns)
    if kind == 2:
        return chance.randrange(60 * 1_000_000_000)
    if kind == 3:
        return chance.randrange(3 * 86_400 * 1_000_000_000)
    # Near the end of a block of a level.
    width: int = wheel_size ** chance.randint(0, 3)
    ticks = width * chance.randint(0, 2 * wheel_size) + chance.randint(-1, 1)
    return min(ticks * tick_ns + chance.choice((-1, 0, 0, 1)), 10**17)
