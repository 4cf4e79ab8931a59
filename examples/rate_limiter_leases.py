"""A limited number of leases that expire after a time, with a queue of waiting clients.

Runs on virtual time, without waiting; `asyncio.run(main())` does the same in real time.

Prints:
    0 s: anna and boris have a lease
    5 s: carla has boris' lease, he gave it back
    10 s: dora has anna's lease, which has expired
    12 s: emil gave up
    in line: 0
"""

import asyncio

import aiowheel
from aiowheel.testing import VirtualClockEventLoop

Lease = aiowheel.TimerHandle


class Leases:
    """*size* leases of *ttl* seconds each."""

    def __init__(self, size: int, ttl: float, line: aiowheel.Purgatory) -> None:
        self.free = size
        self.ttl = ttl
        self.line = line

    async def acquire(self, patience: float) -> Lease | None:
        """Wait for a lease; return None after *patience* seconds."""
        return await self.line.watch(Acquire(self, patience), ["free"])

    def release(self, lease: Lease) -> None:
        """Give a lease back; an expired lease is ignored."""
        if lease.cancel():
            self.give_back()

    def give_back(self) -> None:
        """Pass the lease to the first operation in the queue."""
        self.free += 1
        self.line.check_and_complete("free", limit=1)


class Acquire(aiowheel.DelayedOperation[Lease | None]):
    """Waits for a free lease, and takes it."""

    def __init__(self, leases: Leases, patience: float) -> None:
        super().__init__(patience)
        self.leases = leases

    def try_complete(self) -> bool:
        """Complete if a lease is free."""
        return self.leases.free > 0

    def on_complete(self) -> Lease | None:
        """Take the lease; no other operation was checked in between."""
        if self.outcome is not aiowheel.Outcome.COMPLETED:
            return None
        self.leases.free -= 1
        return aiowheel.call_later(self.leases.ttl, self.leases.give_back)


def say(text: str) -> None:
    """Print with the time."""
    print(f"{asyncio.get_running_loop().time():.0f} s: {text}")


async def main() -> None:
    """Let five clients compete for two leases."""
    async with aiowheel.Purgatory("leases") as line:
        leases = Leases(2, ttl=10, line=line)
        anna, boris = await leases.acquire(0.1), await leases.acquire(0.1)
        assert anna
        assert boris
        say("anna and boris have a lease")
        carla, dora, emil = (asyncio.create_task(leases.acquire(each)) for each in (60, 60, 12))
        await asyncio.sleep(5)
        leases.release(boris)
        await carla
        say("carla has boris' lease, he gave it back")
        await dora
        say("dora has anna's lease, which has expired")
        assert await emil is None
        say("emil gave up")
        print("in line:", len(line))


with asyncio.Runner(loop_factory=VirtualClockEventLoop) as runner:
    runner.run(main())
