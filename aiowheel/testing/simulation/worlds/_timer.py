"""The world of the running timer: deadlines, sleeps, timeouts, periodic and threaded calls. Rank 4.

The oracle is a list of deadlines without a wheel.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Hashable
from functools import partial
from typing import Literal

from aiowheel._units import ns_to_seconds
from aiowheel.errors import InjectedError, TimerClosedError
from aiowheel.testing.simulation._faults import ALL_FAULTS
from aiowheel.testing.simulation._world import World, step
from aiowheel.testing.simulation.worlds._deadlines import Deadline, Deadlines, drawn_delay_ns
from aiowheel.timer import Timer, TimerHandle, current_timer
from aiowheel.timer._threads import ThreadsafeHandle

_TICKS_NS = (1_000, 1_000_000, 1_000_000, 10_000_000, 250_000_000, 1_000_000_000)
_WHEEL_SIZES = (2, 3, 8, 20, 256)
_MISSED: tuple[Literal["skip", "burst", "delay"], ...] = ("skip", "burst", "delay")


class TimerWorld(World):
    """A `Timer` that is closed at the end."""

    faults = ALL_FAULTS
    starts = (0.0, 0.37, 17_000_000.123)  # 200 days: a float has 2 ns there

    async def setup(self) -> None:
        """Open the timer."""
        self.tick_ns = self.random.choice(_TICKS_NS)
        self.wheel_size = self.random.choice(_WHEEL_SIZES)
        self.timer = await self.open_timer()
        self.model = Deadlines(self.loop, self.tick_ns)
        self.made: list[tuple[TimerHandle, Deadline]] = []
        self.threaded: list[tuple[ThreadsafeHandle, Deadline]] = []
        self.sleepers = 0
        self.is_closing = False

    async def open_timer(self) -> Timer:
        """Return the timer under simulation."""
        timer = Timer(tick=ns_to_seconds(self.tick_ns), wheel_size=self.wheel_size)
        return await timer.__aenter__()

    # --- callbacks --------------------------------------------------------------------------

    def draw_ns(self) -> int:
        """Draw a delay."""
        return drawn_delay_ns(self.random, self.tick_ns, self.wheel_size)

    def on_fire(self, deadline: Deadline, act: Callable[[], object]) -> None:
        """Compare the call with the oracle, then act."""
        self.model.fire(deadline)
        self.note(f"fired {deadline.number}")
        act()

    def arm(self, delay_ns: int, act: Callable[[], object]) -> None:
        """Arm a callback by `call_later` or by `call_at`."""
        now = self.now_ns
        box: list[Deadline] = []

        def fire() -> None:
            self.on_fire(box[0], act)

        if self.random.random() < 0.5:
            handle = self.timer.call_later(ns_to_seconds(delay_ns), fire)
        else:
            handle = self.timer.call_at(ns_to_seconds(now + delay_ns), fire)
        due_ns = handle.deadline
        assert abs(due_ns - now - delay_ns) <= 64 or delay_ns < 0, "armed for another deadline"
        box.append(self.model.add(due_ns))
        self.made.append((handle, box[0]))

    @step(weight=6)
    def call_later(self) -> None:
        """Arm one callback."""
        self.arm(self.draw_ns(), self.act())

    @step
    def burst(self) -> None:
        """Arm many callbacks for three instants."""
        delays = [self.draw_ns() for _ in range(3)]
        for _ in range(self.random.randint(5, 40)):
            self.arm(self.random.choice(delays), _nothing)

    def act(self) -> Callable[[], object]:
        """Draw the action of a callback."""
        kind = self.random.randrange(12)
        if kind == 0:
            return _raise
        if kind == 1:
            return partial(self.stall, self.random.choice((0.001, 0.006, 2.0)))
        if kind == 2:
            return partial(self.arm_again, self.draw_ns())
        if kind == 3:
            return self.cancel
        if kind == 4:
            return self.move
        return _nothing

    def arm_again(self, delay_ns: int) -> None:
        """Arm another callback inside a callback."""
        if not self.is_closing:
            self.arm(delay_ns, _nothing)

    @step(weight=3)
    def cancel(self) -> None:
        """Cancel any handle, also one that has ended."""
        if not self.made:
            return
        handle, deadline = self.random.choice(self.made)
        expected = self.model.cancel(deadline)
        assert handle.cancel() == expected, "cancel() disagrees with the oracle"
        assert handle.cancelled() == (deadline.state == "cancelled")

    @step(weight=3)
    def move(self) -> None:
        """Touch or reschedule any handle."""
        if not self.made or self.is_closing:
            return
        handle, deadline = self.random.choice(self.made[-20:])
        delay_ns = max(self.draw_ns(), 0)
        now = self.now_ns
        if self.random.random() < 0.5:
            moved = handle.touch(ns_to_seconds(delay_ns))
        else:
            moved = handle.reschedule(ns_to_seconds(now + delay_ns))
        assert moved == (deadline.state == "pending"), "a move disagrees with the oracle"
        if moved:
            self.model.move(deadline, handle.deadline)
            assert abs(handle.deadline - now - delay_ns) <= 64, "moved to another deadline"

    # --- tasks ------------------------------------------------------------------------------

    @step(weight=2)
    def sleep(self) -> None:
        """Start a task that sleeps."""
        self.sleepers += 1
        self.spawn(self.sleeper(self.sleepers, max(self.draw_ns(), 0)), f"sleeper {self.sleepers}")

    async def sleeper(self, number: int, delay_ns: int) -> None:
        """Sleep, and assert that the sleep did not end early."""
        if self.is_closing:
            return
        began, steps = self.now_ns, self._trace.faults["step"]
        try:
            await self.timer.sleep(ns_to_seconds(delay_ns))
        except TimerClosedError:
            assert self.is_closing
            return
        slept = self.now_ns - began
        assert slept >= delay_ns or self.was_set(steps), f"slept {delay_ns - slept} ns less"
        self.note(f"slept {number}")

    def was_set(self, steps: int) -> bool:
        """Return whether the clock was set after *steps* such faults: measured times are wrong."""
        return self._trace.faults["step"] > steps

    @step(weight=2)
    def timeout(self) -> None:
        """Start a task with a timeout."""
        self.sleepers += 1
        limit, work = max(self.draw_ns(), 1), max(self.draw_ns(), 0)
        self.spawn(self.limited(limit, work), f"limited {self.sleepers}")

    async def limited(self, limit_ns: int, work_ns: int) -> None:
        """Sleep within a timeout, and assert that the timeout did not end early."""
        if self.is_closing:
            return
        began, steps = self.now_ns, self._trace.faults["step"]
        block = self.timer.timeout(ns_to_seconds(limit_ns))
        try:
            async with block:
                await asyncio.sleep(ns_to_seconds(work_ns))
        except TimeoutError:
            assert block.expired()
            late = self.now_ns - began - limit_ns
            assert late >= 0 or self.was_set(steps), f"timed out {-late} ns early"
            task = asyncio.current_task()
            assert task is not None
            assert task.cancelling() == 0, "the timeout did not undo its cancellation"
            self.note("timed out")
        else:
            assert not block.expired()
            self.note("in time")

    @step
    def every(self) -> None:
        """Start a periodic call, which cancels itself."""
        period_ns = max(abs(self.draw_ns()), 1_000_000)
        most = self.random.randint(1, 6)
        missed = self.random.choice(_MISSED)
        began, steps = self.now_ns, self._trace.faults["step"]
        runs: list[int] = []

        def tick() -> None:
            runs.append(self.now_ns)
            least = began + len(runs) * period_ns
            early = least - self.now_ns
            assert early <= 64 or self.was_set(steps), f"tick {len(runs)} is {early} ns early"
            if len(runs) >= most:
                periodic.cancel()

        periodic = self.timer.every(ns_to_seconds(period_ns), tick, missed=missed)

    @step
    def cancel_driver(self) -> None:
        """Cancel the timer's own task, as `asyncio.run` does; the timer must start it again."""
        for task in asyncio.all_tasks():
            if task.get_name() == "aiowheel-driver":
                task.cancel()

    # --- threads ----------------------------------------------------------------------------

    @step
    def call_from_thread(self) -> None:
        """Arm a callback in another thread."""
        delay_ns = max(self.draw_ns(), 0)
        box: list[Deadline] = []

        def fire() -> None:
            self.on_fire(box[0], _nothing)

        handle = self.in_thread(
            lambda: self.timer.call_later_threadsafe(ns_to_seconds(delay_ns), fire)
        )
        deadline = self.model.add(handle.deadline)
        deadline.moved = True  # it is armed at a later turn, so its order is not checked
        box.append(deadline)
        self.threaded.append((handle, deadline))

    @step
    def cancel_from_thread(self) -> None:
        """Cancel a callback in another thread."""
        if not self.threaded:
            return
        handle, deadline = self.random.choice(self.threaded)
        expected = self.model.cancel(deadline)
        assert self.in_thread(handle.cancel) == expected
        assert handle.cancelled() == (deadline.state == "cancelled")

    # --- rules ------------------------------------------------------------------------------

    def idle(self) -> None:
        """Assert that no deadline is late."""
        if not self.is_closing:
            self.model.check_idle()

    def check(self) -> None:
        """Assert the wheel's invariants, and compare the counts."""
        driver = self.timer.open_driver()
        if self.random.randrange(8) == 0:
            driver.wheel.check_invariants()
        counts = self.timer.statistics()
        assert counts.scheduled == counts.pending + counts.fired + counts.cancelled
        assert len(self.timer) == counts.pending
        assert counts.fired >= self.model.fired
        upcoming = driver.wheel.next_expiration()
        assert (upcoming is None) == (counts.pending == 0)

    def state(self) -> Hashable:
        """Return the number of pending entries, and how they are spread over the wheel."""
        counts = self.timer.open_driver().wheel.statistics()
        return (
            self.tick_ns,
            self.wheel_size,
            min(counts.pending, 20),
            counts.levels,
            min(counts.occupied_buckets, 20),
            min(counts.cascaded, 10),
        )

    async def finish(self) -> None:
        """Let some time pass, then close the timer."""
        await asyncio.sleep(self.random.choice((0.0, 1.0, 400_000.0)))
        await self.close_timer()
        await self.settle()
        self.check_ended()

    async def close_timer(self) -> None:
        """Close the timer under simulation."""
        self.is_closing = True
        await self.timer.aclose()

    def check_ended(self) -> None:
        """Assert that every handle has ended as in the oracle, and stays usable."""
        ended: list[tuple[TimerHandle | ThreadsafeHandle, Deadline]] = [*self.made, *self.threaded]
        for handle, deadline in ended:
            assert handle.cancelled() == (deadline.state != "fired")
            assert handle.fired() == (deadline.state == "fired")
            assert not handle.cancel()
            assert handle.payload is None, "an ended handle keeps its callback"
            assert handle.when() == ns_to_seconds(handle.deadline) or math.isinf(handle.when())
        assert len(self.timer) == 0


class SharedTimerWorld(TimerWorld):
    """The shared timer of the loop, which is closed with the loop."""

    async def open_timer(self) -> Timer:
        """Return the loop's timer."""
        self.tick_ns, self.wheel_size = 1_000_000, 256
        return current_timer()

    async def close_timer(self) -> None:
        """Do nothing: the loop closes its timer."""

    async def finish(self) -> None:
        """Cancel the tasks; deadlines stay pending."""
        for task in self._victims.tasks():
            task.cancel()
        await self.settle()
        self.is_closing = True

    def closed(self) -> None:
        """Assert that the closed loop has cancelled every pending deadline."""
        self.check_ended()


def _nothing() -> None:
    return


def _raise() -> None:
    raise InjectedError("a callback failed")
