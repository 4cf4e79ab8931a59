"""The world of durable timers: processes on one store that crash, stall and lose connections.

The model is that of the random histories in tests/durable. A simulation runs them step by step, so
that a failing history can be reduced.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Hashable

from aiowheel.durable import DurableTimers, MemoryStore, StoreError
from aiowheel.durable.operations import Result, Settle
from aiowheel.testing.simulation import World, step

from .histories import LEASE, NEVER, FaultyLink, History, MemoryPlay, doubt, flaws_of, now

_NAMES = ("a", "b", "c", "d", "e", "f")
_CRASHES = frozenset({"crash", "leave", "start", "process stall", "lost connection"})
_STORE = frozenset({"store crash", "lost commits"})
_BEHIND = (0.0, 0.3, 4.0)  # seconds for which a store does not sync before it crashes


class CrashingStore(MemoryStore):
    """A store that records in the history which commits a crash has lost.

    It is down for the time of a lease, so that every process fails to renew its leases and reads
    its window again; or it is not down, and every process notices a lost connection.
    """

    def __init__(self, partitions: int, history: History) -> None:
        super().__init__(partitions=partitions)
        self.history = history
        self.since = NEVER
        self.is_noticed = False

    def stop_syncing(self) -> None:
        """Record the time since which commits will be lost."""
        super().stop_syncing()
        self.since = now()

    def _report_loss(self) -> None:
        """Report a crash without a time in which calls fail."""
        if self.is_noticed:
            super()._report_loss()

    def _settle(self, settle: Settle) -> Result:
        """Record a timer that is ended by the fire of a lost timer with the same id."""
        row = self._rows.get(settle.id)
        result = super()._settle(settle)
        if (
            row is not None
            and result == "done"
            and self.history.losses
            and row.payload not in self.history.tokens_of(row.identity())
        ):
            self.history.losses += 1  # its client may wait for the answer of the same commit
            self.history.lose_changes(row.name)
        return result

    def crash(self, down: float = LEASE) -> None:
        """Lose the commits since that time."""
        self.is_noticed = not down
        super().crash(down)
        if self.since < NEVER:
            self.history.lose(self.since)
            self.since = NEVER


class SimulatedPlay(MemoryPlay):
    """A history whose connections draw their faults from the world."""

    def __init__(self, world: DurableWorld) -> None:
        super().__init__(0)
        self.base = CrashingStore(world.random.choice((1, 3, 8)), self.history)
        self.chance = world.loop.chance
        self.world = world


class DurableWorld(World):
    """Up to three processes, and a client for each of six timers."""

    longest_pause = 3.0  # leases are renewed every second
    faults = frozenset({"reorder", "delay", "stall", "cancel", "error"}) | _CRASHES | _STORE

    async def setup(self) -> None:
        """Start one to three processes."""
        self.play = SimulatedPlay(self)
        self.history = self.play.history
        self.history.faulty = True
        self.busy: set[str] = set()
        self.cancelled: dict[str, DurableTimers] = {}  # whose commit may be under way, by name
        self.leaving: set[DurableTimers] = set()
        self.number = 0
        for _ in range(self.random.choice((1, 2, 3))):
            await self.play.start()

    # --- clients ----------------------------------------------------------------------------

    @step(weight=6)
    def schedule(self) -> None:
        """Write a timer."""
        self.call("schedule")

    @step(weight=2)
    def cancel(self) -> None:
        """Delete a timer."""
        self.call("cancel")

    @step(weight=2)
    def move(self) -> None:
        """Move a timer."""
        self.call("move")

    def call(self, verb: str) -> None:
        """Start a call of the client of a timer, unless a call is running."""
        name = self.random.choice(_NAMES)
        if name not in self.busy and self.cancelled.get(name) not in self.leaving:
            self.busy.add(name)
            self.number += 1
            self.spawn(self.client(name, verb), f"{verb} {name} {self.number}")

    def process_for(self, name: str) -> DurableTimers:
        """Choose a process for the next call: after a cancelled call the same one.

        The cancelled change may be in a commit that is under way. A process makes its changes in
        order, but another process could make a later change before it.
        """
        alive = [timers for _, timers in self.play.processes]
        last = self.cancelled.get(name)
        return last if last is not None and last in alive else self.random.choice(alive)

    async def client(self, name: str, verb: str) -> None:
        """Make one call; record an unconfirmed change as uncertain."""
        play = self.play
        versions = self.history.versions.setdefault(name, [])
        timers = self.process_for(name)
        losses = self.history.losses
        self.history.changed[name] = NEVER  # not before the call has returned
        try:
            if verb == "schedule":
                await play.schedule(timers, name, versions)
            elif verb == "move":
                await play.move(timers, name, versions)
            elif await timers.cancel(name):
                play.end(versions)
            else:
                doubt(versions)
            self.cancelled.pop(name, None)
        except (StoreError, RuntimeError):
            doubt(versions)
            self.cancelled.pop(name, None)
        except asyncio.CancelledError:
            doubt(versions)
            self.cancelled[name] = timers
            raise
        finally:
            if self.history.losses != losses:
                self.history.lose_changes(name)
            self.history.changed[name] = now()
            self.busy.discard(name)

    # --- processes --------------------------------------------------------------------------

    def strike(self, kind: str) -> None:
        """Crash, close, start, stall or cut off a process, or crash the store."""
        play, chance = self.play, self.loop.chance
        if kind == "store crash":
            play.base.crash_after(chance.randint(1, 12))
            return
        if kind == "lost commits":
            play.base.stop_syncing()
            down = chance.choice((0.0, LEASE, LEASE, LEASE))
            self.loop.call_later(chance.choice(_BEHIND), play.base.crash, down)
            return
        place = chance.randrange(len(play.processes))
        link, timers = play.processes[place]
        if kind == "start":
            if len(play.processes) < 3:
                self.disturb(play.start())
        elif kind in {"crash", "leave"}:
            if len(play.processes) > 1:
                del play.processes[place]
                if kind == "crash":
                    self.disturb(play.crash(link, timers))
                else:
                    self.leaving.add(timers)
                    self.disturb(self.leave(timers))
        elif kind == "process stall":
            link.stalled_until = self.loop.time() + chance.uniform(0, 2 * LEASE)
        else:
            link.faults = 0.3
            self.loop.call_later(chance.uniform(0, 10), self.heal, link)

    async def leave(self, timers: DurableTimers) -> None:
        """Close a process, which first makes its pending changes."""
        await timers.aclose(drain=2)
        self.leaving.remove(timers)

    def disturb(self, what: Coroutine[object, object, object]) -> None:
        """Run a change of the processes in a task that faults do not interrupt."""
        self.changes = getattr(self, "changes", [])
        self.changes.append(self.loop.create_task(self.quietly(what)))

    async def quietly(self, what: Coroutine[object, object, object]) -> None:
        """Ignore a failed start of a process, whose store may be cut off."""
        try:
            await what
        except StoreError:
            return

    @staticmethod
    def heal(link: FaultyLink) -> None:
        """End the faults of a connection."""
        link.faults = 0.0

    # --- rules ------------------------------------------------------------------------------

    def state(self) -> Hashable:
        """Return the numbers of partitions of the processes, and of timers in memory."""
        held = tuple(sorted(timers.statistics().partitions for _, timers in self.play.processes))
        resident = sum(timers.statistics().resident for _, timers in self.play.processes)
        return (held, min(resident, 6), len(self.history.ended) > 5)

    async def finish(self) -> None:
        """End all faults, and assert that the history has no flaw."""
        await self.settle()
        await asyncio.sleep(10)
        if changes := getattr(self, "changes", []):
            await asyncio.wait(changes)
        for link, _ in self.play.processes:
            self.heal(link)
        await asyncio.sleep(60)
        self.history.left = [repr(row) for row in await self.play.base.rows()]
        self.history.left += await self.play.base.check()
        for _, timers in self.play.processes:
            await timers.aclose()
        flaws = list(flaws_of(self.history))
        assert not flaws, flaws[0]
