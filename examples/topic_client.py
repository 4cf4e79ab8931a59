"""Subscribe to a topic of `aiowheel serve`, which is killed meanwhile and started again.

The subscription continues by itself. The service keeps its topics in memory, so the client gets
a message that reports the new start of the topic. Needs the extras `cli`, `client`,
`metrics` and `web`.

Prints:
    got 'first'
    got 'second'
    the service was killed
    got 'third', of a topic that began anew
"""

import asyncio
import re
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import aclosing

from aiowheel.client import Message, TopicClient


def started(port: int) -> tuple[subprocess.Popen[str], int]:
    """Start `aiowheel serve` in a process of its own; returns it and its port."""
    command = [sys.executable, "-m", "aiowheel", "serve", "--port", str(port)]
    service = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)  # noqa: S603 - our own
    assert service.stdout is not None
    found = re.search(r":(\d+)/topics/", service.stdout.readline())
    if found is None:
        sys.exit("aiowheel serve did not start")
    return service, int(found[1])


async def show_next(messages: AsyncIterator[Message]) -> None:
    """Print the next message, and whether the topic was lost before it."""
    message = await anext(messages)
    print(f"got {message.data!r}" + (", of a topic that began anew" if message.reset else ""))


async def main() -> None:
    """Publish and subscribe in one task, for brevity."""
    service, port = started(0)
    try:
        async with (
            TopicClient(f"http://127.0.0.1:{port}") as client,
            aclosing(client.subscribe("news")) as messages,
        ):
            for data in ("first", "second"):
                await client.publish("news", data)
                await show_next(messages)
            async with asyncio.TaskGroup() as group:
                group.create_task(show_next(messages))
                await asyncio.sleep(0.1)  # the subscription polls meanwhile
                service.kill()
                service.communicate()
                print("the service was killed")
                service, _ = started(port)
                await client.publish("news", "third")
    finally:
        with service:  # waits for its end
            service.kill()


asyncio.run(main())
