"""The world of a wheel loop: tasks that use asyncio's own tools, and bare handles. Rank 4."""

from __future__ import annotations

import asyncio
from asyncio import TimerHandle
from collections.abc import Hashable
from typing import cast

from aiowheel._units import clock_to_ns, ns_to_seconds
from aiowheel.errors import InjectedError
from aiowheel.loop._loop_handle import LoopHandle
from aiowheel.testing.simulation._faults import ALL_FAULTS
from aiowheel.testing.simulation._loop import SimulationWheelLoop
from aiowheel.testing.simulation._world import World, step
from aiowheel.testing.simulation.worlds._deadlines import Deadline, Deadlines, drawn_delay_ns

_TICK_NS = 1_000_000
_CAPACITY = 3


class WheelLoopWorld(World):
    """Producers, consumers, locks, timeouts and bare handles on one wheel loop."""

    faults = ALL_FAULTS
    loop_class = SimulationWheelLoop
    starts = (0.0, 17_000_000.123)

    async def setup(self) -> None:
        """Create the queue and the lock that the tasks share."""
        self.model = Deadlines(self.loop, _TICK_NS)
        self.handles: list[tuple[TimerHandle, Deadline]] = []
        self.queue: asyncio.Queue[int] = asyncio.Queue(_CAPACITY)
        self.lock = asyncio.Lock()
        self.made = self.taken = self.lost = self.number = 0
        self.holders = 0

    def draw_ns(self) -> int:
        """Draw a delay."""
        return max(0, drawn_delay_ns(self.random, _TICK_NS, 256))

    def draw_short(self) -> float:
        """Draw a delay of a client, in seconds."""
        return self.random.choice((0.0, 0.0005, 0.001, 0.02, 1.0, 7.0))

    def start(self, name: str) -> str:
        """Return a name for a new task."""
        self.number += 1
        return f"{name} {self.number}"

    # --- bare handles -----------------------------------------------------------------------

    def arm(self, *, from_thread: bool = False) -> None:
        """Arm a callback of the loop."""
        delay_ns = self.draw_ns()
        box: list[Deadline] = []

        def fire() -> None:
            self.model.fire(box[0])
            if self.random.random() < 0.1:
                raise InjectedError("a callback failed")

        def call() -> TimerHandle:
            if self.random.random() < 0.5:
                return self.loop.call_later(ns_to_seconds(delay_ns), fire)
            return self.loop.call_at(ns_to_seconds(self.now_ns + delay_ns), fire)

        handle = self.in_thread(call) if from_thread else call()
        deadline = self.model.add(clock_to_ns(handle.when()))
        # The order of callbacks from another thread is not checked: asyncio decides it.
        deadline.moved = from_thread
        box.append(deadline)
        self.handles.append((handle, deadline))

    @step(weight=4)
    def call_later(self) -> None:
        """Arm a callback."""
        self.arm()

    @step
    def call_later_in_thread(self) -> None:
        """Arm a callback from another thread, which asyncio allows outside debug mode."""
        self.arm(from_thread=True)

    @step(weight=3)
    def cancel_handle(self) -> None:
        """Cancel a handle, in the loop's thread or in another one."""
        if not self.handles:
            return
        handle, deadline = self.random.choice(self.handles)
        cancel = cast(LoopHandle, handle).cancel
        stopped = self.in_thread(cancel) if self.random.random() < 0.3 else cancel()
        assert stopped == self.model.cancel(deadline), "cancel() disagrees with the oracle"
        assert handle.cancelled()

    # --- tasks that share a queue and a lock ------------------------------------------------

    @step(weight=2)
    def produce(self) -> None:
        """Start a producer."""
        self.spawn(self.producer(self.random.randint(1, 4), self.draw_short()), self.start("make"))

    async def producer(self, count: int, pause: float) -> None:
        """Put some items, each within a timeout."""
        for _ in range(count):
            await asyncio.sleep(pause)
            jumps = self.count_jumps()
            try:
                async with asyncio.timeout(5.0):
                    await self.queue.put(1)
                    self.made += 1
            except TimeoutError:
                # After a jump of the clock, free space and the timeout may come in one turn.
                jumped = self.count_jumps() > jumps
                assert self.queue.full() or jumped, "a put timed out although the queue has space"

    @step(weight=2)
    def consume(self) -> None:
        """Start a consumer."""
        self.spawn(self.consumer(self.random.randint(1, 4), self.draw_short()), self.start("take"))

    async def consumer(self, count: int, pause: float) -> None:
        """Take some items, each within a timeout."""
        for _ in range(count):
            began, steps = self.now_ns, self._trace.faults["step"]
            try:
                async with asyncio.timeout(3.0):
                    await self.queue.get()
            except TimeoutError:
                waited, was_set = self.now_ns - began, self._trace.faults["step"] > steps
                assert waited >= 3_000_000_000 - 64 or was_set, "a get timed out early"
                continue
            except (InjectedError, asyncio.CancelledError):
                self.lost += 1  # the item may be lost with the result of the get
                raise
            self.taken += 1
            await asyncio.sleep(pause)

    @step
    def hold(self) -> None:
        """Start a task that holds a lock for some time."""
        self.spawn(self.holder(self.draw_short()), self.start("hold"))

    async def holder(self, seconds: float) -> None:
        """Hold the lock, and assert that no other task holds it."""
        async with self.lock:
            assert self.holders == 0, "two tasks hold one lock"
            self.holders += 1
            try:
                await asyncio.sleep(seconds)
            finally:
                self.holders -= 1

    @step
    def race(self) -> None:
        """Start a group of sleeps within one timeout."""
        sleeps = [self.draw_short() for _ in range(3)]
        self.spawn(self.group(sleeps, self.draw_short()), self.start("race"))

    async def group(self, sleeps: list[float], limit: float) -> None:
        """Sleep in the tasks of a group, within one timeout."""
        began, steps = self.now_ns, self._trace.faults["step"]
        try:
            async with asyncio.timeout(limit), asyncio.TaskGroup() as group:
                for seconds in sleeps:
                    group.create_task(asyncio.sleep(seconds))
        except TimeoutError:
            passed, was_set = self.now_ns - began, self._trace.faults["step"] > steps
            assert passed >= limit * 1e9 - 64 or was_set, "a timeout ended early"

    @step
    def job(self) -> None:
        """Start a task that waits for a job in a thread."""
        self.spawn(self.worker(), self.start("job"))

    async def worker(self) -> None:
        """Get the result of a job."""
        assert await asyncio.to_thread(sum, (1, 2, 3)) == 6

    def count_jumps(self) -> int:
        """Return the number of faults after which much time has passed in one turn."""
        return sum(self._trace.faults[kind] for kind in ("step", "stall", "suspend"))

    # --- rules ------------------------------------------------------------------------------

    def idle(self) -> None:
        """Assert that no handle is late, and that items are neither lost nor doubled."""
        if not hasattr(self, "lock"):
            return
        self.model.check_idle()
        missing = self.made - self.taken - self.queue.qsize()
        assert 0 <= missing <= self.lost, f"{missing} items are missing, {self.lost} may be"

    def state(self) -> Hashable:
        """Return the numbers of tasks, of queued items, of lock holders and of deadlines."""
        tasks = min(len(self._victims.tasks()), 12)
        return (tasks, self.queue.qsize(), self.holders, min(len(self.model), 12))

    async def finish(self) -> None:
        """Cancel all tasks except the consumers, and wait for their end; handles stay pending."""
        others = [task for task in self._victims.tasks() if "take" not in task.get_name()]
        for task in others:
            task.cancel()
        await self.settle()

    def closed(self) -> None:
        """Assert that handles stay usable after the loop was closed."""
        for handle, deadline in self.handles:
            assert deadline.state != "fired" or not cast(LoopHandle, handle).cancel()
            handle.cancel()
            assert handle.cancelled()
