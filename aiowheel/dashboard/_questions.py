"""Answers to questions about keys and operations of a purgatory. Rank 4.

A search reads all keys, in slices, and yields to the event loop between them. The list of a key's
operations is bounded.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, Hashable, Iterable, Mapping
from contextlib import aclosing
from typing import Any, Final

from aiowheel.dashboard._waiting import Json, Waiting, long_text_of, number_text, text_of
from aiowheel.purgatory import Purgatory

MOST_FOUND: Final = 50  #: maximum keys that a search returns
MOST_OPERATIONS: Final = 100  #: maximum operations that are returned
_SLICE: Final = 2_000  # keys per slice: about a millisecond
_INTEGER: Final = re.compile(r"0|-?[1-9][0-9]{0,99}")


async def find_keys(purgatory: Purgatory, text: str) -> Json:
    """Return the first keys whose text contains *text*; letter case is ignored.

    Cost: O(keys) for each slice of keys, which makes some seconds for a million keys.
    """
    wanted = text.casefold()
    found: dict[Hashable, None] = {}
    async with aclosing(_slices(purgatory)) as slices:
        async for keys in slices:
            found |= {key: None for key in keys if wanted in long_text_of(key).casefold()}
            if len(found) > MOST_FOUND:
                break
    return {
        "keys": [
            [long_text_of(key), purgatory.waiters(key), number_text(purgatory.value(key))]
            for key in list(found)[:MOST_FOUND]
        ],
        "more": len(found) > MOST_FOUND,
    }


async def operations_of(purgatory: Purgatory, text: str, now: float) -> Json:
    """Return operations that wait for the key whose full or shortened text is *text*.

    Several keys may have the same text; the answer then holds the operations of all of them. Cost:
    O(1) if *text* itself or its integer is a key, and keys of other types with the same text are
    not found; otherwise as `find_keys`.
    """
    likely: list[Hashable] = [text, int(text)] if _INTEGER.fullmatch(text) else [text]
    keys = [key for key in likely if _exists(purgatory, key)]
    if not keys:
        named = {
            key: None
            async for each in _slices(purgatory)
            for key in each
            if text in {text_of(key), long_text_of(key)}
        }
        keys = list(named)
    found: list[Waiting] = []
    for key in keys:
        value = purgatory.value(key)
        for operation, threshold in purgatory.first_waiters(key, MOST_OPERATIONS):
            if not operation.is_completed():
                found.append(Waiting(operation, key, threshold, value))
    found.sort(key=lambda each: each.operation.created)
    return {
        "key": text,
        "waiters": sum(purgatory.waiters(key) for key in keys),
        "value": number_text(purgatory.value(keys[0])) if len(keys) == 1 else None,
        "operations": [each.as_details(now) for each in found[:MOST_OPERATIONS]],
    }


def _exists(purgatory: Purgatory, key: Hashable) -> bool:
    return purgatory.waiters(key) > 0 or purgatory.value(key) is not None


async def _slices(purgatory: Purgatory) -> AsyncGenerator[list[Hashable]]:
    at = 0
    while True:
        keys, _ = purgatory.key_range(at, at + _SLICE)
        if not keys:
            return
        yield keys
        at += _SLICE
        await asyncio.sleep(0)  # changes during this pause may skip a key or repeat one


async def answer(question: Json, purgatories: Mapping[str, Purgatory], now: float) -> Json:
    """Answer `{"ask": "keys", "purgatory", "text"}`, or "operations" with the same fields.

    The answer is empty if this process has no such purgatory.
    """
    purgatory = purgatories.get(question["purgatory"])
    if purgatory is None:
        return {}
    if question["ask"] == "keys":
        return await find_keys(purgatory, question["text"])
    return await operations_of(purgatory, question["text"], now)


def merged_answers(answers: Mapping[str, Json]) -> Json:
    """Merge the answers of several processes, given by process name; {} if all are empty."""
    found = {name: each for name, each in answers.items() if each}
    if not found:
        return {}
    if any("keys" in each for each in found.values()):
        return _merged_keys(found.values())
    operations = [
        {**operation, "process": name}
        for name, each in found.items()
        for operation in each["operations"]
    ]
    operations.sort(key=lambda each: -float(each["age"]))
    first = next(iter(found.values()))
    return {
        **first,
        "waiters": sum(each["waiters"] for each in found.values()),
        "operations": operations[:MOST_OPERATIONS],
    }


def _merged_keys(answers: Iterable[Json]) -> Json:
    keys: dict[str, list[Any]] = {}
    more = False
    for each in answers:
        more = more or each["more"]
        for text, waiters, value in each["keys"]:
            known = keys.setdefault(text, [text, 0, value])
            known[1] += waiters
    return {"keys": list(keys.values())[:MOST_FOUND], "more": more or len(keys) > MOST_FOUND}
