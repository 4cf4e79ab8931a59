"""The search for keys, and the operations of one key."""

import json
from typing import Any

import pytest

from aiowheel import ManualTimer, Purgatory
from aiowheel.dashboard._questions import (
    MOST_FOUND,
    MOST_OPERATIONS,
    answer,
    find_keys,
    merged_answers,
    operations_of,
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

    found = await find_keys(purgatory, "nEWs")

    assert sorted(found["keys"]) == [["('news', 1)", 1, None], ["News", 1, "3"]]
    assert found["more"] is False
    assert (await find_keys(purgatory, "nothing"))["keys"] == []
    waiting.cancel()


async def test_a_search_is_bounded_and_finds_the_last_key() -> None:
    """Keys are read in slices; only the first matches are returned."""
    _, purgatory = made()
    for number in range(9_000):
        purgatory.advance(f"key {number}", 1)

    assert (await find_keys(purgatory, "key 8999"))["keys"] == [["key 8999", 0, "1"]]
    found = await find_keys(purgatory, "key")
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

    found = await operations_of(purgatory, "b", timer.time())

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

    ((text, waiters, _),) = (await find_keys(purgatory, str(key)))["keys"]

    assert waiters == 1
    assert (await operations_of(purgatory, text, timer.time()))["waiters"] == 1


async def test_only_the_first_operations_are_returned() -> None:
    """The answer also has the number of all waiters."""
    timer, purgatory = made()
    for _ in range(3 * MOST_OPERATIONS):
        purgatory.try_complete_else_watch(Unmet(9), ["x"])

    found = await operations_of(purgatory, "x", timer.time())

    assert (len(found["operations"]), found["waiters"]) == (MOST_OPERATIONS, 3 * MOST_OPERATIONS)


async def test_the_operations_of_a_number_and_of_its_text_are_both_found() -> None:
    """A viewer sees both keys as one text."""
    timer, purgatory = made()
    keys: list[Any] = [7, "7", -7]
    for key in keys:
        purgatory.try_complete_else_watch(Unmet(9), [key])

    found = await operations_of(purgatory, "7", timer.time())

    assert (len(found["operations"]), found["waiters"]) == (2, 2)


async def test_a_key_without_waiters_has_none() -> None:
    """The key may have lost its waiters since the snapshot."""
    timer, purgatory = made()

    found = await operations_of(purgatory, "x", timer.time())

    assert (found["waiters"], found["operations"]) == (0, [])


async def test_answers_of_processes_are_merged() -> None:
    """Waiters of the same key are added; each operation names its process."""
    timer, purgatory = made()
    purgatory.advance("news", 3)
    purgatory.try_complete_else_watch(Unmet(9), ["news"])
    here = {"p": purgatory}
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
