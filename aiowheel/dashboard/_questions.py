"""Answers to questions about keys and operations of a purgatory. Rank 4.

A search reads all keys, in slices, and yields to the event loop between them. The list of a key's
operations is bounded.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, Callable, Hashable, Iterable, Mapping
from contextlib import aclosing
from typing import Any, Final, NamedTuple

from aiowheel.dashboard._rotation import all_keys
from aiowheel.dashboard._waiting import Json, Waiting, long_text_of, number_text, text_of
from aiowheel.purgatory import Purgatory

MOST_FOUND: Final = 50  #: maximum keys that a search returns
MOST_OPERATIONS: Final = 100  #: maximum operations that are returned
MOST_KNOWN: Final = 200  #: maximum texts whose keys are remembered
SHARE: Final = 0.01  #: maximum share of the time for repeated searches for the key of a text
_SLICE: Final = 300  # keys per slice: at most about a millisecond
_INTEGER: Final = re.compile(r"0|-?[1-9][0-9]{0,99}")


class _Known(NamedTuple):
    """The keys of a text, and the time of the loop at which they may be searched for again."""

    keys: list[Hashable]
    due: float


class Finder:
    """Finds keys of one purgatory by their text, and the operations that wait for a key.

    The page asks for the operations of an open key every second. The finder therefore remembers the
    keys of the texts in its answers, and the texts without a key.

    Args:
        purgatory: The purgatory.
        shown_keys: Returns the keys of the last snapshot.
    """

    def __init__(self, purgatory: Purgatory, shown_keys: Callable[[], Iterable[Hashable]]) -> None:
        self._purgatory = purgatory
        self._shown_keys = shown_keys
        self._known: dict[str, _Known] = {}  # by text, the last used one last

    def forget(self) -> None:
        """Drop the remembered keys, which would keep objects of the application alive."""
        self._known.clear()

    async def find_keys(self, text: str) -> Json:
        """Return the first keys whose text contains *text*; letter case is ignored. O(keys)."""
        purgatory = self._purgatory
        wanted = text.casefold()
        found: dict[Hashable, str] = {}
        async with aclosing(self._slices()) as slices:
            async for keys in slices:
                for key in keys:
                    name = long_text_of(key)
                    if wanted in name.casefold() and self._exists(key):
                        found[key] = name
                if len(found) > MOST_FOUND:
                    break
        first = list(found.items())[:MOST_FOUND]
        named: dict[str, list[Hashable]] = {}
        for key, name in first:
            named.setdefault(name, []).append(key)
        for name, alike in named.items():
            self._remember(name, _Known(alike, 0.0))
        return {
            "keys": [
                [name, purgatory.waiters(key), number_text(purgatory.value(key))]
                for key, name in first
            ],
            "more": len(found) > MOST_FOUND,
        }

    async def operations_of(self, text: str, now: float) -> Json:
        """Return operations that wait for the key whose full or shortened text is *text*.

        Several keys may have the same text; the answer then holds the operations of all of them.
        Cost: O(1) if *text* itself, its integer, or a key that was shown as *text* is a key; other
        keys with the same text are then not found. Otherwise O(keys), repeated for the same text
        during at most `SHARE` of the time.
        """
        purgatory = self._purgatory
        keys = self._likely_keys(text) or await self._search(text)
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

    def _likely_keys(self, text: str) -> list[Hashable]:
        """Return the keys with that text that are found without a search."""
        likely: list[Hashable] = [text, int(text)] if _INTEGER.fullmatch(text) else [text]
        known = self._known.get(text)
        if known is not None:
            self._remember(text, known)
            likely.extend(known.keys)
        likely.extend(key for key in self._shown_keys() if text_of(key) == text)
        return [key for key in dict.fromkeys(likely) if self._exists(key)]

    async def _search(self, text: str) -> list[Hashable]:
        """Return all keys with that text; none if the last search for it was not long ago."""
        loop = asyncio.get_running_loop()
        begun = loop.time()
        known = self._known.get(text)
        if known is not None and begun < known.due:
            return []
        found = [
            key
            async for keys in self._slices()
            for key in keys
            if text in {text_of(key), long_text_of(key)}
        ]
        keys = list(dict.fromkeys(found))
        now = loop.time()
        self._remember(text, _Known(keys, now + (now - begun) / SHARE))
        return keys

    def _remember(self, text: str, known: _Known) -> None:
        self._known.pop(text, None)
        self._known[text] = known
        if len(self._known) > MOST_KNOWN:
            del self._known[next(iter(self._known))]

    def _exists(self, key: Hashable) -> bool:
        return self._purgatory.waiters(key) > 0 or self._purgatory.value(key) is not None

    async def _slices(self) -> AsyncGenerator[list[Hashable]]:
        keys = all_keys(self._purgatory)
        for at in range(0, len(keys), _SLICE):
            yield keys[at : at + _SLICE]
            await asyncio.sleep(0)


async def answer(question: Json, finders: Mapping[str, Finder], now: float) -> Json:
    """Answer `{"ask": "keys", "purgatory", "text"}`, or "operations" with the same fields.

    The answer is empty if this process has no such purgatory.
    """
    finder = finders.get(question["purgatory"])
    if finder is None:
        return {}
    if question["ask"] == "keys":
        return await finder.find_keys(question["text"])
    return await finder.operations_of(question["text"], now)


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
        "value": _merged_value(each["value"] for each in found.values()),
        "operations": operations[:MOST_OPERATIONS],
    }


def _merged_keys(answers: Iterable[Json]) -> Json:
    keys: dict[str, list[Any]] = {}
    more = False
    for each in answers:
        more = more or each["more"]
        for text, waiters, value in each["keys"]:
            known = keys.setdefault(text, [text, 0, None])
            known[1] += waiters
            known[2] = _merged_value((known[2], value))
    return {"keys": list(keys.values())[:MOST_FOUND], "more": more or len(keys) > MOST_FOUND}


def _merged_value(values: Iterable[str | None]) -> str | None:
    """Return the value that the page shows for the counters of several processes."""
    known = {value for value in values if value is not None}
    return "different values" if len(known) > 1 else next(iter(known), None)
