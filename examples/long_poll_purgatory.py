"""Wait for news under a key, or for the timeout: the long poll, without a task per waiter.

Prints:
    anna gets ['it rains']
    boris gets ['it rains']
    carla gets []
    still waiting: 0
"""

import asyncio
from collections import defaultdict

import aiowheel


class News(aiowheel.DelayedOperation[list[str]]):
    """Waits until a topic has more items than the reader has seen."""

    def __init__(self, topic: list[str], seen: int, timeout: float) -> None:
        super().__init__(timeout)
        self.topic = topic
        self.seen = seen

    def try_complete(self) -> bool:
        """Complete if the topic has more items."""
        return len(self.topic) > self.seen

    def on_complete(self) -> list[str]:
        """Return the new items, or none after the timeout."""
        return self.topic[self.seen :]


async def main() -> None:
    """Let three readers wait, and publish on one of two topics."""
    topics: defaultdict[str, list[str]] = defaultdict(list)
    async with aiowheel.Purgatory("news") as purgatory:

        def poll(topic: str) -> News:
            return News(topics[topic], seen=0, timeout=0.1)

        readers = {
            "anna": purgatory.watch(poll("weather"), ["weather"]),
            "boris": purgatory.watch(poll("weather"), ["weather"]),
            "carla": purgatory.watch(poll("sports"), ["sports"]),
        }
        topics["weather"].append("it rains")
        purgatory.check_and_complete("weather")
        for name, answer in readers.items():
            print(name, "gets", await answer)
        print("still waiting:", len(purgatory))


asyncio.run(main())
