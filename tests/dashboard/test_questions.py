"""The search for keys, and the operations of one key."""

import asyncio
import gc
import json
import weakref
from collections.abc import Hashable
from typing import Any

import pytest

from aiowheel import ManualTimer, Purgatory
from aiowheel.dashboard._questions import (
    MOST_FOUND,
    MOST_KNOWN,
    MOST_OPERATIONS,
    SHARE,
    Finder,
    answer,
    merged_answers,
)

from .conftest import Unmet

pytestmark = [pytest.mark.one_build, pytest.mark.virtual_time]


def made() -> tuple[ManualTimer, Purgatory]:
    """Return a timer and its purgatory."""
    timer = ManualTimer()
    return timer, Purgatory("p", timer=timer)


async def test_keys_are_found_by_a_part_of_their_text() -> None:
    """Letter case is ignored; the answer has the waiters and the value of the counter."""
    _, purgatory = made()
    purgatory.advance("News", 3)
    purgatory.try_complete_else_watch(Unmet(9), [("news", 1), "other"])
    waiting = purgatory.wait_until({"News": 5}, 9)

    found = await Finder(purgatory, tuple).find_keys("nEWs")

    assert sorted(found["keys"]) == [["('news', 1)", 1, None], ["News", 1, "3"]]
    assert found["more"] is False
    assert (await Finder(purgatory, tuple).find_keys("nothing"))["keys"] == []
    waiting.cancel()


async def test_a_search_is_bounded_and_finds_the_last_key() -> None:
    """Keys are read in slices; only the first matches are returned."""
    _, purgatory = made()
    for number in range(9_000):
        purgatory.advance(f"key {number}", 1)

    assert (await Finder(purgatory, tuple).find_keys("key 8999"))["keys"] == [["key 8999", 0, "1"]]
    found = await Finder(purgatory, tuple).find_keys("key")
    assert (len(found["keys"]), found["more"]) == (MOST_FOUND, True)


async def test_operations_of_a_key_have_all_details() -> None:
    """The details are keys, checks, times, and the `repr` of the operation."""

    class Talkative(Unmet):
        def __repr__(self) -> str:
            return "waits for the weather"

    timer, purgatory = made()
    purgatory.try_complete_else_watch(Talkative(9), ["a", "b"])
    timer.advance(1)
    purgatory.try_complete_else_watch(Unmet(None), ["b"])

    found = await Finder(purgatory, tuple).operations_of("b", timer.time())

    json.dumps(found)
    assert (found["key"], found["waiters"], found["value"]) == ("b", 2, None)
    first, second = found["operations"]
    assert (first["kind"], first["keys"], first["age"], first["left"]) == (
        "Talkative",
        ["a", "b"],
        1.0,
        8.0,
    )
    assert first["text"] == "waits for the weather"
    assert (second["age"], second["left"]) == (0.0, None)


@pytest.mark.parametrize("key", [("a", 1), "k" * 500, "key", 7], ids=str)
async def test_a_key_is_found_by_its_shown_text(key: object) -> None:
    """The key may be no string, or may have been shortened."""
    timer, purgatory = made()
    purgatory.try_complete_else_watch(Unmet(9), [key])
    purgatory.try_complete_else_watch(Unmet(9), ["another"])

    ((text, waiters, _),) = (await Finder(purgatory, tuple).find_keys(str(key)))["keys"]

    assert waiters == 1
    assert (await Finder(purgatory, tuple).operations_of(text, timer.time()))["waiters"] == 1


class Undecodable:
    """A key whose `repr` has a lone surrogate."""

    def __repr__(self) -> str:
        return "<caf\udce9>"


@pytest.mark.parametrize("key", ["caf\udce9", Undecodable()], ids=["text", "repr"])
async def test_a_key_with_half_a_character_is_found_by_its_shown_text(key: Hashable) -> None:
    """A browser cannot send a lone surrogate, as of a file name that is not UTF-8."""
    timer, purgatory = made()
    purgatory.try_complete_else_watch(Unmet(9), [key])
    finder = Finder(purgatory, lambda: [key])

    ((text, waiters, _),) = (await finder.find_keys("caf"))["keys"]
    operations = await finder.operations_of(text, timer.time())

    assert (text, waiters) == (text.encode().decode(), 1)
    (operation,) = operations["operations"]
    assert (operation["key"], operation["keys"]) == (text, [text])


async def test_only_the_first_operations_are_returned() -> None:
    """The answer also has the number of all waiters."""
    timer, purgatory = made()
    for _ in range(3 * MOST_OPERATIONS):
        purgatory.try_complete_else_watch(Unmet(9), ["x"])

    found = await Finder(purgatory, tuple).operations_of("x", timer.time())

    assert (len(found["operations"]), found["waiters"]) == (MOST_OPERATIONS, 3 * MOST_OPERATIONS)


async def test_the_operations_of_a_number_and_of_its_text_are_both_found() -> None:
    """A viewer sees both keys as one text."""
    timer, purgatory = made()
    keys: list[Any] = [7, "7", -7]
    for key in keys:
        purgatory.try_complete_else_watch(Unmet(9), [key])

    found = await Finder(purgatory, tuple).operations_of("7", timer.time())

    assert (len(found["operations"]), found["waiters"]) == (2, 2)


async def test_a_key_without_waiters_has_none() -> None:
    """The key may have lost its waiters since the snapshot."""
    timer, purgatory = made()

    found = await Finder(purgatory, tuple).operations_of("x", timer.time())

    assert (found["waiters"], found["operations"]) == (0, [])


class Texts:
    """A key that counts how often its text is made."""

    def __init__(self) -> None:
        self.made = 0

    def __repr__(self) -> str:
        self.made += 1
        return "a text"


@pytest.mark.parametrize("first", ["search", "operations", "snapshot"])
async def test_an_open_key_is_searched_for_once(first: str) -> None:
    """The search, the last answer or the snapshot has named the key; other keys are not read."""
    timer, purgatory = made()
    key, other = ("a", 1), Texts()
    for each in (key, other):
        purgatory.try_complete_else_watch(Unmet(9), [each])
    shown: list[Hashable] = [key] if first == "snapshot" else []
    finder = Finder(purgatory, lambda: shown)
    if first == "search":
        await finder.find_keys("('a', 1)")
    elif first == "operations":
        await finder.operations_of("('a', 1)", timer.time())
    other.made = 0

    for _ in range(3):
        assert (await finder.operations_of("('a', 1)", timer.time()))["waiters"] == 1

    assert other.made == 0


async def test_a_fruitless_search_is_repeated_for_a_small_share_of_the_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The key may have lost its waiters, or belong to another process."""
    timer, purgatory = made()
    purgatory.try_complete_else_watch(Unmet(9), ["another"])
    finder = Finder(purgatory, tuple)

    async def slow(_: float) -> None:
        await pause(0.5)

    pause = asyncio.sleep
    monkeypatch.setattr("aiowheel.dashboard._questions.asyncio.sleep", slow)
    await finder.operations_of("('a', 1)", timer.time())
    purgatory.try_complete_else_watch(Unmet(9), [("a", 1)])

    await pause(0.5 / SHARE - 1)
    assert (await finder.operations_of("('a', 1)", timer.time()))["waiters"] == 0
    await pause(1)
    assert (await finder.operations_of("('a', 1)", timer.time()))["waiters"] == 1


async def test_a_remembered_key_may_lose_its_waiters_and_get_new_ones() -> None:
    """A remembered key is looked up for each answer."""
    timer, purgatory = made()
    operation = Unmet(9)
    purgatory.try_complete_else_watch(operation, [("a", 1)])
    finder = Finder(purgatory, tuple)
    waiters: list[int] = []

    waiters.append((await finder.operations_of("('a', 1)", timer.time()))["waiters"])
    operation.cancel()
    waiters.append((await finder.operations_of("('a', 1)", timer.time()))["waiters"])
    purgatory.try_complete_else_watch(Unmet(9), [("a", 1)])
    waiters.append((await finder.operations_of("('a', 1)", timer.time()))["waiters"])

    assert waiters == [1, 0, 1]


async def test_remembered_keys_are_bounded_and_can_be_forgotten() -> None:
    """Keys are objects of the application, which the dashboard must not keep for ever."""

    class Key:
        """A key that can be referenced weakly."""

    timer, purgatory = made()
    finder = Finder(purgatory, tuple)

    async def asked_and_dropped() -> weakref.ref[Key]:
        key, operation = Key(), Unmet(9)
        purgatory.try_complete_else_watch(operation, [key])
        assert (await finder.operations_of(repr(key), timer.time()))["waiters"] == 1
        operation.cancel()
        return weakref.ref(key)

    gone = await asked_and_dropped()
    for number in range(MOST_KNOWN):
        await finder.operations_of(f"none {number}", timer.time())
    gc.collect()
    assert gone() is None

    gone = await asked_and_dropped()
    finder.forget()
    gc.collect()
    assert gone() is None


async def test_a_search_finds_no_key_that_has_ended_meanwhile() -> None:
    """The keys are listed when the search begins."""
    _, purgatory = made()
    operations = [Unmet(9) for _ in range(1_000)]
    for number, operation in enumerate(operations):
        purgatory.try_complete_else_watch(operation, [f"key {number}"])

    searching = asyncio.create_task(Finder(purgatory, tuple).find_keys("key 999"))
    await asyncio.sleep(0)
    operations[-1].cancel()

    assert (await searching)["keys"] == []


async def test_answers_of_processes_are_merged() -> None:
    """Waiters of the same key are added; each operation names its process."""
    timer, purgatory = made()
    purgatory.advance("news", 3)
    purgatory.try_complete_else_watch(Unmet(9), ["news"])
    here = {"p": Finder(purgatory, tuple)}
    keys = {"ask": "keys", "purgatory": "p", "text": "new"}
    operations = {"ask": "operations", "purgatory": "p", "text": "news"}

    one = await answer(keys, here, timer.time())
    assert merged_answers({"1": one, "2": one, "3": {}}) == {
        "keys": [["news", 2, "3"]],
        "more": False,
    }
    one = await answer(operations, here, timer.time())
    both = merged_answers({"1": one, "2": one})
    assert both["waiters"] == 2
    assert [each["process"] for each in both["operations"]] == ["1", "2"]
    assert await answer(operations, {}, timer.time()) == {}
    assert merged_answers({"1": {}}) == {}


@pytest.mark.parametrize(
    ("values", "shown"),
    [
        ((3, 3, None), "3"),
        ((None, 3, None), "3"),
        ((None, None, None), None),
        ((5, 900, 5), "different values"),
    ],
)
async def test_values_of_processes_are_merged(
    values: tuple[int | None, ...], shown: str | None
) -> None:
    """Each process has counters of its own; both answers show one value only if it is common."""
    keys, operations = dict[str, Any](), dict[str, Any]()
    for process, value in enumerate(values):
        timer, purgatory = made()
        purgatory.try_complete_else_watch(Unmet(9), ["x"])
        if value is not None:
            purgatory.advance("x", value)
        finder = Finder(purgatory, tuple)
        keys[str(process)] = await finder.find_keys("x")
        operations[str(process)] = await finder.operations_of("x", timer.time())

    assert merged_answers(keys)["keys"] == [["x", 3, shown]]
    assert merged_answers(operations)["value"] == shown
