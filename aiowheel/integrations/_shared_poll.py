"""One long poll of a shared counter, whose token is the tag of the answer. Rank 4.

The token is read before the data, so that the tag is never newer than the data, and a client misses
no change. If the tag is older than the data, the client gets the same answer once more.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, NamedTuple

from aiowheel._arguments import safe_repr
from aiowheel._callbacks import AWAIT_BEFORE, plain_callback
from aiowheel.errors import EpochChangedError, StoreUnavailableError
from aiowheel.integrations._poll import called
from aiowheel.integrations._version import ANY
from aiowheel.shared import SharedCounters
from aiowheel.shared._store import checked_key, checked_value
from aiowheel.shared._tokens import parsed_token, token_of
from aiowheel.timer import timeout

_READ_LIMIT = 5.0  # seconds; a cached counter needs no read, and a working store is much faster


class PollResult(NamedTuple):
    """The result of a wait.

    Attributes:
        token: Token of the counter.
        changed: Whether the counter has changed; False after the timeout.
    """

    token: str
    changed: bool


class SharedPoll:
    """A client that waits until its token of *key* is out of date.

    Args:
        shared: The counters.
        key: Key of the counter.
        answer: A plain or coroutine function that reads the data.
        version: A plain function that takes the result of *answer* and returns its version. None:
            the data has no version.

    Raises:
        TypeError: An argument has the wrong type.
        ValueError: *key* is out of range.
    """

    def __init__(
        self,
        shared: SharedCounters,
        key: object,
        answer: Callable[[], object],
        version: Callable[..., object] | None,
    ) -> None:
        if not callable(answer):
            raise TypeError(f"answer must be a function, got {safe_repr(answer)}")
        if version is not None:
            plain_callback("version", version, AWAIT_BEFORE)
        self._shared = shared
        self._key = checked_key(key)
        self._answer = answer
        self._version = version

    async def news(self, seen: str | None, longest: float) -> PollResult:
        """Wait until *seen* is out of date, for at most *longest* seconds.

        Args:
            seen: The token of the client, `ANY`, or None for a client without one.
            longest: Seconds; may be infinite. A read of the counter has its own limit.

        Raises:
            StoreUnavailableError: The store does not answer.
            PurgatoryFullError, PurgatoryClosedError, SharedCountersClosedError: No poll can wait.
        """
        if seen == ANY:
            seen = await self._token()
        if seen is not None:
            try:
                if not await self._shared.wait_past({self._key: seen}, longest):
                    return PollResult(seen, changed=False)
            except EpochChangedError:
                pass  # the store lost its history: the current data is the answer
        return PollResult(await self._token(), changed=True)

    async def _token(self) -> str:
        try:
            async with timeout(_READ_LIMIT):
                return await self._shared.token(self._key)
        except TimeoutError:
            raise StoreUnavailableError(
                f"the store did not answer within {_READ_LIMIT:g} seconds"
            ) from None

    async def read(self) -> Any:
        """Call *answer*, and return its result."""
        found = self._answer()
        return await found if inspect.isawaitable(found) else found

    async def tag(self, found: object, token: str) -> str:
        """Return the token of the answer *found*, which was read when the counter was at *token*.

        If the version is above the counter, this call raises the counter, because the process that
        wrote the version may have died before it did so. Clients with that version then wait for
        the next one. Version 0 of a key without a counter belongs to data that was never published.

        Raises:
            TypeError, ValueError: The version is out of range.
        """
        if self._version is None:
            return token
        version = checked_value("version", called("version", self._version, found))
        epoch, value = parsed_token(token)
        if version == 0 and value < 0:
            return token
        if version <= value:
            return token_of(epoch, version)
        try:
            return await self._shared.advance(self._key, version)
        except StoreUnavailableError:
            return token  # older than the data: the client gets the answer once more
