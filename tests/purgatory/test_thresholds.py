"""Waiting for counters: `wait_until` and `advance`, which costs only the completed waiters."""

import asyncio
import math
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from itertools import product
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiowheel import ManualTimer, Outcome, Purgatory, PurgatoryFullError
from aiowheel._types import Mode
from aiowheel.purgatory._counters import Counter, ThresholdOperation
from tests._keys import HookedKey

pytestmark = pytest.mark.both_loops


def future(waiting: Awaitable[bool]) -> "asyncio.Future[bool]":
    """Return the future that `wait_until` returned."""
    return cast("asyncio.Future[bool]", waiting)


def done(*waiting: Awaitable[bool]) -> list[bool]:
    """Return which of the futures are done."""
    return [future(each).done() for each in waiting]


async def test_waiters_complete_as_the_counter_passes_their_thresholds(
    purgatory: Purgatory,
) -> None:
    """For thresholds 3, 1 and 5 the values 1 to 5 complete 1, 0, 1, 0 and 1 waiters."""
    three, one, five = (purgatory.wait_until({"k": least}, 30) for least in (3, 1, 5))

    assert [purgatory.advance("k", value) for value in range(1, 6)] == [1, 0, 1, 0, 1]
    assert (await three, await one, await five) == (True, True, True)


async def test_waiters_expire_in_the_order_of_their_deadlines(
    purgatory: Purgatory, timer: ManualTimer
) -> None:
    """With timeouts of 50, 100 and 200 ms the number of waiters falls one by one."""
    waiting = [purgatory.wait_until({"k": 1}, seconds) for seconds in (0.05, 0.2, 0.1)]

    seen: list[tuple[int, list[bool]]] = []
    for _ in range(4):
        timer.advance(0.05)
        seen.append((len(purgatory), done(*waiting)))

    assert seen == [
        (2, [True, False, False]),
        (1, [True, False, True]),
        (1, [True, False, True]),
        (0, [True, True, True]),
    ]
    assert [await each for each in waiting] == [False] * 3
    assert purgatory.watched == 0


async def test_a_value_reached_already_completes_at_once(purgatory: Purgatory) -> None:
    """Nothing stays registered; a counter keeps its value without any waiter."""
    assert purgatory.advance("k", 10) == 0

    waiting = purgatory.wait_until({"k": 10}, 30)

    assert done(waiting) == [True]
    assert await waiting
    assert (len(purgatory), purgatory.watched) == (0, 0)


async def test_a_smaller_value_is_ignored(purgatory: Purgatory) -> None:
    """A counter never decreases."""
    purgatory.advance("k", 10)

    assert purgatory.advance("k", 3) == 0
    assert purgatory.advance("k", 10) == 0
    assert await purgatory.wait_until({"k": 9}, 30)


async def test_all_means_every_key(purgatory: Purgatory) -> None:
    """The keys may arrive in any order; the last one completes the waiter."""
    waiting = purgatory.wait_until({"a": 5, "b": 3}, 30)
    (operation,) = purgatory.pending()

    assert purgatory.advance("a", 6) == 0
    assert purgatory.watched == 1
    assert purgatory.advance("b", 2) == 0
    assert purgatory.advance("b", 3) == 1

    assert await waiting
    assert (operation.completed_by, operation.outcome) == ("b", Outcome.COMPLETED)


async def test_any_means_the_first_key(purgatory: Purgatory) -> None:
    """The waiter leaves the other keys at once."""
    waiting = purgatory.wait_until({"a": 5, "b": 3}, 30, mode="any")
    (operation,) = purgatory.pending()

    assert purgatory.advance("b", 3) == 1

    assert await waiting
    assert operation.completed_by == "b"
    assert (purgatory.watched, purgatory.top_keys()) == (0, [])
    assert purgatory.advance("a", 5) == 0


async def test_keys_reached_before_count(purgatory: Purgatory) -> None:
    """`all` waits only for the remaining keys, `any` completes at once."""
    purgatory.advance("a", 5)

    rest = purgatory.wait_until({"a": 5, "b": 3}, 30)
    assert purgatory.watched == 1
    assert await purgatory.wait_until({"a": 5, "b": 3}, 30, mode="any")
    assert purgatory.advance("b", 3) == 1
    assert await rest


async def test_equal_thresholds_complete_first_come_first_served(purgatory: Purgatory) -> None:
    """Lower thresholds complete before; an int and a float of the same value are equal."""
    order: list[str] = []
    for name, least in (("c", 2), ("a", 1), ("d", 2.0), ("b", 1.0), ("e", 2)):
        waiting = future(purgatory.wait_until({"k": least}, 30))
        waiting.add_done_callback(lambda _, name=name: order.append(name))  # type: ignore[misc]

    assert purgatory.advance("k", 2) == 5
    await asyncio.sleep(0)

    assert order == ["a", "b", "c", "d", "e"]


async def test_integers_beyond_floats_are_exact(purgatory: Purgatory) -> None:
    """2**53 + 1 differs from 2**53, and 10**30 + 1 from 10**30, though their floats are equal."""
    far = purgatory.wait_until({"float": 2**53 + 1}, 30)
    assert purgatory.advance("float", 2.0**53) == 0
    assert purgatory.advance("float", 2.0**53 + 2) == 1
    assert await far
    for least in (2**53 + 1, 10**30 + 1):
        waiting = purgatory.wait_until({least: least}, 30)
        assert purgatory.advance(least, least - 1) == 0
        assert purgatory.advance(least, least) == 1
        assert await waiting


async def test_infinity_is_a_threshold_like_any_other(purgatory: Purgatory) -> None:
    """Only infinity reaches an infinite threshold; any value reaches minus infinity."""
    high = purgatory.wait_until({"k": math.inf}, 30)
    low = purgatory.wait_until({"k": -math.inf}, 30)

    assert purgatory.advance("k", -5) == 1
    assert done(low, high) == [True, False]
    assert purgatory.advance("k", 10**400) == 0
    assert purgatory.advance("k", math.inf) == 1


@pytest.mark.parametrize(
    ("thresholds", "options", "error", "text"),
    [
        ({}, {}, ValueError, "thresholds must name at least one key"),
        ({"k": math.nan}, {}, ValueError, "threshold must be a number other than NaN, got nan"),
        ({"k": True}, {}, TypeError, "got True"),
        ({"k": "5"}, {}, TypeError, "threshold must be .* got '5'"),
        ({"k": None}, {}, TypeError, "int.*float"),
        ({"k": 1}, {"mode": "some"}, ValueError, "mode must be one of 'all', 'any', got 'some'"),
        ({"k": 1}, {"mode": "ALL"}, ValueError, "mode must be one of 'all', 'any', got 'ALL'"),
        ({"k": 1}, {"mode": "an"}, ValueError, "mode must be one of 'all', 'any', got 'an'"),
        ({"k": 1}, {"timeout": math.nan}, ValueError, "timeout must be a number .* other than NaN"),
    ],
)
async def test_bad_arguments_are_refused_without_a_trace(
    purgatory: Purgatory,
    timer: ManualTimer,
    thresholds: Mapping[str, int],
    options: dict[str, Any],
    error: type[Exception],
    text: str,
) -> None:
    """The error text has the value and the legal range."""
    with pytest.raises(error, match=text):
        purgatory.wait_until(thresholds, options.get("timeout", 30), options.get("mode", "all"))

    assert (len(purgatory), purgatory.watched, len(timer)) == (0, 0, 0)


@pytest.mark.parametrize(
    ("value", "error", "text"),
    [
        (math.nan, ValueError, "value must be a number other than NaN, got nan"),
        ("7", TypeError, "int.*float"),
        (False, TypeError, "got False"),
    ],
)
async def test_a_bad_value_is_refused(
    purgatory: Purgatory, value: int, error: type[Exception], text: str
) -> None:
    """The counter is unchanged."""
    with pytest.raises(error, match=text):
        purgatory.advance("k", value)

    assert not purgatory.forget("k")


async def test_forget_drops_the_value_and_no_waiter(purgatory: Purgatory) -> None:
    """Waiters continue to wait; the counter may then begin again with a lower value."""
    purgatory.advance("k", 10)
    waiting = purgatory.wait_until({"k": 20}, 30)

    assert purgatory.forget("k")
    assert not purgatory.forget("k")
    assert not purgatory.forget("unknown")

    low = purgatory.wait_until({"k": 5}, 30)
    assert purgatory.advance("k", 5) == 1
    assert done(waiting, low) == [False, True]
    assert purgatory.advance("k", 20) == 1


async def test_forget_with_an_error_ends_the_waiters(purgatory: Purgatory) -> None:
    """Each waiter gets its own error; waiters of other counters and later values are unaffected."""
    purgatory.advance("k", 10)
    waiting = [purgatory.wait_until({"k": 20 + number}, 30) for number in range(3)]
    both = purgatory.wait_until({"k": 20, "other": 1}, 30, mode="any")
    other = purgatory.wait_until({"other": 1}, 30)

    assert purgatory.forget("k", error=lambda: LookupError("gone"))

    errors = await asyncio.gather(*waiting, both, return_exceptions=True)
    assert {str(each) for each in errors} == {"gone"}
    assert len({id(each) for each in errors}) == 4
    assert not future(other).done()
    assert (purgatory.watched, purgatory.statistics().cancelled) == (1, 4)
    assert not purgatory.forget("k", error=LookupError)
    assert purgatory.advance("other", 1) == 1


async def test_forget_spares_a_waiter_that_the_error_function_ends(purgatory: Purgatory) -> None:
    """That waiter has the result of its own end."""
    first, second = (purgatory.wait_until({"k": number}, 30) for number in (1, 2))
    operations = list(purgatory.pending("k"))

    def error() -> Exception:
        operations[1].force_complete()
        return LookupError("gone")

    assert not purgatory.forget("k", error=error)

    with pytest.raises(LookupError, match="gone"):
        await first
    assert await second
    assert (purgatory.watched, purgatory.statistics().cancelled) == (0, 1)


async def test_the_error_function_of_forget_may_end_its_own_waiter(purgatory: Purgatory) -> None:
    """The waiter ends once."""
    waiter = purgatory.wait_until({"k": 1}, 5)

    def error() -> Exception:
        waiter.cancel()
        purgatory.cancel_for_key("k")
        return LookupError("gone")

    assert not purgatory.forget("k", error=error)

    assert waiter.cancelled()
    assert purgatory.statistics().cancelled == 1


@pytest.mark.parametrize(
    ("wrong", "shown"),
    [
        ("gone", "'gone'"),
        (LookupError, "<class 'LookupError'>"),
        (StopIteration(3), r"StopIteration\(3\)"),
        (KeyboardInterrupt(), r"KeyboardInterrupt\(\)"),
    ],
)
async def test_forget_refuses_what_no_awaiter_can_raise(
    purgatory: Purgatory, wrong: Any, shown: str
) -> None:
    """If one of the results is wrong, the counter keeps its value and every waiter waits."""
    purgatory.advance("k", 10)
    waiting = [purgatory.wait_until({"k": 20}, 30) for _ in range(3)]
    results = [LookupError("gone"), wrong, LookupError("gone")]

    with pytest.raises(
        TypeError, match=rf"^error must return an Exception other than StopIteration, got {shown}$"
    ):
        purgatory.forget("k", error=lambda: cast(Exception, results.pop(0)))

    assert (purgatory.value("k"), len(purgatory), done(*waiting)) == (10, 3, [False] * 3)
    assert purgatory.advance("k", 20) == 3
    assert await asyncio.gather(*waiting) == [True] * 3


async def test_an_error_function_that_raises_forgets_nothing(purgatory: Purgatory) -> None:
    """The counter keeps its value and every waiter waits."""
    purgatory.advance("k", 10)
    waiting = [purgatory.wait_until({"k": 20}, 30) for _ in range(2)]
    results = [LookupError("gone")]

    with pytest.raises(IndexError):
        purgatory.forget("k", error=results.pop)

    assert (purgatory.value("k"), len(purgatory), done(*waiting)) == (10, 2, [False] * 2)


async def test_forget_refuses_an_error_that_cannot_be_called(purgatory: Purgatory) -> None:
    """The counter keeps its value."""
    purgatory.advance("k", 10)
    wrong: Any = LookupError("gone")

    with pytest.raises(TypeError, match=r"error must be a callable, got LookupError\('gone'\)"):
        purgatory.forget("k", error=wrong)

    assert purgatory.value("k") == 10


async def test_counters_without_value_or_waiters_are_forgotten(
    purgatory: Purgatory, timer: ManualTimer
) -> None:
    """They go after completion by another key, a timeout and a cancellation."""
    by_other = purgatory.wait_until({"a": 1, "b": 1}, 30, mode="any")
    expired = purgatory.wait_until({"c": 1}, 1)
    cancelled = future(purgatory.wait_until({"d": 1}, 30))
    purgatory.advance("a", 1)
    timer.advance(1)
    cancelled.cancel()
    await asyncio.sleep(0)

    assert (await by_other, await expired) == (True, False)
    assert set(purgatory._counters.by_key) == {"a"}
    assert purgatory.forget("a")
    assert purgatory._counters.by_key == {}


async def test_waiters_of_counters_count_without_conditions(purgatory: Purgatory) -> None:
    """A wait counts once for each counter that it still waits for."""
    condition = purgatory.wait_for(lambda: False, ["a"], 30)
    both = purgatory.wait_until({"a": 1, "b": 2}, 30)
    one = purgatory.wait_until({"b": 1}, 30)
    assert [purgatory.counter_waiters(key) for key in ("a", "b", "c", None)] == [1, 2, 0, 0]
    assert purgatory.counter_waiters() == 3

    purgatory.advance("b", 1)
    assert (await one, purgatory.counter_waiters("b"), purgatory.counter_waiters()) == (True, 1, 2)
    purgatory.advance("a", 1)
    purgatory.advance("b", 2)
    assert (await both, purgatory.counter_waiters()) == (True, 0)
    condition.cancel()


async def test_the_limit_holds_for_waiters_of_counters(timer: ManualTimer) -> None:
    """A refused waiter leaves nothing registered."""
    purgatory = Purgatory(timer=timer, max_pending=1)
    waiting = purgatory.wait_until({"a": 1}, 30)

    with pytest.raises(PurgatoryFullError):
        purgatory.wait_until({"a": 1, "b": 1}, 30)

    assert (len(purgatory), purgatory.watched, len(timer)) == (1, 1, 1)
    assert set(purgatory._counters.by_key) == {"a"}
    assert purgatory.advance("a", 1) == 1
    assert await waiting


async def test_advancing_from_within_is_queued(purgatory: Purgatory) -> None:
    """A chain of 10,000 counters, each advanced by the previous end, does not use the stack."""
    count = 10_000

    class Step:
        def __init__(self, number: int) -> None:
            self.number = number

        def __call__(self) -> bool:
            if purgatory._busy:
                purgatory.advance(self.number + 1, 1)
                purgatory.check_and_complete(self.number + 1)
                return True
            return False

    waiting = [purgatory.wait_for(Step(number), [number], 30) for number in range(count)]
    last = purgatory.wait_until({count: 1}, 30)

    assert purgatory.check_and_complete(0) == 1

    assert await last
    assert all(await asyncio.gather(*waiting))


async def test_cancel_for_key_finds_waiters_of_counters_too(purgatory: Purgatory) -> None:
    """A key may have watchers and a counter; `pending` and `cancel_for_key` cover both."""
    purgatory.wait_until({"k": 1, "other": 1}, 30)
    purgatory.wait_for(lambda: False, ["k"], 30)

    assert len(list(purgatory.pending("k"))) == 2
    assert purgatory.top_keys() == [("k", 2), ("other", 1)]
    assert purgatory.statistics().keys == 2
    assert len(purgatory.cancel_for_key("k")) == 2
    assert (len(purgatory), purgatory.watched) == (0, 0)


@pytest.mark.parametrize("order", [1, -1], ids=["ascending", "descending"])
async def test_an_advance_costs_what_completes(purgatory: Purgatory, order: int) -> None:
    """With 10,000 waiters each advance tries one of them and removes one."""
    waiting = [purgatory.wait_until({"k": number}, 30) for number in range(10_000)[::order]]
    counter = purgatory._counters.get("k")
    assert isinstance(counter, Counter)
    before = purgatory.statistics().checks

    for number in range(100):
        size = len(counter)
        assert purgatory.advance("k", number) == 1
        assert len(counter) == size - 1

    assert purgatory.statistics().checks == before + 100
    purgatory.advance("k", 10_000)
    assert all(await asyncio.gather(*waiting))


@pytest.mark.parametrize("order", [1, -1], ids=["ascending", "descending"])
async def test_tombstones_are_compacted(purgatory: Purgatory, order: int) -> None:
    """Waiters that end otherwise do not accumulate, and the order is kept."""
    numbers = range(5_000)[::order]
    waiting = {number: future(purgatory.wait_until({"k": number}, 30)) for number in numbers}
    counter = purgatory._counters.get("k")
    assert isinstance(counter, Counter)

    for number in range(100, 5_000):
        waiting[number].cancel()
    await asyncio.sleep(0)

    assert (counter.live, purgatory.watched) == (100, 100)
    assert len(counter) < 300
    assert [purgatory.advance("k", number) for number in range(100)] == [1] * 100


@pytest.mark.parametrize("order", [1, -1], ids=["ascending", "descending"])
@pytest.mark.parametrize(("size", "left"), [(100, 33), (101, 34)])
async def test_tombstones_are_removed_when_they_outnumber_the_waiters_by_33(
    purgatory: Purgatory, order: int, size: int, left: int
) -> None:
    """Before, an end costs no pass over the other waiters."""
    waiting = [future(purgatory.wait_until({"k": number}, 30)) for number in range(size)[::order]]
    counter = purgatory._counters.get("k")
    assert isinstance(counter, Counter)

    for each in waiting[left + 1 :]:
        each.cancel()
    await asyncio.sleep(0)
    assert (counter.live, len(counter)) == (left + 1, size)

    waiting[left].cancel()
    await asyncio.sleep(0)
    assert (counter.live, len(counter)) == (left, left)


@given(
    thresholds=st.lists(st.dictionaries(st.sampled_from("abc"), st.integers(0, 9), min_size=1)),
    steps=st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 9))),
    mode=st.sampled_from(["all", "any"]),
)
async def test_any_order_completes_as_the_definition_says(
    thresholds: list[dict[str, int]], steps: list[tuple[str, int]], mode: Mode
) -> None:
    """After every advance exactly the waiters are done whose thresholds were reached."""
    purgatory = Purgatory(timer=ManualTimer())
    waiting = [purgatory.wait_until(each, 30, mode=mode) for each in thresholds]
    values: dict[str, int] = {}
    quantifier = all if mode == "all" else any

    for key, value in steps:
        before = done(*waiting).count(True)
        completed = purgatory.advance(key, value)
        values[key] = max(value, values.get(key, value))
        expected = [
            quantifier(values.get(name, -1) >= least for name, least in each.items())
            for each in thresholds
        ]
        assert done(*waiting) == expected
        assert completed == expected.count(True) - before

    await purgatory.aclose()
    assert purgatory.watched == 0


async def test_a_forgotten_counter_does_not_affect_its_successor(
    purgatory: Purgatory,
) -> None:
    """The end of a waiter of the old counter does not affect the new counter."""
    first = purgatory.wait_until({"a": 1, "b": 1}, 30)
    purgatory.advance("b", 1)
    purgatory.forget("b")
    second = purgatory.wait_until({"b": 1}, 30)

    purgatory.advance("a", 1)
    purgatory.advance("b", 1)

    assert done(first, second) == [True, True]


async def test_a_key_that_can_no_longer_be_compared_stops_no_waiter(
    purgatory: Purgatory, timer: ManualTimer
) -> None:
    """Its waiters end as usual and leave their other keys."""

    class SpoiltKey:
        spoilt = False

        def __hash__(self) -> int:
            return 1

        def __eq__(self, other: object) -> bool:
            if SpoiltKey.spoilt:
                raise ValueError("not to be compared")
            return self is other

    decoy = purgatory.wait_until({SpoiltKey(): 1}, 30)
    waiting = purgatory.wait_until({SpoiltKey(): 1, "a": 1}, 30, mode="any")
    SpoiltKey.spoilt = True

    assert purgatory.advance("a", 1) == 1

    assert done(waiting, decoy) == [True, False]
    assert (len(purgatory), purgatory.watched, len(timer)) == (1, 1, 1)
    future(decoy).cancel()


async def test_a_refused_wait_counts_its_counters_anew(timer: ManualTimer) -> None:
    """The operation may be watched again, and waits for as many counters as before."""
    purgatory = Purgatory(timer=timer, max_pending=1)
    first = purgatory.wait_until({"other": 1}, 30)
    purgatory.advance("a", 1)
    operation = ThresholdOperation(30, 2)
    thresholds: list[tuple[object, int | float]] = [("a", 1), ("b", 1)]
    for _ in range(2):
        with pytest.raises(PurgatoryFullError):
            purgatory.try_reach_else_watch(operation, thresholds)
    purgatory.advance("other", 1)

    assert await first
    assert not purgatory.try_reach_else_watch(operation, thresholds)
    assert purgatory.advance("b", 1) == 1


LINKING = 1  # `wait_until` hashes each key once to look at its value, and then to add the waiter


@pytest.mark.parametrize("how", ["cancel", "force_complete", "advance"])
async def test_the_hash_of_a_key_may_end_a_wait(
    purgatory: Purgatory, timer: ManualTimer, how: str
) -> None:
    """A wait that ends before it is linked to all its keys leaves no trace."""
    key = HookedKey()

    def end() -> None:
        if how == "advance":
            assert purgatory.advance("a", 1) == 1
        else:
            assert getattr(next(purgatory.pending("a")), how)()

    key.after, thresholds = LINKING, {"a": 1, key: 1}
    key.hook = end

    waiting = purgatory.wait_until(thresholds, 30, "any" if how == "advance" else "all")

    assert key.hook is None
    assert (len(purgatory), purgatory.watched, len(timer)) == (0, 0, 0)
    assert set(purgatory._counters.by_key) <= {"a"}
    if how == "cancel":
        assert future(waiting).cancelled()
    else:
        assert await waiting


async def test_the_hash_of_a_key_may_raise_its_counter(
    purgatory: Purgatory, timer: ManualTimer
) -> None:
    """A value that arrives between the look at a counter and the link is not missed."""
    key = HookedKey()
    key.after, thresholds = LINKING, {"a": 1, key: 1}
    key.hook = lambda: (purgatory.advance("a", 1), purgatory.advance(key, 1))

    waiting = purgatory.wait_until(thresholds, 30)

    assert done(waiting) == [True]
    assert (len(purgatory), purgatory.watched, len(timer)) == (0, 0, 0)


async def test_the_hash_of_a_key_may_wait_for_the_same_key(purgatory: Purgatory) -> None:
    """Both waiters get the one counter of the key."""
    key = HookedKey()
    inner: list[Awaitable[bool]] = []
    key.after, thresholds = LINKING + 1, {key: 1}
    key.hook = lambda: inner.append(purgatory.wait_until({key: 1}, 30))

    outer = purgatory.wait_until(thresholds, 30)

    assert key.hook is None
    assert purgatory.advance(key, 1) == 2
    assert await outer
    assert await inner[0]


@pytest.mark.parametrize(
    ("how", "look_ups"), [*product(["cancel"], range(2)), *product(["forget"], range(4))]
)
async def test_the_hash_of_a_key_may_wait_while_its_counter_is_dropped(
    purgatory: Purgatory, how: str, look_ups: int
) -> None:
    """The new waiter is found, whichever look-up of the key runs it."""
    key = HookedKey()
    inner: list[Awaitable[bool]] = []
    if how == "cancel":
        purgatory.wait_until({key: 1}, 30)
        drop: Callable[[], bool] = next(purgatory.pending()).cancel
    else:
        purgatory.advance(key, 1)
        drop = partial(purgatory.forget, key)
    key.after = look_ups
    key.hook = lambda: inner.append(purgatory.wait_until({key: 2}, 30))

    assert drop()

    assert key.hook is None
    assert list(purgatory.pending()) == list(purgatory.pending(key))

    assert purgatory.advance(key, 2) == 1
    assert await inner[0]
    assert (len(purgatory), purgatory.watched, purgatory.statistics().keys) == (0, 0, 0)


@pytest.mark.parametrize("look_ups", [0, 1])
async def test_the_hash_of_a_key_may_raise_its_counter_while_that_is_dropped(
    purgatory: Purgatory, look_ups: int
) -> None:
    """The last waiter leaves the counter, which nevertheless keeps the new value."""
    key = HookedKey()
    purgatory.wait_until({key: 1}, 30)
    (waiting,) = purgatory.pending()
    key.after = look_ups
    key.hook = lambda: purgatory.advance(key, 2)

    assert waiting.cancel()

    assert key.hook is None
    assert purgatory.value(key) == 2
    assert purgatory.forget(key)
    assert purgatory._counters.by_key == {}


async def test_an_interrupted_hash_of_a_key_leaves_no_trace(
    purgatory: Purgatory, timer: ManualTimer
) -> None:
    """The wait has ended already, and the key is interrupted."""
    key = HookedKey()

    def end_and_interrupt() -> None:
        next(purgatory.pending("a")).cancel()
        raise KeyboardInterrupt

    key.after, thresholds = LINKING, {"a": 1, key: 1}
    key.hook = end_and_interrupt
    with pytest.raises(KeyboardInterrupt):
        purgatory.wait_until(thresholds, 30)

    assert (len(purgatory), purgatory.watched, len(timer)) == (0, 0, 0)
    assert purgatory._counters.by_key == {}


async def test_a_wait_of_many_keys_is_listed_once(timer: ManualTimer) -> None:
    """Also after some of its thresholds were reached."""
    purgatory = Purgatory("test", timer=timer)
    keys = [("key", number) for number in range(20_000)]
    purgatory.wait_until(dict.fromkeys(keys, 1), None)
    purgatory.advance(keys[0], 1)

    assert len(list(purgatory.pending())) == 1
