"""The topics in Redis, for processes on several machines. Rank 5; extra `redis`."""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Any

from aiowheel.errors import StoreUnavailableError
from aiowheel.serve import _redis_scripts as scripts
from aiowheel.serve._limits import Limits
from aiowheel.serve._refusal import Refusal
from aiowheel.serve._topic_store import News, Totals
from aiowheel.serve._topic_tables import FORGET_AFTER, Question, StoredTopic, news_of
from aiowheel.serve._topics import too_many_topics
from aiowheel.shared import RedisCounters

_SLICE = 100  # topics or messages that one script removes: a script blocks all other clients
_QUESTIONS = 100  # reads per script

Script = Callable[..., Awaitable[Any]]


class TopicCounters(RedisCounters):
    """The counters of the topics, whose scripts detect a restart or a failover of Redis.

    A restarted server, or a promoted replica, may lack the last messages that clients have seen.
    New messages would then reuse their versions. Each script therefore compares the run id of the
    server with the run id at the last script. In a new run, all topics and counters get new epochs.
    They keep their epochs only if the server syncs every command to its disk before it answers, and
    was not a replica.
    """

    def __init__(self, address: str) -> None:
        super().__init__(address, name=scripts.NAME)
        self._prepare = self.script(scripts.PREPARE)

    async def prepare(self) -> None:
        """Detect a new run of the server, and start new epochs if it may have lost writes."""
        await self.run(self._prepare)

    async def run(self, script: Script, *words: str | bytes | int) -> Any:
        """Run a script, after the check of `prepare`."""
        run, kept = "", ""
        for _ in range(3):
            answer = await script(run, kept, secrets.token_hex(8), *words)
            if _text(answer[0]) != "run":
                return answer
            run = _text(answer[1])
            kept = "kept" if await self.has_kept_all() else "lost"
        raise StoreUnavailableError("Redis restarted three times during one command")

    async def read(self, keys: Collection[str]) -> tuple[str, dict[str, int]]:
        """See `CounterStore`; waits end after a loss of data even if nothing is published."""
        await self.prepare()
        return await super().read(keys)


class RedisTopics:
    """`TopicTables` in Redis, on the connection of its counters.

    Args:
        address: Address in the form of `RedisCounters`. Each service needs its own database.
        limits: Limits of topics, messages and bytes.

    Attributes:
        counters: See `TopicTables`.

    Raises:
        MissingExtraError: redis-py is not installed.
        ValueError: The address is malformed.
    """

    def __init__(self, address: str, limits: Limits) -> None:
        self.counters = TopicCounters(address)
        self._limits = limits
        self._append = self.counters.script(scripts.APPEND)
        self._read = self.counters.script(scripts.READ)
        self._remove = self.counters.script(scripts.REMOVE)
        self._touch = self.counters.script(scripts.TOUCH)
        self._sweep = self.counters.script(scripts.SWEEP)
        self._totals = self.counters.script(scripts.TOTALS)

    def key(self, name: str) -> str:
        """See `TopicTables`."""
        return name

    async def prepare(self) -> None:
        """See `TopicTables`."""
        await self.counters.prepare()

    async def append(
        self, messages: Sequence[tuple[str, bytes]]
    ) -> list[tuple[str, int] | Refusal]:
        """See `TopicTables`."""
        limits = self._limits
        bounds = (limits.topics, limits.kept_messages, limits.kept_bytes, limits.kept_bytes_in_all)
        words = [word for message in messages for word in message]
        _, answers = await self.counters.run(self._append, *bounds, secrets.token_hex(8), *words)
        return [
            (_text(answer[0]), int(answer[1])) if answer else too_many_topics(name, limits.topics)
            for (name, _), answer in zip(messages, answers, strict=True)
        ]

    async def read(self, questions: Collection[Question]) -> dict[Question, News]:
        """See `TopicTables`."""
        answers: dict[Question, News] = {}
        asked = list(questions)
        for start in range(0, len(asked), _QUESTIONS):
            part = asked[start : start + _QUESTIONS]
            words: list[str | int] = []
            for each in part:
                words += (each.name, each.has.version, each.has.epoch or "")
                words.append("" if each.most is None else each.most)
            kept = round(self._limits.kept_seconds * 1000)
            _, last, too_old, found = await self.counters.run(self._read, kept, *words)
            for each, topic in zip(part, found, strict=True):
                answers[each] = _answered(each, topic, float(too_old), int(last))
        return answers

    async def remove(self, name: str) -> bool:
        """See `TopicTables`."""
        _, was_there = await self.counters.run(self._remove, name)
        return bool(was_there)

    async def touch(self, names: Collection[str]) -> None:
        """See `TopicTables`."""
        await self.counters.run(self._touch, *names)

    async def sweep(self, unused_for: float) -> bool:
        """See `TopicTables`."""
        ages = (self._limits.kept_seconds, unused_for, FORGET_AFTER)
        words = [round(seconds * 1000) for seconds in ages]
        _, is_more = await self.counters.run(self._sweep, *words, _SLICE)
        return bool(is_more)

    async def totals(self) -> Totals:
        """See `TopicTables`."""
        _, *values = await self.counters.run(self._totals)
        return Totals(*values)


def _answered(question: Question, found: Sequence[Any], too_old: float, change: int) -> News:
    if not found:
        return news_of(question, None, (), too_old=too_old, change=change)
    stored = StoredTopic(0, _text(found[0]), int(found[1]))
    words = found[2]
    messages = [
        (int(version), float(time), bytes(data))
        for version, time, data in zip(words[::3], words[1::3], words[2::3], strict=True)
    ]
    return news_of(question, stored, messages, too_old=too_old, change=change)


def _text(value: object) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)
