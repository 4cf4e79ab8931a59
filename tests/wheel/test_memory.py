"""What the wheel keeps alive, and for how long."""

import gc
import os
import subprocess
import sys
import weakref
from collections.abc import Callable

import psutil
import pytest

import aiowheel
from aiowheel.wheel import TimerEntry, TimingWheel

MILLION = 1_000_000


class Payload:
    """An object that a weak reference can watch."""


def schedule_watched(wheel: TimingWheel, deadline: int) -> list[weakref.ref[Payload]]:
    """Schedule ten payloads to which only the wheel refers."""
    payloads = [Payload() for _ in range(10)]
    for payload in payloads:
        wheel.schedule(deadline, payload)
    return [weakref.ref(payload) for payload in payloads]


DROP_A_CHAIN = """
import aiowheel

class Link:
    __slots__ = ("kept", "rest")

def chain(keep):
    link = None
    for _ in range(300):
        before, link = link, Link()
        link.kept, link.rest = keep(), before
    return link

wheel = aiowheel.TimingWheel()
timer = aiowheel.testing.ManualTimer()
for _ in range(20):
    for keep in (lambda: wheel.schedule(wheel.now + 5), lambda: timer.call_later(5, print)):
        links = chain(keep)
        wheel.advance(wheel.now + 10)
        timer.advance(10)
        del links
print("dropped")
"""

DROP_LONG_CHAINS = """
import asyncio
import aiowheel
from aiowheel.wheel import TimingWheel

LENGTH = 100_000 if aiowheel.accelerated else 20_000
KINDS = {
    "entries": lambda before: wheel.schedule(wheel.now + 1, before),
    "in lists": lambda before: [wheel.schedule(wheel.now + 1, (before,))],
    "in closures": lambda before: wheel.schedule(wheel.now + 1, lambda: before),
    "handles": lambda before: timer.call_later(3600, print, before),
    "bound methods": lambda before: timer.call_later(3600, Box(before).open),
}

class Box:
    def __init__(self, kept):
        self.kept = kept

    def __del__(self):
        Box.gone += 1

    def open(self):
        pass

class Never(aiowheel.DelayedOperation):
    def try_complete(self):
        return False

for name, link in KINDS.items():
    wheel = TimingWheel()
    timer = aiowheel.testing.ManualTimer()
    chain = None
    Box.gone = 0
    for number in range(LENGTH):
        chain = link(chain)
    due = wheel.advance(wheel.now + 2)
    due.clear()
    timer = chain = None
    assert name != "bound methods" or Box.gone == LENGTH, Box.gone
    print(name, flush=True)

async def drop_a_purgatory():
    purgatory = aiowheel.Purgatory("fetch")
    purgatory.watch(Never(3600), list(range(LENGTH)))

asyncio.run(drop_a_purgatory())
print("dropped")
"""


@pytest.mark.slow
def test_a_long_chain_of_entries_is_freed_without_recursion() -> None:
    """A hundred thousand entries or handles, each of which refers to the next one.

    On the pure build CPython itself frees them, and a fifth of them is enough.
    """
    run = run_alone(DROP_LONG_CHAINS)

    assert run.stderr == ""
    assert run.stdout.splitlines()[-1] == "dropped"
    assert run.returncode == 0


FREE_AND_SCHEDULE = """
import threading
from aiowheel.wheel import TimingWheel

class Rearms:
    def __init__(self, key):
        self.key = key

    def __del__(self):
        switch.wait(0.0001)  # lets the other threads run
        made.append((self.key, wheel.schedule(wheel.now + 5, (self.key,)), wheel))

def churn():
    global wheel
    for number in range(60):
        mine = TimingWheel()
        chain = None
        for _ in range(70):
            chain = mine.schedule(1, [chain, Rearms(number)])
        mine.advance(2)
        chain = None

switch = threading.Event()
wheel = TimingWheel()
made = []
threads = [threading.Thread(target=churn) for _ in range(3)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
assert len(made) == len(wheel) == 3 * 60 * 70, (len(made), len(wheel))
assert all(entry.payload == (key,) and entry.pending for key, entry, _ in made)
wheel.check_invariants()
print("dropped")
"""


@pytest.mark.slow
def test_entries_made_in_a_finalizer_are_intact_while_threads_switch() -> None:
    """A `__del__` during a deallocation creates entries of its own, in three threads."""
    run = run_alone(FREE_AND_SCHEDULE)

    assert run.stderr == ""
    assert run.stdout.splitlines()[-1] == "dropped"
    assert run.returncode == 0


def run_alone(program: str) -> subprocess.CompletedProcess[str]:
    """Run *program* in a process whose allocator checks the memory that it returns."""
    return subprocess.run(
        [sys.executable, "-c", f"import aiowheel.testing\n{program}"],
        env={**os.environ, "PYTHONMALLOC": "debug"},
        capture_output=True,
        text=True,
        check=False,
    )


def test_entries_deep_in_a_chain_of_objects_are_freed() -> None:
    """Beyond a depth of 50, CPython postpones freeing objects of its collector, but not entries.

    The program runs in its own process, because the fault would overwrite memory.
    """
    run = run_alone(DROP_A_CHAIN)

    assert run.stderr == ""
    assert run.stdout.splitlines()[-1] == "dropped"
    assert run.returncode == 0


@pytest.mark.usefixtures("no_gc")
def test_cancelling_drops_the_payload_at_once() -> None:
    """The payload is freed while the entry itself is referenced."""
    wheel = TimingWheel()
    payload = Payload()
    watched = weakref.ref(payload)
    entry = wheel.schedule(10**6, payload)
    del payload

    assert watched() is not None
    entry.cancel()

    assert watched() is None


@pytest.mark.usefixtures("no_gc")
def test_the_wheel_keeps_no_reference_to_an_expired_entry() -> None:
    """The wheel drops its reference when it returns the entry."""
    wheel = TimingWheel(wheel_size=4)
    payload = Payload()
    watched = weakref.ref(payload)
    wheel.schedule(1000, payload)
    del payload

    due = wheel.advance(1000)
    assert watched() is not None
    due.clear()

    assert watched() is None


@pytest.mark.usefixtures("no_gc")
@pytest.mark.parametrize("deadline", [-1, 0, 5, 300, 10**9])
def test_dropping_the_wheel_frees_everything(deadline: int) -> None:
    """This holds for entries on every level and for overdue ones."""
    wheel = TimingWheel()
    watched = schedule_watched(wheel, deadline)

    del wheel

    assert not any(reference() for reference in watched)


@pytest.mark.usefixtures("no_gc")
def test_dropping_the_wheel_inside_a_pass_frees_entries_not_popped() -> None:
    """The entries taken off the levels hang in a ring as well."""
    wheel = TimingWheel()
    watched = schedule_watched(wheel, 5)
    wheel.open_pass(10)
    wheel.pop_due()

    del wheel

    assert not any(reference() for reference in watched)


@pytest.mark.usefixtures("no_gc")
def test_an_entry_that_outlives_its_wheel_keeps_no_neighbour() -> None:
    """The entry reports that it was cancelled, and keeps nothing else of the wheel alive."""
    wheel = TimingWheel()
    kept = wheel.schedule(100, "kept")
    payload = Payload()
    watched = weakref.ref(payload)
    wheel.schedule(100, payload)
    del payload, wheel

    assert watched() is None
    assert kept.payload is None
    assert not kept.pending
    assert not kept.cancel()


@pytest.mark.skipif(aiowheel.accelerated, reason="compiled entries cannot be subclassed")
def test_an_entry_that_fails_to_drop_its_references_does_not_stop_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A dropped wheel reports the error of one entry after it has dropped all entries."""

    class Stubborn(TimerEntry):
        def drop(self) -> None:
            raise RuntimeError("stubborn")

    reported: list[BaseException | None] = []

    def report(failure: "sys.UnraisableHookArgs") -> None:
        reported.append(failure.exc_value)

    monkeypatch.setattr(sys, "unraisablehook", report)
    wheel = TimingWheel()
    stubborn, other = Stubborn(5, None), wheel.schedule(6, "kept")
    wheel.arm(stubborn, 0)

    del wheel

    assert [repr(error) for error in reported] == ["RuntimeError('stubborn')"]
    assert not stubborn.pending
    assert other.payload is None


def test_an_entry_that_was_used_again_is_not_the_old_one() -> None:
    """A stale reference to a cancelled entry never affects another, though memory is reused."""
    wheel = TimingWheel()
    stale = wheel.schedule(5, "stale")
    stale.cancel()
    fresh = [wheel.schedule(5, number) for number in range(100)]

    assert not stale.cancel()
    assert all(entry.pending for entry in fresh)
    assert wheel.advance(5) == fresh


def fill(wheel: TimingWheel, entries: list[TimerEntry | None]) -> None:
    """Schedule a million deadlines within a minute, into an existing list, which is not counted."""
    for number in range(MILLION):
        entries[number] = wheel.schedule(number * 60_000 + 1)


def resident() -> int:
    """Return the resident memory of the process in bytes."""
    return psutil.Process().memory_info().rss


@pytest.mark.slow
@pytest.mark.skipif(not aiowheel.accelerated, reason="the bound is the compiled build's")
@pytest.mark.parametrize("end", ["cancel", "drop", "expire"])
def test_a_million_entries_cost_120_bytes_each_and_give_them_back(end: str) -> None:
    """Entries end cancelled, dropped with their wheel or expired; memory returns without collector.

    The limits leave room for the allocator; half of the memory left over would be a leak.
    """
    entries: list[TimerEntry | None] = [None] * MILLION
    gc.collect()
    wheel = TimingWheel(1_000_000, 256, 0)
    before = resident()

    fill(wheel, entries)
    full = resident()
    assert full - before <= 120 * MILLION

    if end == "cancel":
        assert all(entry is not None and entry.cancel() for entry in entries)
    elif end == "drop":
        del wheel
    else:
        assert len(wheel.advance(61 * 10**9)) == MILLION
    entries.clear()
    left = resident() - before

    assert left <= 30 * MILLION


@pytest.mark.slow
def test_a_million_cancelled_entries_leave_no_object_behind() -> None:
    """This holds for both builds: the test counts payloads while the wheel is alive."""
    alive = 0

    class Counted:
        def __init__(self) -> None:
            nonlocal alive
            alive += 1

        def __del__(self) -> None:
            nonlocal alive
            alive -= 1

    wheel = TimingWheel()
    entries = [wheel.schedule(number % 20_000 + 1, Counted()) for number in range(MILLION // 25)]
    assert alive == MILLION // 25

    for entry in entries:
        entry.cancel()

    assert alive == 0
    assert len(wheel) == 0
    assert wheel.next_expiration() is None


REFUSALS: dict[str, Callable[[int], object]] = {
    "schedule": lambda far: TimingWheel().schedule(far),
    "advance": lambda far: TimingWheel().advance(far),
    "advance back": lambda far: TimingWheel().advance(-far),
    "start": lambda far: TimingWheel(start=far),
}


@pytest.mark.parametrize("refuse", REFUSALS.values(), ids=REFUSALS)
def test_a_refused_integer_is_released(refuse: Callable[[int], object]) -> None:
    """The caller's reference is the only one after the error."""
    far = 2**70
    before = sys.getrefcount(far)

    for _ in range(10):
        with pytest.raises((OverflowError, ValueError)):
            refuse(far)

    assert sys.getrefcount(far) == before
