"""A demonstration of the broker in three seconds: `python -m examples.broker`."""

from __future__ import annotations

import asyncio
from time import monotonic

import aiowheel
from examples.broker.broker import Broker
from examples.broker.client import Client
from examples.broker.server import serving

START = monotonic()


def tell(text: str) -> None:
    """Print with the elapsed time."""
    print(f"{monotonic() - START:5.2f} s  {text}")


async def follow(port: int, name: str) -> None:
    """Copy the partition in a loop, as a follower does."""
    copied = 0
    async with Client(port) as client:
        while True:
            got = await client.call("copy", follower=name, offsets={"orders": copied}, max_wait=5)
            copied += len(got["orders"])


async def produce_and_fetch(port: int) -> None:
    """Show acks=all with a late follower, and a long poll that waits for `min_bytes`."""
    async with Client(port) as producer, Client(port) as consumer:
        poll = asyncio.create_task(
            consumer.call("fetch", offsets={"orders": 0}, min_bytes=8, max_wait=5)
        )
        first = asyncio.create_task(producer.call("produce", batches={"orders": ["apple"]}))
        await asyncio.sleep(0.3)
        tell(f"no follower yet: produced {first.done()}, fetched {poll.done()}")

        following = asyncio.create_task(follow(port, "follower"))
        tell(f"a follower came: produce answers {await first}")
        await producer.call("produce", batches={"orders": ["banana"]})
        tell(f"8 bytes are committed: fetch answers {await poll}")

        following.cancel()
        await asyncio.wait([following])
        late = await producer.call("produce", batches={"orders": ["cherry"]}, timeout=0.4)
        tell(f"the follower is gone: produce answers {late}")


async def rebalance(port: int) -> None:
    """Let two consumers join a group; then one stops and is removed from the group."""
    async with Client(port) as ada, Client(port) as bob:
        tell(f"ada joins: {await ada.call('join', name='group', member='ada')}")
        joining = asyncio.create_task(bob.call("join", name="group", member="bob"))
        await asyncio.sleep(0.2)
        beat = await ada.call("heartbeat", name="group", member="ada")
        tell(f"bob wants to join; ada's heartbeat says {beat['error']}")
        await ada.call("join", name="group", member="ada")
        tell(f"ada joined again, and so bob: {await joining}")

        joining = asyncio.create_task(bob.call("join", name="group", member="bob"))
        tell(f"bob joins again, ada does not in time: {await joining}")


async def main() -> None:
    """Serve, and run the clients in the same process."""
    async with aiowheel.Timer() as timer:
        broker = Broker(timer, ["orders"], ["follower"], rebalance_timeout=0.5, session_timeout=5)
        async with serving(broker) as port:
            await produce_and_fetch(port)
            await rebalance(port)
        tell(f"{len(timer)} timeouts and {broker.fetches.watched} watchers are left")


if __name__ == "__main__":
    asyncio.run(main())
