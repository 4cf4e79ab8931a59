"""Program of test_collector.py: create loops with pending work, drop them, count what remains.

Arguments: the kind of loop, the number of loops, the names of the cases.
"""

import asyncio
import gc
import json
import logging
import sys
import warnings
import weakref
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import aiowheel
from aiowheel.integrations._connection_watch import ConnectionWatch
from aiowheel.loop import new_event_loop

Loop = asyncio.AbstractEventLoop


class Owner:
    """Own what a case creates; the callbacks of the case refer back to the owner."""

    def __init__(self) -> None:
        self.kept: list[object] = []

    def call(self, *rest: object) -> None:
        """Do nothing; every callback of a case calls this method."""


class Never(aiowheel.DelayedOperation[None]):
    """An operation that never completes and refers to its purgatory."""

    def __init__(self, owner: Owner) -> None:
        super().__init__(3600)
        self.owner = owner

    def try_complete(self) -> bool:
        return False


class Key:
    """A key that refers to its owner."""

    def __init__(self, owner: Owner) -> None:
        self.owner = owner


def handle(loop: Loop, owner: Owner) -> None:
    loop.call_later(3600, owner.call, loop)


def nothing(loop: Loop, owner: Owner) -> None:
    loop.run_until_complete(asyncio.sleep(0))


def task(loop: Loop, owner: Owner) -> None:
    begin(loop, owner, asyncio.sleep)


def sleep(loop: Loop, owner: Owner) -> None:
    begin(loop, owner, aiowheel.sleep)


def timeout(loop: Loop, owner: Owner) -> None:
    async def waits(delay: float) -> None:
        async with aiowheel.timeout(delay):
            await loop.create_future()

    begin(loop, owner, waits)


def begin(loop: Loop, owner: Owner, wait: Callable[[float], object]) -> None:
    async def main() -> None:
        owner.kept.append(loop)
        await wait(3600)  # type: ignore[misc]

    owner.kept.append(loop.create_task(main()))
    loop.run_until_complete(asyncio.sleep(0))


def on_loop(arm: Callable[[Owner], None]) -> Callable[[Loop, Owner], None]:
    def case(loop: Loop, owner: Owner) -> None:
        async def main() -> None:
            owner.kept.append(loop)
            arm(owner)
            await asyncio.sleep(0)

        loop.run_until_complete(main())

    return case


def arm_shared(owner: Owner) -> None:
    owner.kept.append(aiowheel.call_later(3600, owner.call))
    aiowheel.call_later(3600, owner.call, owner)


def arm_periodic(owner: Owner) -> None:
    owner.kept.append(aiowheel.every(3600, owner.call))
    aiowheel.every(0.001, owner.call, owner)


def arm_threadsafe(owner: Owner) -> None:
    timer = aiowheel.current_timer()
    owner.kept.append(timer.call_later_threadsafe(3600, owner.call))
    # The loop is dropped while the second call is still in the inbox.
    asyncio.get_running_loop().call_soon(timer.call_later_threadsafe, 3600, owner.call)


def arm_idle(owner: Owner) -> None:
    detector = aiowheel.IdleDetector(3600, owner.call)
    owner.kept.append(detector)
    for key in (1, "two", Key(owner)):
        detector.touch(key)


def arm_purgatory(owner: Owner) -> None:
    purgatory = aiowheel.Purgatory("fetch")
    owner.kept.append(purgatory)
    for _ in range(3):
        operation = Never(owner)
        purgatory.watch(operation, ["topic", Key(owner), (1, 2)])
        owner.kept.append(operation)
    purgatory.wait_until({"offset": 5, "version": 3}, timeout=3600)


def arm_connection(owner: Owner) -> None:
    owner.kept.append(ConnectionWatch(owner.call, idle=3600, total=7200))


def timer(loop: Loop, owner: Owner) -> None:
    async def main() -> None:
        mine = aiowheel.Timer()
        owner.kept.append(await mine.__aenter__())
        owner.kept.append(mine.call_later(3600, owner.call))
        mine.call_later(3600, owner.call, mine)

    loop.run_until_complete(main())


CASES = {
    "handle": handle,
    "nothing": nothing,
    "task": task,
    "sleep": sleep,
    "timeout": timeout,
    "timer": timer,
    "shared": on_loop(arm_shared),
    "periodic": on_loop(arm_periodic),
    "threadsafe": on_loop(arm_threadsafe),
    "idle": on_loop(arm_idle),
    "purgatory": on_loop(arm_purgatory),
    "connection": on_loop(arm_connection),
}


def make_loop(kind: str) -> Loop:
    if kind.startswith("uvloop"):
        import uvloop

        return new_event_loop(uvloop=True) if kind == "uvloop-wheel" else uvloop.Loop()
    return new_event_loop(uvloop=False) if kind.startswith("wheel") else asyncio.SelectorEventLoop()


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def drop(case: Callable[[Loop, Owner], None], kind: str, count: int) -> dict[str, int]:
    """Create *count* loops, drop them, and count the remaining objects and the warnings."""
    said: Counter[str] = Counter()

    def count_warning(message: object, *rest: object) -> None:
        said.update(
            text for text in ("unclosed event loop", "unclosed <Timer") if text in str(message)
        )

    warnings.showwarning = count_warning  # type: ignore[assignment]
    before = descriptors()
    gc.disable()
    watched: list[weakref.ref[Owner] | weakref.ref[Loop]] = []
    for _ in range(count):
        owner = Owner()
        loop = make_loop(kind)
        case(loop, owner)
        if kind.endswith("closed"):
            loop.close()
        watched += [weakref.ref(owner), weakref.ref(loop)]
        del loop, owner
    for _ in range(4):
        gc.collect()
    return {
        "alive": sum(reference() is not None for reference in watched),
        "descriptors": descriptors() - before,
        "unclosed event loop": said["unclosed event loop"],
        "unclosed <Timer": said["unclosed <Timer"],
    }


def main() -> None:
    kind, count, *cases = sys.argv[1:]
    warnings.simplefilter("always")
    logging.disable()  # asyncio logs pending tasks
    first = make_loop(kind)  # uvloop opens two descriptors for the whole process
    first.close()
    gc.collect()
    print(json.dumps({case: drop(CASES[case], kind, int(count)) for case in cases}))


main()
