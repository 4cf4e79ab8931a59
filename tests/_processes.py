"""A program that meets trouble of the system while deadlines are pending.

It prints one JSON object:

- "stop": the parent stops the process. The program first prints a line "armed". The object holds
  the due time and the firing time of each deadline.
- "fork": the object holds what fired in the parent and in the child.
- "clock": libfaketime sets the wall clock. The object holds how far the clock moved, and what
  fired.
- "descriptors": no file descriptor is left. The object holds what fired, and the error of making
  an event loop.
"""

import asyncio
import json
import os
import resource
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

import aiowheel

DEADLINES = 200
LAST = 2.0  # seconds


async def stop() -> None:
    """Arm deadlines for two seconds, and record when each one fires."""
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
    """Fork inside a running loop; the child runs a loop of its own with its own shared timer.

    Returns what fired in the parent, the process id of the child, and the read end of the pipe that
    the child writes to.
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
    """Run a loop, write what fired to the pipe, and exit without the parent's clean-up."""

    async def main() -> None:
        aiowheel.call_later(0.02, fired.append, "child")
        await aiowheel.sleep(0.1)

    try:
        asyncio.run(main())
        os.write(writing, json.dumps(fired).encode())
        os._exit(0)
    finally:
        os._exit(1)


async def clock() -> dict[str, object]:
    """Set the wall clock a day ahead, a day back and right again, each with pending deadlines."""
    offset = Path(os.environ["FAKETIME_TIMESTAMP_FILE"])
    steps: list[float] = []
    fired: list[tuple[float, float]] = []
    async with aiowheel.Timer() as timer:

        def note(due: float) -> None:
            fired.append((due, timer.time()))

        hour = timer.call_later(3600, note, -1.0)
        for seconds in (86_400, -86_400, 0):
            ahead = timer.time() + 0.01
            timer.call_at(ahead, note, ahead)
            before = time.time()
            offset.write_text(f"{seconds:+}\n")  # noqa: ASYNC240 - nothing else runs
            steps.append(time.time() - before)
            await timer.sleep(0.02)
        pending = len(timer)
        hour.cancel()
    return {"steps": steps, "fired": fired, "pending": pending}


async def without_descriptors() -> list[str]:
    """Open every descriptor that is left, use timers of each kind, and return what fired."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
    taken: list[int] = []
    with suppress(OSError):
        while True:
            taken.append(os.dup(1))
    fired: list[str] = []
    async with aiowheel.Timer() as timer, aiowheel.Purgatory("p", timer=timer) as purgatory:
        timer.call_later(0.001, fired.append, "timer")
        aiowheel.call_later(0.001, fired.append, "shared timer")
        thread = threading.Thread(
            target=timer.call_later_threadsafe, args=(0.001, fired.append, "thread")
        )
        thread.start()
        if not await purgatory.wait_until({"key": 1}, timeout=0.001):
            fired.append("operation")
        thread.join()
        while len(fired) < 4:
            await timer.sleep(0.001)
    for each in taken:
        os.close(each)
    return fired


def loop_without_descriptors() -> tuple[int | None, bool]:
    """Create a loop while no descriptor is left, and another one after some are free again.

    Returns the `errno` of the first attempt, and whether the second loop ran.
    """
    taken: list[int] = []
    number = None
    with suppress(OSError):
        while True:
            taken.append(os.dup(1))
    try:
        aiowheel.new_event_loop(uvloop=False)
    except OSError as error:
        number = error.errno
    for each in taken:
        os.close(each)
    return number, aiowheel.run(asyncio.sleep(0.001, True), uvloop=False)


def main() -> None:
    """Run the part that the argument names."""
    if sys.argv[1] == "stop":
        asyncio.run(stop())
        return
    if sys.argv[1] == "clock":
        print(json.dumps([asyncio.run(clock()), aiowheel.run(clock(), uvloop=False)]))
        return
    if sys.argv[1] == "descriptors":
        fired = asyncio.run(without_descriptors())
        print(json.dumps({"fired": fired, "loop": loop_without_descriptors()}))
        return
    fired, child, reading = asyncio.run(fork())
    status = os.waitpid(child, 0)[1]
    with os.fdopen(reading, encoding="utf-8") as pipe:
        print(json.dumps({"parent": fired, "child": json.load(pipe), "status": status}))


if __name__ == "__main__":
    main()
