"""The store of topics that several processes share: tables, and shared counters to wait on. Rank 5.

A publish sets the time of a topic's last use itself. For reads and waits, each process sets it once
per round; several rounds pass before an unused topic is removed.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Generator, Sequence
from contextlib import AsyncExitStack, contextmanager
from functools import partial

from aiowheel._events import emit
from aiowheel._printable import error_repr
from aiowheel.errors import StoreUnavailableError
from aiowheel.purgatory import Purgatory
from aiowheel.serve._grouped import Grouped
from aiowheel.serve._limits import Limits
from aiowheel.serve._parameters import Seen
from aiowheel.serve._refusal import Refusal
from aiowheel.serve._topic_store import News, Receipt, Totals
from aiowheel.serve._topic_tables import Question, TopicTables
from aiowheel.shared import SharedCounters
from aiowheel.timer import Timer

_MOST_PUBLISHES = 1_000  # in one transaction
_MOST_READS = 1_000
_MOST_TOUCHES = 1_000
_ROUNDS = 8  # rounds of maintenance within `kept_seconds`
_LONGEST_ROUND = 30.0  # seconds
_GRACE = 3  # rounds within which each process must have recorded the topics that it uses


class SharedStore:
    """A `TopicStore` over tables in a database.

    Args:
        tables: The tables, which this store opens and closes.
        limits: Its `kept_seconds` is the time without use after which a topic is removed.
    """

    def __init__(self, tables: TopicTables, limits: Limits) -> None:
        self._tables = tables
        self._kept_seconds = limits.kept_seconds
        self._round = min(limits.kept_seconds / _ROUNDS, _LONGEST_ROUND)
        self._publish: Grouped[tuple[str, bytes], tuple[str, int]]
        self._publish = Grouped(self._append_all, _MOST_PUBLISHES)
        self._read = Grouped(self._read_all, _MOST_READS)
        self._waiting: Counter[str] = Counter()  # number of waits by topic
        self._used: dict[str, None] = {}  # topics that were read since the last round, in order
        self._sweeps_to_skip = 0
        self._failing: set[str] = set()  # operations whose last call raised an unexpected error
        self._stack = AsyncExitStack()
        self._shared: SharedCounters

    async def open(self, timer: Timer, purgatory: Purgatory) -> None:
        """See `TopicStore`."""
        async with AsyncExitStack() as stack:
            shared = SharedCounters(purgatory, self._tables.counters)
            self._shared = await stack.enter_async_context(shared)
            await self._tables.prepare()
            rounds = timer.every(self._round, self._maintain, jitter=self._round / 4)
            stack.callback(rounds.cancel)
            self._stack = stack.pop_all()

    async def publish(self, name: str, data: bytes) -> Receipt:
        """See `TopicStore`; `woken` is the number of waits in this process."""
        before = self._waiting[name]
        epoch, version = await self._publish((name, data))
        # The hint may have completed the waits before this task gets the answer.
        return Receipt(epoch, version, max(before, self._waiting[name]))

    async def news(self, name: str, has: Seen, most: int | None = None) -> News:
        """See `TopicStore`."""
        self._used[name] = None
        return await self._read(Question(name, has, most))

    def wait(self, name: str, threshold: int, seconds: float) -> asyncio.Future[bool]:
        """See `TopicStore`."""
        waiting = self._shared.wait_until({self._tables.key(name): threshold}, seconds)
        if not waiting.done():
            self._waiting[name] += 1
            waiting.add_done_callback(partial(self._end_wait, name))
        return waiting

    async def remove(self, name: str) -> bool:
        """See `TopicStore`."""
        with self._errors_of("remove"):
            return await self._tables.remove(name)

    async def totals(self) -> Totals:
        """See `TopicStore`."""
        with self._errors_of("totals"):
            return await self._tables.totals()

    async def aclose(self) -> None:
        """See `TopicStore`."""
        try:
            await self._publish.drain()
        finally:  # also if this call is cancelled
            await self._stack.aclose()

    def _end_wait(self, name: str, waiting: asyncio.Future[bool]) -> None:
        if not waiting.cancelled():
            # Marks it as retrieved: after EpochChangedError the client reads the topic again.
            waiting.exception()
        self._waiting[name] -= 1
        if not self._waiting[name]:
            del self._waiting[name]
            self._used[name] = None

    async def _append_all(
        self, messages: Sequence[tuple[str, bytes]]
    ) -> list[tuple[str, int] | Refusal]:
        with self._errors_of("publish"):
            return await self._tables.append(messages)

    async def _read_all(self, questions: Sequence[Question]) -> list[News | Exception]:
        with self._errors_of("news"):
            answers = await self._tables.read(dict.fromkeys(questions))
        return [answers[each] for each in questions]

    @contextmanager
    def _errors_of(self, operation: str) -> Generator[None]:
        """Turn every error of the tables into `StoreUnavailableError`.

        No list of temporary failures is complete: an administrator may revoke a permission, or
        close a database for some minutes. The first failure of a series is logged.
        """
        try:
            yield
        except Exception as error:
            if operation not in self._failing:
                self._failing.add(operation)
                emit("aiowheel.topic_store_failed", operation=operation, error=error_repr(error))
            if isinstance(error, StoreUnavailableError):
                raise
            raise StoreUnavailableError(f"the store failed: {error_repr(error)}") from error
        self._failing.discard(operation)

    async def _maintain(self) -> None:
        """Record which topics are in use; remove old messages and unused topics."""
        used = list(self._used | dict.fromkeys(self._waiting))
        self._used.clear()
        try:
            for start in range(0, len(used), _MOST_TOUCHES):
                await self._tables.touch(used[start : start + _MOST_TOUCHES])
            if self._sweeps_to_skip:
                self._sweeps_to_skip -= 1
                return
            while await self._tables.sweep(self._kept_seconds + _GRACE * self._round):
                pass
        except StoreUnavailableError:
            # The other processes may have failed to record their topics too.
            self._sweeps_to_skip = _GRACE
            self._used |= dict.fromkeys(used)
        except Exception as error:  # an error must not prevent the next round
            emit("aiowheel.topics_not_swept", error=error_repr(error))
