"""Random histories of durable timers, checked against a small model.

Several processes share one `MemoryStore` in virtual time. They schedule, replace, cancel and move
timers, fail, stall, lose their connection before or after a commit, crash and restart. Each name
has one client, which records the answers. The model then determines for each name which fires may
have happened and which must have happened. `processes` runs the same histories with real processes
on real databases.

As a program: `python -m tests.durable.histories FIRST COUNT`.
"""

from __future__ import annotations

import asyncio
import random
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from aiowheel.durable import DurableTimers, Fire, MemoryStore, Retry, StoreError
from aiowheel.testing import VirtualClockEventLoop

from .links import Stalled

LEASE = 3.0
SECONDS = 20.0
NEVER = float("inf")


def now() -> float:
    """Return the virtual time."""
    return asyncio.get_running_loop().time()


class FaultyLink(Stalled):
    """A connection that stalls, fails and loses hints."""

    def __init__(self, base: MemoryStore, chance: random.Random) -> None:
        super().__init__(base)
        self._chance = chance
        self.faults = 0.0
        self.is_dead = False

    async def open(self, *, create: bool = True) -> None:
        """Open the common store."""
        await super().open(create=create)
        self.base.subscribe_to_losses(self.lose)

    async def aclose(self) -> None:
        """Stop receiving hints and reports."""
        await super().aclose()
        self.base.unsubscribe(self.lose)

    def lose(self) -> None:
        """Report a loss to the subscribers, at once or after the pause of a new connection."""
        pause = self._chance.choice((0, 0.3))
        asyncio.get_running_loop().call_later(pause, self._report_loss)

    def hint(self) -> None:
        """Pass most hints to the subscribers."""
        if not self.is_dead and self._chance.random() < 0.7:
            super().hint()

    async def before(self) -> None:
        """Wait for the end of a stall, or fail."""
        await asyncio.sleep(self._chance.choice((0, 0, 0.01, 0.2)))
        await super().before()
        self.after()

    def after(self) -> None:
        """Fail."""
        if self.is_dead or self._chance.random() < self.faults:
            raise StoreError("lost")


@dataclass
class Version:
    """One state of a timer that a client requested.

    Attributes:
        token: The payload.
        due: The earliest time of its fire, on the loop's clock.
        is_sure: Whether the store confirmed it, and no unconfirmed change has followed.
        over: When another call confirmed its end.
        is_firm: Whether `over` holds for all processes.
        is_moved: Whether it was rescheduled; it then fires again if its fire had begun.
        is_lost: Whether a crash of the store may have undone a change of it.
    """

    token: bytes
    due: float
    is_sure: bool
    over: float = NEVER
    is_firm: bool = True
    is_moved: bool = False
    is_lost: bool = False


@dataclass
class Begun:
    """A fire that has begun."""

    name: str
    token: bytes
    id: str
    time: float


@dataclass
class History:
    """The record of one history."""

    faulty: bool
    lease: float = LEASE
    versions: dict[str, list[Version]] = field(default_factory=dict[str, list[Version]])
    changed: dict[str, float] = field(default_factory=dict[str, float])
    begun: list[Begun] = field(default_factory=list[Begun])
    ended: dict[bytes, int] = field(default_factory=dict[bytes, int])
    left: list[str] = field(default_factory=list[str])
    losses: int = 0

    def lose(self, since: float) -> None:
        """Record that the store has lost every change since then."""
        self.losses += 1
        for name, changed in self.changed.items():
            if changed >= since:
                self.lose_changes(name)

    def tokens_of(self, fire_id: str) -> set[bytes]:
        """Return the tokens of the fires that have begun with an id: several after a loss."""
        return {begun.token for begun in self.begun if begun.id == fire_id}

    def lose_changes(self, name: str) -> None:
        """Record that changes of a timer may be lost, so that any version may exist."""
        for version in self.versions[name]:
            version.is_sure, version.over, version.is_lost = False, NEVER, True


class Play:
    """A run of one random history.

    Attributes:
        seconds: The seconds for which clients change timers.
        pause: The longest time between two changes of a client.
        delays: Seconds after which scheduled timers are due.
        moves: Seconds after which moved timers are due.
    """

    seconds = SECONDS
    pause = 8.0
    delays: tuple[float, ...] = (0.0, 0.5, 3.0, 10.0)
    moves: tuple[float, ...] = (0.5, 5.0)

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.history = History(faulty=self.chance.random() < 0.8)
        self.processes: list[Any] = []
        self.tokens = 0
        self.until = self.seconds

    def now(self) -> float:
        """Return the time on the clock of due times and fires."""
        return now()

    def timers_of(self, process: Any) -> Any:
        """Return an object with the methods of `DurableTimers` for a process."""
        raise NotImplementedError

    async def start(self) -> None:
        """Start a process."""
        raise NotImplementedError

    async def disturb(self) -> None:
        """Cause faults until the time is over."""
        raise NotImplementedError

    async def settle(self) -> None:
        """Wait until all timers have fired, record the remaining ones, and end the processes."""
        raise NotImplementedError

    async def client(self, name: str) -> None:
        """Change one timer repeatedly."""
        versions = self.history.versions.setdefault(name, [])
        while self.now() < self.until:
            await asyncio.sleep(self.chance.uniform(0, self.pause))
            timers = self.timers_of(self.chance.choice(self.processes))
            choice = self.chance.random()
            try:
                if choice < 0.6:
                    await self.schedule(timers, name, versions)
                elif choice < 0.8:
                    if await timers.cancel(name):
                        self.end(versions)
                    else:  # the timer may have been deleted, or may have fired
                        doubt(versions)
                else:
                    await self.move(timers, name, versions)
            except (StoreError, RuntimeError):
                doubt(versions)

    async def schedule(self, timers: Any, name: str, versions: list[Version]) -> None:
        """Write a new version."""
        self.tokens += 1
        delay = self.chance.choice(self.delays)
        version = Version(b"%d" % self.tokens, self.now() + delay, is_sure=False)
        versions.append(version)
        await timers.schedule(
            name, "h", due=timedelta(seconds=delay), payload=version.token, if_exists="replace"
        )
        for older in versions[:-1]:
            older.is_sure = False
            if older.over == NEVER:  # another process may hold it until it reads the change
                older.over, older.is_firm = self.now(), False
        version.is_sure = True

    async def move(self, timers: Any, name: str, versions: list[Version]) -> None:
        """Move the timer."""
        delay = self.chance.choice(self.moves)
        due = self.now() + delay
        for version in versions:  # each of them may be the existing one
            version.due = min(version.due, due)
            version.is_moved = True
        await timers.reschedule(name, timedelta(seconds=delay))

    def end(self, versions: list[Version]) -> None:
        """Record that from now on no version may begin in any process."""
        for version in versions:
            version.is_sure = False
            version.over, version.is_firm = self.now(), True

    async def run(self) -> History:
        """Run the history to its end, without faults at the end."""
        for _ in range(self.chance.choice((1, 2, 3)) if self.history.faulty else 1):
            await self.start()
        self.until = self.now() + self.seconds
        async with asyncio.TaskGroup() as group:
            for number in range(6):
                group.create_task(self.client(f"n{number}"))
            if self.history.faulty:
                group.create_task(self.disturb())
        await self.settle()
        return self.history


class MemoryPlay(Play):
    """A history on a `MemoryStore`, in virtual time."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.base = MemoryStore(partitions=self.chance.choice((1, 3, 8)))

    async def handler(self, fire: Fire) -> None:
        """Record the fire, wait for a drawn time, and sometimes fail."""
        self.history.begun.append(Begun(fire.name, fire.payload, fire.id, now()))
        await asyncio.sleep(self.chance.choice((0, 0, 0.01, 1)))
        if self.chance.random() < 0.1:
            raise ValueError("failed")
        self.history.ended[fire.payload] = self.history.ended.get(fire.payload, 0) + 1

    def timers_of(self, process: tuple[FaultyLink, DurableTimers]) -> DurableTimers:
        """Return the timers of the process."""
        return process[1]

    async def start(self) -> None:
        """Start a process."""
        link = FaultyLink(self.base, self.chance)
        timers = DurableTimers(link, window=5, lease=LEASE, max_in_flight=20)
        timers.handler("h", retry=Retry(1000, backoff=0.1, longest=1))(self.handler)
        await timers.__aenter__()
        self.processes.append((link, timers))

    async def crash(self, link: FaultyLink, timers: DurableTimers) -> None:
        """Kill a process: none of its later calls reaches the store."""
        link.is_dead = True
        await timers.aclose(drain=0)

    async def disturb(self) -> None:
        """Crash, stall, cut off and start processes until the time is over."""
        while now() < self.until:
            await asyncio.sleep(self.chance.uniform(0, 6))
            kind = self.chance.choice(("crash", "stall", "cut", "heal", "start", "close"))
            place = self.chance.randrange(len(self.processes))
            link, timers = self.processes[place]
            if kind == "start" and len(self.processes) < 3:
                await self.start()
            elif kind in {"crash", "close"} and len(self.processes) > 1:
                del self.processes[place]
                await (self.crash(link, timers) if kind == "crash" else timers.aclose(drain=2))
            elif kind == "stall":
                link.stalled_until = now() + self.chance.uniform(0, 2 * LEASE)
            else:
                link.faults = 0.3 if kind == "cut" else 0.0

    async def settle(self) -> None:
        """End the faults of the connections, and let time pass."""
        for link, _ in self.processes:
            link.faults = 0.0
        await asyncio.sleep(40)
        self.history.left = [repr(row) for row in await self.base.rows()]
        self.history.left += await self.base.check()
        for _, timers in self.processes:
            await timers.aclose()


def doubt(versions: list[Version]) -> None:
    """Record that it is unknown which version exists."""
    for version in versions:
        version.is_sure = False


def flaws_of(history: History) -> Iterator[str]:
    """Yield a line for each wrong or missing fire."""
    known = {
        version.token: version for versions in history.versions.values() for version in versions
    }
    yield from (f"{row} was left behind" for row in history.left)
    ids: dict[str, bytes] = {}
    fired: set[bytes] = set()
    for begun in history.begun:
        version = known[begun.token]
        fired.add(begun.token)
        if begun.time < version.due - 1e-6:
            yield f"{begun} is early: {version}"
        if begun.time > version.over + (0 if version.is_firm else history.lease + 1):
            yield f"{begun} came after its end: {version}"
        other = known[ids.setdefault(begun.id, begun.token)]
        if other is not version and not (other.is_lost or version.is_lost):
            yield f"{begun} has the id of another fire"
    for version in known.values():
        if version.is_sure and version.token not in fired:
            yield f"{version} is lost"
        once = version.is_sure and not version.is_moved and not history.faulty
        if once and history.ended.get(version.token, 0) > 1:
            yield f"{version} has fired more than once"


def play(seed: int) -> list[str]:
    """Run the history of *seed*; return its flaws."""
    with asyncio.Runner(loop_factory=VirtualClockEventLoop) as runner:
        return list(flaws_of(runner.run(MemoryPlay(seed).run())))


if __name__ == "__main__":
    first, count = int(sys.argv[1]), int(sys.argv[2])
    failures = 0
    for number in range(first, first + count):
        for flaw in play(number):
            failures += 1
            print(f"seed {number}: {flaw}")  # noqa: T201 - a program that prints
    print(f"{count} histories, {failures} flaws")  # noqa: T201
    sys.exit(failures > 0)
