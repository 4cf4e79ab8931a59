"""A program whose process is stopped, or forks, while deadlines are pending.

It prints one JSON object: for "stop", a line "armed" first, then when each deadline was due and
when it fired; for "fork", what fired in the parent and in the child.
"""

import asyncio
import json
import os
import sys

import aiowheel

DEADLINES = 200
LAST = 2.0  # seconds


async def stop() -> None:
    """Arm deadlines for two seconds, and note when each one fires."""
    fired: list[tuple[float, float]] = []
    async with aiowheel.Timer() as timer:
        start = timer.time()

        def note(due: float) -> None:
            fired.append((due, timer.time()))

        for number in range(DEADLINES):
            due = start + LAST * number / DEADLINES
            timer.call_at(due, note, due)
        print("armed", flush=True)
        await timer.sleep(LAST + 0.1)
        pending = len(timer)
    print(json.dumps({"fired": fired, "pending": pending}))


async def fork() -> tuple[list[str], int, int]:
    """Fork inside a running loop; the child makes a loop of its own, and its own shared timer.

    Returns what fired in the parent, the child's number, and the pipe that it writes to.
    """
    fired: list[str] = []
    reading, writing = os.pipe()
    aiowheel.call_later(0.05, fired.append, "parent")
    async with aiowheel.Timer() as timer:
        timer.call_later(0.05, fired.append, "timer of the parent")
        child = os.fork()
        if child == 0:
            in_child(fired, writing)
        os.close(writing)
        await timer.sleep(0.1)
    return fired, child, reading


def in_child(fired: list[str], writing: int) -> None:
    """Run a loop, write what fired, and end without the parent's clean-up."""

    async def main() -> None:
        aiowheel.call_later(0.02, fired.append, "child")
        await aiowheel.sleep(0.1)

    try:
        asyncio.run(main())
        os.write(writing, json.dumps(fired).encode())
        os._exit(0)
    finally:
        os._exit(1)


def main() -> None:
    """Do what the argument says."""
    if sys.argv[1] == "stop":
        asyncio.run(stop())
        return
    fired, child, reading = asyncio.run(fork())
    status = os.waitpid(child, 0)[1]
    with os.fdopen(reading, encoding="utf-8") as pipe:
        print(json.dumps({"parent": fired, "child": json.load(pipe), "status": status}))


if __name__ == "__main__":
    main()
