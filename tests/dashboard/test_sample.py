"""The content of one snapshot, and its bounded cost."""

import asyncio
import gc
import json
import math
import os
import platform
import socket
import weakref
from collections.abc import Hashable
from typing import Any, cast

import pytest

import aiowheel
from aiowheel import ManualTimer, Purgatory, Timer
from aiowheel.dashboard._rotation import KEYS, SHOWN, Rotation
from aiowheel.dashboard._sample import Sampler, named
from aiowheel.errors import PurgatoryClosedError, TimerClosedError

from .conftest import Unmet

pytestmark = pytest.mark.one_build


def sampled(timer: Timer, *purgatories: Purgatory) -> Sampler:
    """Return a sampler of a timer and purgatories."""
    return Sampler(timer, named(purgatories), {}, "run")


def snapshot(sampler: Sampler) -> Any:
    """Return one snapshot as a viewer gets it."""
    return json.loads(json.dumps(sampler.snapshot()), parse_constant=pytest.fail)


def test_a_snapshot_has_the_numbers_of_the_timer() -> None:
    """They are counts, the next deadline and the maximum lateness."""
    timer = ManualTimer(tick=0.01)
    for delay in (0.5, 2.0, 3.0):
        timer.call_later(delay, int)
    timer.advance(1.0)

    seen = snapshot(sampled(timer))

    assert (seen["process"]["run"], seen["tick"]) == ("run", 0.01)
    assert (seen["pending"], seen["fired"]) == (2, 1)
    assert 0 < seen["next"] <= 1.0
    assert 0 <= seen["latest"] <= 0.01


def test_a_snapshot_names_process_and_build() -> None:
    """The page shows which process and build it observes."""
    process = snapshot(sampled(ManualTimer()))["process"]

    assert process["id"] == os.getpid()
    assert process["host"] == socket.gethostname()
    assert (process["version"], process["build"]) == (
        aiowheel.__version__,
        "compiled" if aiowheel.accelerated else "pure",
    )
    assert process["python"].endswith(platform.python_version())


def test_buckets_are_shown_as_powers_of_two() -> None:
    """0 stands for none, 1 for one, 2 for two and three entries, and so on."""
    timer = ManualTimer(tick=1.0, wheel_size=8)
    for slot, count in enumerate((1, 2, 3, 7, 15, 400), start=1):
        for _ in range(count):
            timer.call_later(slot, int)

    (level,) = snapshot(sampled(timer))["levels"]

    assert level["lit"] == "01223490"
    assert (level["width"], level["hand"]) == (1.0, 0.0)


def test_the_hand_of_a_level_shows_the_time() -> None:
    """It is in seconds since the first bucket began; it may be turns ahead of an idle wheel."""
    timer = ManualTimer(tick=0.001)
    timer.call_later(3_600, int)
    timer.advance(0.3)

    finest, coarser, *_ = snapshot(sampled(timer))["levels"]

    assert finest["hand"] % 0.256 == pytest.approx(0.3 - 0.256)
    assert coarser["hand"] == pytest.approx(0.3)


def test_the_oldest_operations_have_their_conditions() -> None:
    """They have keys, thresholds, checks, age and remaining time."""
    timer = ManualTimer()
    purgatory = Purgatory("p", timer=timer)
    purgatory.advance("news", 3)
    purgatory.try_complete_else_watch(Unmet(5), [("topic", 1), ("topic", 2)])
    timer.advance(1)
    purgatory.try_complete_else_watch(Unmet(60), ["x"])
    timer.advance(1)
    purgatory.check_and_complete("x")

    (seen,) = snapshot(sampled(timer, purgatory))["purgatories"]

    first, second = seen["oldest"]
    assert (first["kind"], first["key"], first["more"]) == ("Unmet", "('topic', 1)", 1)
    assert (first["age"], first["left"], first["wants"]) == (2.0, 3.0, None)
    assert (second["key"], second["checks"]) == ("x", 3)
    assert sorted(seen["keys"]) == [["('topic', 1)", 1], ["('topic', 2)", 1], ["x", 1]]


@pytest.mark.virtual_time
async def test_a_wait_for_a_counter_has_value_and_threshold() -> None:
    """The value is that of the counter at the time of the snapshot."""
    timer = ManualTimer()
    purgatory = Purgatory("p", timer=timer)
    purgatory.advance("news", 3)
    waiting = purgatory.wait_until({"news": 5}, 30)

    (seen,) = snapshot(sampled(timer, purgatory))["purgatories"]

    (oldest,) = seen["oldest"]
    assert (oldest["kind"], oldest["value"], oldest["wants"]) == ("wait_until", "3", "5")
    assert oldest["waiters"] == 1
    assert purgatory.advance("news", 5) == 1
    assert await waiting


@pytest.mark.virtual_time
@pytest.mark.parametrize(
    ("number", "text"),
    [
        (math.inf, "inf"),
        (-math.inf, "-inf"),
        (2**53 + 1, "9007199254740993"),
        (0.5, "0.5"),
        (10**5000, "a number too long to show"),
    ],
    ids=["inf", "-inf", "beyond a double", "fraction", "endless"],
)
async def test_any_number_can_be_shown(number: float, text: str) -> None:
    """JSON has no infinity, and would fail for the whole snapshot."""
    timer = ManualTimer()
    purgatory = Purgatory("p", timer=timer)
    purgatory.advance("low", number)
    waiting = [
        purgatory.wait_until({"high": number}, 30),
        purgatory.wait_until({"low": math.inf}, 30),
    ]

    (seen,) = snapshot(sampled(timer, purgatory))["purgatories"]
    told = {each["key"]: (each["value"], each["wants"]) for each in seen["oldest"]}
    assert told["high"] == (None, text)
    assert told.get("low", (text, "inf")) == (text, "inf")
    await purgatory.aclose()
    await asyncio.wait([asyncio.ensure_future(each) for each in waiting])


@pytest.mark.virtual_time
async def test_a_key_has_one_line_for_all_its_waiters() -> None:
    """It shows the oldest operation, and the next one after its end."""
    timer = ManualTimer()
    purgatory = Purgatory("p", timer=timer)
    waiting: dict[int, asyncio.Future[bool]] = {}
    for least in (5, 9, 6, 7):
        waiting[least] = purgatory.wait_until({"news": least}, 30)
        timer.advance(1)
    sampler = sampled(timer, purgatory)

    ((first,),) = [each["oldest"] for each in snapshot(sampler)["purgatories"]]
    waiting[5].cancel()
    await asyncio.sleep(0)
    ((second,),) = [each["oldest"] for each in snapshot(sampler)["purgatories"]]

    assert (first["key"], first["waiters"], first["wants"], first["age"]) == ("news", 4, "5", 4.0)
    assert (second["waiters"], second["wants"], second["age"]) == (3, "9", 3.0)
    assert purgatory.advance("news", 10) == 3


def test_the_last_ended_operations_are_shown() -> None:
    """Each has its outcome and duration, if an earlier snapshot found it; the last ones stay."""
    timer = ManualTimer()
    purgatory = Purgatory("p", timer=timer)
    purgatory.try_complete_else_watch(Unmet(2), ["x"])
    purgatory.try_complete_else_watch(Unmet(90), ["y"])
    sampler = sampled(timer, purgatory)
    assert snapshot(sampler)["purgatories"][0]["ended"] == []

    timer.advance(3)
    seen = snapshot(sampler)["purgatories"][0]

    assert [each["key"] for each in seen["oldest"]] == ["y"]
    (ended,) = seen["ended"]
    assert (ended["key"], ended["outcome"]) == ("x", "expired")
    assert ended["took"] == pytest.approx(2, abs=0.01)
    assert snapshot(sampler)["purgatories"][0]["ended"] == [ended]


def test_purgatories_of_one_name_are_told_apart() -> None:
    """The second one gets a number."""
    timer = ManualTimer()
    seen = snapshot(sampled(timer, *(Purgatory("p", timer=timer) for _ in range(3))))

    assert [each["name"] for each in seen["purgatories"]] == ["p", "p (2)", "p (3)"]


def test_half_a_character_in_a_name_is_escaped() -> None:
    """A browser cannot send a lone surrogate, so no question would find the purgatory."""
    timer = ManualTimer()
    purgatories = [Purgatory(name, timer=timer) for name in ("caf\udce9", r"caf\udce9")]

    assert list(named(purgatories)) == [r"caf\udce9", r"caf\udce9 (2)"]


def test_nothing_is_kept_without_a_viewer() -> None:
    """Otherwise an ended operation would be kept, and later be shown as just ended."""
    timer = ManualTimer()
    purgatory = Purgatory("p", timer=timer)
    sampler = sampled(timer, purgatory)
    operation = Unmet(100)
    purgatory.try_complete_else_watch(operation, ["x"])
    snapshot(sampler)

    sampler.discard()
    timer.advance(1_000)
    gone = weakref.ref(operation)
    del operation
    gc.collect()

    assert gone() is None
    (seen,) = snapshot(sampler)["purgatories"]
    assert (seen["ended"], seen["oldest"], seen["keys"]) == ([], [], [])


def test_a_rotation_finds_the_top_keys_in_one_turn() -> None:
    """The hottest and the oldest of many keys are found."""
    timer = ManualTimer()
    purgatory = Purgatory("p", timer=timer)
    for number in range(10 * KEYS):
        purgatory.try_complete_else_watch(Unmet(100), [f"key {number}"])
    for _ in range(5):
        purgatory.try_complete_else_watch(Unmet(100), [f"key {7 * KEYS}"])
    rotation = Rotation(purgatory)

    for _ in range(11):
        rotation.snapshot()

    assert rotation.hottest()[0] == (f"key {7 * KEYS}", 6)
    assert len({each.key for each in rotation.oldest()}) == SHOWN
    assert all(each.operation.created == 0 for each in rotation.oldest())


def test_a_snapshot_examines_a_bounded_number_of_keys() -> None:
    """With ten times as many keys, no more keys are hashed."""
    asked: list[int] = []

    class Key:
        def __init__(self, number: int) -> None:
            self.number = number

        def __hash__(self) -> int:
            asked.append(self.number)
            return self.number

    counts: list[int] = []
    for keys in (KEYS * 4, KEYS * 40):
        timer = ManualTimer()
        purgatory = Purgatory("p", timer=timer)
        for number in range(keys):
            purgatory.try_complete_else_watch(Unmet(100), [Key(number)])
        rotation = Rotation(purgatory)
        asked.clear()
        for _ in range(4):
            rotation.snapshot()
        counts.append(len(asked))

    assert counts[1] <= counts[0] * 1.1


class Reads:
    """Gives access to a purgatory, and adds up the positions of keys that are passed."""

    def __init__(self, purgatory: Purgatory) -> None:
        self._purgatory = purgatory
        self.passed = 0

    def key_range(self, start: int, stop: int) -> tuple[list[Hashable], int]:
        """Return the keys of a range; the purgatory passes all positions before *stop*."""
        self.passed += stop
        return self._purgatory.key_range(start, stop)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._purgatory, name)


def test_a_round_passes_each_key_once() -> None:
    """The last snapshot of a round costs no more than the first one."""
    purgatory = Purgatory("p", timer=ManualTimer())
    for number in range(10 * KEYS):
        purgatory.try_complete_else_watch(Unmet(100), [number])
    reads = Reads(purgatory)
    rotation = Rotation(cast("Purgatory", reads))

    for _ in range(10):
        rotation.snapshot()

    assert reads.passed == 10 * KEYS


def test_a_rotation_passes_over_keys_that_lost_their_waiters() -> None:
    """Most keys of a round may have ended since it began."""
    purgatory = Purgatory("p", timer=ManualTimer())
    operations = [Unmet(100) for _ in range(5 * KEYS)]
    for number, operation in enumerate(operations):
        purgatory.try_complete_else_watch(operation, [number])
    rotation = Rotation(purgatory)
    rotation.snapshot()

    for operation in operations[:-1]:
        operation.cancel()
    rotation.snapshot()

    assert rotation.hottest() == [(5 * KEYS - 1, 1)]


@pytest.mark.parametrize("new_keys", [1, 10 * KEYS])
def test_a_rotation_soon_shows_new_keys_if_all_others_have_ended(new_keys: int) -> None:
    """A round that found no waiter, or has twice as many keys as there are, ends early."""
    purgatory = Purgatory("p", timer=ManualTimer())
    operations = [Unmet(100) for _ in range(50 * KEYS)]
    for number, operation in enumerate(operations):
        purgatory.try_complete_else_watch(operation, [("old", number)])
    rotation = Rotation(purgatory)
    rotation.snapshot()

    for operation in operations:
        operation.cancel()
    for number in range(50 * new_keys):
        purgatory.try_complete_else_watch(Unmet(100), [("new", number)])
    for _ in range(2):
        rotation.snapshot()

    assert {key[0] for key, _ in rotation.hottest() if isinstance(key, tuple)} == {"new"}


@pytest.mark.parametrize("key", ["k" * 500, ("k" * 500,), object()])
def test_a_long_key_is_shortened(key: object) -> None:
    """The text of any key fits into a column."""
    timer = ManualTimer()
    purgatory = Purgatory("p", timer=timer)
    purgatory.try_complete_else_watch(Unmet(9), [key])

    (seen,) = snapshot(sampled(timer, purgatory))["purgatories"]

    assert 0 < len(seen["oldest"][0]["key"]) < 80


def test_a_key_whose_repr_raises_is_shown_by_its_type() -> None:
    """`repr` is code of the application."""

    class Rude:
        def __repr__(self) -> str:
            raise RuntimeError("no")

    timer = ManualTimer()
    purgatory = Purgatory("p", timer=timer)
    purgatory.try_complete_else_watch(Unmet(9), [Rude()])

    (seen,) = snapshot(sampled(timer, purgatory))["purgatories"]

    assert "Rude" in seen["oldest"][0]["key"]


async def test_a_snapshot_of_a_closed_timer_or_purgatory_raises() -> None:
    """The sampler passes the error on to its caller."""
    timer = ManualTimer()
    purgatory = Purgatory("p", timer=timer)
    sampler = sampled(timer, purgatory)
    await purgatory.aclose()
    with pytest.raises(PurgatoryClosedError):
        sampler.snapshot()

    alone = sampled(timer)
    await timer.aclose()
    with pytest.raises(TimerClosedError):
        alone.snapshot()
