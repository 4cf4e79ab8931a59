"""Objects dropped without closing are collected with their descriptors, and warn once.

Each count of warnings and descriptors runs in its own process, where nothing else is collected
meanwhile. Automatic collections are off while the loops are created; otherwise asyncio's sockets
may be finalized before the loop that closes them.
"""

import gc
import json
import subprocess
import sys
import weakref
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import aiowheel
from aiowheel.testing import ManualTimer
from aiowheel.wheel import TimerEntry, TimingWheel

MANY = 30

DROP_IN_A_COROUTINE = """
import asyncio, sys, uvloop
from aiowheel import Timer

async def drop(is_closed):
    timer = await Timer().__aenter__()
    if is_closed:
        await timer.aclose()

async def main():
    asyncio.get_running_loop().slow_callback_duration = 60  # a busy machine must print nothing
    for _ in range(20):
        await asyncio.create_task(drop(sys.argv[1] == "True"))

with asyncio.Runner(loop_factory=uvloop.new_event_loop, debug=True) as runner:
    runner.run(main())
print("dropped")
"""

PROGRAM = (Path(__file__).parent / "_dropped.py").read_text()


def drop(loop: str, *cases: str, count: int = MANY) -> dict[str, dict[str, object]]:
    """Drop *count* loops with each kind of pending work; return what remains, by case."""
    run = subprocess.run(
        [sys.executable, "-c", PROGRAM, loop, str(count), *cases],
        capture_output=True,
        text=True,
        check=True,
    )
    assert run.stderr == ""
    left: dict[str, dict[str, object]] = json.loads(run.stdout)
    return left


#: What is pending when the loop is dropped, and the warnings of each besides the loop's own.
CASES = {
    "handle": 0,
    "task": 0,
    "timeout": 0,
    "sleep": 0,
    "shared": 0,
    "timer": 1,
    "periodic": 0,
    "threadsafe": 0,
    "idle": 0,
    "purgatory": 0,
    "connection": 0,
}


@pytest.mark.parametrize("loop", ["wheel", "plain"])
def test_unclosed_loops_are_collected(loop: str) -> None:
    """No dropped wheel loop or asyncio loop remains, nor any descriptor; each loop warns once."""
    left = drop(loop, *CASES)

    assert left == {
        case: {
            "alive": 0,
            "descriptors": 0,
            "unclosed event loop": MANY,
            "unclosed <Timer": MANY * warnings,
        }
        for case, warnings in CASES.items()
    }


@pytest.mark.parametrize("loop", ["wheel-closed", "plain-closed", "uvloop-closed"])
def test_unclosed_timers_are_collected_once_their_loop_is_closed(loop: str) -> None:
    """Each timer has a callback that refers to it: `self.timer.call_later(60, self.expire)`."""
    if loop.startswith("uvloop"):
        pytest.importorskip("uvloop")

    left = drop(loop, "timer")["timer"]

    assert left == {
        "alive": 0,
        "descriptors": 0,
        "unclosed event loop": 0,
        "unclosed <Timer": MANY,
    }


@pytest.mark.parametrize("is_closed", [True, False], ids=["closed", "unclosed"])
def test_a_timer_that_a_returning_coroutine_drops_is_finalized_in_a_frame(
    *, is_closed: bool
) -> None:
    """In debug mode uvloop asks for the current frame, and CPython 3.12 made one of freed memory.

    The program runs in its own process, because the fault ended the process.
    """
    pytest.importorskip("uvloop")

    run = subprocess.run(
        [sys.executable, "-X", "dev", "-W", "ignore", "-c", DROP_IN_A_COROUTINE, str(is_closed)],
        capture_output=True,
        text=True,
        check=False,
    )

    assert run.stderr == ""
    assert run.stdout == "dropped\n"
    assert run.returncode == 0


def test_loops_on_uvloop_that_never_ran_are_collected() -> None:
    """A loop of uvloop itself would keep its descriptors without a warning."""
    pytest.importorskip("uvloop")

    left = drop("uvloop-wheel", "handle")["handle"]

    assert left == {
        "alive": 0,
        "descriptors": 0,
        "unclosed event loop": MANY,
        "unclosed <Timer": 0,
    }


def test_a_loop_on_uvloop_that_ran_is_kept_by_uvloop_alone() -> None:
    """An unclosed loop that has run is never freed by uvloop; a wheel loop leaks nothing more."""
    pytest.importorskip("uvloop")

    ours = drop("uvloop-wheel", "timeout", "shared", "purgatory", count=10)
    theirs = drop("uvloop", "nothing", count=10)["nothing"]["descriptors"]

    assert theirs != 0
    assert [left["descriptors"] for left in ours.values()] == [theirs] * 3


class Knot:
    """An object that refers to any other objects."""

    def __init__(self) -> None:
        self.others: list[object] = []


_SIZE = 8  # objects of a graph; the last two are wheels
_place = st.integers(0, _SIZE - 1)
_deadline = st.sampled_from([-1, 0, 1, 5, 300, 10**6, 10**15])


def make_graph(
    entries: list[tuple[int, int, int, bool]], links: list[tuple[int, int]], kept: set[int]
) -> tuple[
    dict[int, weakref.ref[Knot]],
    list[Knot | TimingWheel],
    list[tuple[int, int, TimerEntry]],
]:
    """Create the graph; return weak references to its knots, kept objects and kept entries."""
    knots = [Knot() for _ in range(_SIZE - 2)]
    wheels = [TimingWheel(1, 2), TimingWheel(1, 256)]
    objects: list[Knot | TimingWheel] = [*knots, *wheels]
    held: list[tuple[int, int, TimerEntry]] = []
    for wheel, deadline, place, holds in entries:
        entry = wheels[wheel - len(knots)].schedule(deadline, objects[place])
        if holds:
            held.append((wheel, place, entry))
    for place, other in links:
        knots[place].others.append(objects[other])
    watched = {place: weakref.ref(knot) for place, knot in enumerate(knots)}
    return watched, [objects[place] for place in kept], held


@pytest.fixture(scope="module")
def frozen() -> None:
    """Freeze the objects of earlier tests, so that 1,600 collections do not traverse them."""
    gc.collect()
    gc.freeze()


@pytest.mark.usefixtures("frozen")
@settings(max_examples=2 * settings().max_examples)
@given(
    entries=st.lists(
        st.tuples(st.integers(_SIZE - 2, _SIZE - 1), _deadline, _place, st.booleans()), max_size=12
    ),
    links=st.lists(st.tuples(st.integers(0, _SIZE - 3), _place), max_size=12),
    kept=st.sets(_place, max_size=3),
)
def test_reachable_objects_are_intact_and_others_are_freed(
    entries: list[tuple[int, int, int, bool]], links: list[tuple[int, int]], kept: set[int]
) -> None:
    """Random cycles through the entries of two wheels; the test keeps some entries alive."""
    watched, roots, held = make_graph(entries, links, kept)
    edges = {*links, *((wheel, place) for wheel, _, place, _ in entries)}
    reachable = set(kept)
    for _ in range(_SIZE):
        reachable |= {end for start, end in edges if start in reachable}

    for _ in range(_SIZE):
        gc.collect()

    alive = {place for place, reference in watched.items() if reference() is not None}
    expected = {place for place in reachable if place in watched}
    if aiowheel.accelerated:
        assert alive == expected
    else:  # an entry referenced from outside keeps its payload, and with it perhaps the wheel
        assert alive >= expected
    for root in roots:
        if isinstance(root, TimingWheel):
            root.check_invariants()
    for wheel, place, entry in held:
        if wheel in reachable:
            assert entry.pending
            assert entry.payload is not None
            if place in watched:
                assert entry.payload is watched[place]()
        elif aiowheel.accelerated:
            assert (entry.pending, entry.payload) == (False, None)


class Never(aiowheel.DelayedOperation[None]):
    """An operation whose condition is never met."""

    def try_complete(self) -> bool:
        """Return False."""
        return False


@pytest.mark.parametrize("timeout", [None, 30])
def test_a_living_timer_keeps_what_is_pending_on_it(timeout: float | None) -> None:
    """A dropped purgatory or detector is freed after its last operation or key has ended."""
    timer = ManualTimer()
    operation, detector = Never(timeout), aiowheel.IdleDetector(30, id, timer=timer)
    aiowheel.Purgatory(timer=timer).try_complete_else_watch(operation, ["k"])
    detector.touch("k")
    dropped = [weakref.ref(each) for each in (operation, detector)]

    del operation, detector
    gc.collect()
    assert [each() is None for each in dropped] == [False, False]

    timer.advance(31)
    gc.collect()
    assert [each() is None for each in dropped] == [timeout is not None, True]


def test_a_handle_that_outlives_its_unclosed_timer_is_cancelled() -> None:
    """Such a handle refers to nothing that the collector has cleared, and all its methods work."""

    class Server:
        def __init__(self) -> None:
            self.timer = ManualTimer()
            self.handle = self.timer.call_later(60, self.expire)
            self.other = self.timer.call_later(60, self.expire, self)

        def expire(self, *rest: object) -> None:
            raise AssertionError

    server = Server()
    watched = weakref.ref(server)
    handles = [server.handle, server.other]
    if not aiowheel.accelerated:
        server.timer._close_now()  # the pure handle keeps its callback, which keeps the timer
    del server
    gc.collect()
    gc.collect()

    assert watched() is None
    for handle in handles:
        assert handle.cancelled()
        assert not handle.cancel()
        assert not handle.touch()
        assert not handle.touch(5)
        assert not handle.reschedule(5)
        assert handle.get_context() is None
        assert "cancelled" in repr(handle)


def test_a_finalizer_that_raises_does_not_keep_the_others_from_running(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An exception in `__del__` of a compiled class is reported, as for classes of Python."""
    reported: list[str] = []

    def report(args: "sys.UnraisableHookArgs") -> None:
        reported.append(str(args.exc_value))

    monkeypatch.setattr(sys, "unraisablehook", report)
    freed: list[int] = []

    class Refuses:
        def __init__(self) -> None:
            self.wheel = TimingWheel()
            self.wheel.schedule(5, self)

        def __del__(self) -> None:
            freed.append(1)
            raise ValueError("no")

    for _ in range(5):
        Refuses()
    gc.collect()
    gc.collect()

    assert len(freed) == 5
    assert reported == ["no"] * 5


@pytest.mark.skipif(not aiowheel.accelerated, reason="the bound is the compiled build's")
def test_a_wheel_with_more_entries_than_the_bound_is_not_looked_through() -> None:
    """A cycle through up to 10,000 pending entries is collected; a larger one is kept."""

    def cycle(count: int) -> weakref.ref[Knot]:
        knot = Knot()
        wheel = TimingWheel()
        knot.others.append(wheel)
        for number in range(count):
            wheel.schedule(number + 1, knot)
        return weakref.ref(knot)

    small, large = cycle(10_000), cycle(10_001)
    gc.collect()
    gc.collect()

    assert small() is None
    knot = large()
    assert knot is not None
    wheel = knot.others.pop()
    assert isinstance(wheel, TimingWheel)
    wheel.clear()
