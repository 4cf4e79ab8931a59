"""Operations of a purgatory that complete, expire, are cancelled and fail; each is counted."""

from __future__ import annotations

from asyncio import Future
from collections import deque
from random import Random

from aiowheel import DelayedOperation, Purgatory

from .living import LONGEST, RING, InjectedError, Token

KEYS = 100


class Fetch(DelayedOperation[int]):
    """An operation that waits until a log is long enough."""

    def __init__(self, work: PurgatoryWork, key: int, wanted: int) -> None:
        super().__init__(work.chance.random() * LONGEST)
        self.work = work
        self.key = key
        self.wanted = wanted
        self.token = Token()

    def try_complete(self) -> bool:
        """Return whether the log is long enough; some operations raise at a later check."""
        if self.token.raises:
            self.work.raised += 1
            raise InjectedError
        return self.work.logs[self.key] >= self.wanted

    def on_complete(self) -> int:
        """Count the completion."""
        self.work.ends += 1
        self.work.unsure += self.token.ended
        self.token.ended = True
        return self.wanted

    def on_expiration(self) -> None:
        """Count the timeout."""
        self.work.timeouts += 1


class PurgatoryWork:
    """Operations that wait for conditions, and waits for counters."""

    def __init__(self, purgatory: Purgatory, chance: Random) -> None:
        self._purgatory = purgatory
        self.chance = chance
        self.logs = [0] * KEYS
        self._offsets = [0] * KEYS
        self._operations: deque[Fetch] = deque(maxlen=RING)
        self._waits: deque[Future[bool]] = deque(maxlen=RING)
        self.began = 0
        self.ends = 0  # calls of on_complete
        self.timeouts = 0  # calls of on_expiration
        self.reached = 0  # waits for counters that ended with True
        self.missed = 0  # waits for counters that ended with False
        self.cancelled = 0
        self.raised = 0
        self.awaited = 0  # results that an awaiter received
        self.errors = 0  # injected errors that an awaiter received
        self.withdrawn = 0  # cancelled awaiters
        self.futures = 0  # all awaiters
        self.unsure = 0

    def steps(self) -> dict[str, int]:
        """Return the methods among which a turn chooses, with their weights."""
        return {
            "watch": 6,
            "watch_without_awaiter": 4,
            "watch_raising": 1,
            "wait_until": 4,
            "append": 10,
            "advance": 10,
            "force": 2,
            "cancel": 2,
            "cancel_wait": 2,
        }

    def watch(self) -> Fetch:
        """Watch an operation and record how its future ends."""
        operation = self._operation()
        future = self._purgatory.watch(operation, self._keys(operation))
        self.began += 1
        self.futures += 1
        future.add_done_callback(self._settled)
        self._operations.append(operation)
        return operation

    def watch_without_awaiter(self) -> None:
        """Watch an operation to which only the purgatory refers."""
        operation = self._operation()
        self._purgatory.try_complete_else_watch(operation, self._keys(operation))
        self.began += 1

    def watch_raising(self) -> None:
        """Watch an operation whose next check raises if it comes before the timeout."""
        self.watch().token.raises = True

    def wait_until(self) -> None:
        """Wait for a counter."""
        key = self.chance.randrange(KEYS)
        wanted = self._offsets[key] + self.chance.randrange(1, 4)
        wait = self._purgatory.wait_until({("offset", key): wanted}, self.chance.random() * LONGEST)
        self.began += 1
        wait.add_done_callback(self._ended)
        self._waits.append(wait)

    def append(self) -> None:
        """Make a log longer, and check its key."""
        key = self.chance.randrange(KEYS)
        self.logs[key] += 1
        self._purgatory.check_and_complete(key)

    def advance(self) -> None:
        """Advance a counter."""
        key = self.chance.randrange(KEYS)
        self._offsets[key] += 1
        self._purgatory.advance(("offset", key), self._offsets[key])

    def force(self) -> None:
        """Force an operation."""
        if self._operations:
            self._operations.popleft().force_complete()

    def cancel(self) -> None:
        """Cancel an operation."""
        if self._operations:
            self.cancelled += self._operations.popleft().cancel()

    def cancel_wait(self) -> None:
        """Cancel the future of a wait, as a cancelled task does."""
        if self._waits:
            self.cancelled += self._waits.popleft().cancel()

    def settle(self) -> None:
        """Drop every reference: the operations expire by themselves."""
        self._operations.clear()
        self._waits.clear()

    def pending(self) -> int:
        """Return the number of operations and waits that have not ended."""
        statistics = self._purgatory.statistics()
        return self.began - sum(statistics[3:7])

    def flaws(self) -> list[str]:
        """Return descriptions of what is wrong when nothing is pending."""
        counted = self._purgatory.statistics()
        failed = self.raised
        mine = {
            "completed": self.ends - self.timeouts + self.reached,
            "expired": self.timeouts + self.missed,
            "cancelled": self.cancelled,
            "failed": failed,
            "pending": 0,
            "watched": 0,
            "estimated_total": 0,
        }
        flaws = [
            f"the purgatory counts {getattr(counted, name)} {name}, we {count}"
            for name, count in mine.items()
            if getattr(counted, name) != count
        ]
        if self.awaited + self.errors + self.withdrawn != self.futures:
            flaws.append(
                f"{self.futures} awaiters, but {self.awaited} results and {self.errors} errors"
            )
        if self.errors != failed:
            flaws.append(f"{failed} operations failed, and {self.errors} awaiters heard of it")
        if self.unsure:
            flaws.append(f"{self.unsure} operations ended twice, or with a wrong result")
        return flaws

    def _operation(self) -> Fetch:
        key = self.chance.randrange(KEYS)
        return Fetch(self, key, self.logs[key] + self.chance.randrange(1, 4))

    def _keys(self, operation: Fetch) -> list[object]:
        keys: list[object] = [operation.key, ("tenant", operation.key % 7), "all"]
        return keys[: self.chance.randrange(1, 4)]

    def _settled(self, future: Future[int]) -> None:
        if future.cancelled():
            self.withdrawn += 1
        elif isinstance(future.exception(), InjectedError):
            self.errors += 1
        else:
            self.awaited += 1
            self.unsure += future.result() <= 0

    def _ended(self, wait: Future[bool]) -> None:
        if not wait.cancelled():
            self.reached += wait.result()
            self.missed += not wait.result()
