"""One long poll of a shared counter, whose token is the tag of the answer. Rank 4.

The order loses nothing: the token is read before the data, so that the tag is never newer than the
data it comes with. A client that has an older tag than its data is answered once more.
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

_READ_LIMIT = 5.0  # seconds; a kept counter needs no read, and a store that runs answers far sooner


class News(NamedTuple):
    """What a poll has waited for.

    Attributes:
        token: Of the counter.
        changed: False after the timeout.
    """

    token: str
    changed: bool


class SharedPoll:
    """A client that waits until its token of *key* is out of date.

    Args:
        shared: The counters.
        key: Of the counter.
        answer: A plain or coroutine function that reads the data.
        version: A plain function that returns the version of what *answer* returned; None: the data
            has none.

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

    async def news(self, seen: str | None, longest: float) -> News:
        """Wait until *seen* is out of date, for at most *longest* seconds.

        Args:
            seen: The token of the client, `ANY`, or None for a client without one.
            longest: May be infinite. A read of the counter has a limit of its own.

        Raises:
            StoreUnavailableError: The store does not answer.
            PurgatoryFullError, PurgatoryClosedError, SharedCountersClosedError: No poll can wait.
        """
        if seen == ANY:
            seen = await self._token()
        if seen is not None:
            try:
                if not await self._shared.wait_past({self._key: seen}, longest):
                    return News(seen, changed=False)
            except EpochChangedError:
                pass  # the state of now is the answer
        return News(await self._token(), changed=True)

    async def _token(self) -> str:
        try:
            async with timeout(_READ_LIMIT):
                return await self._shared.token(self._key)
        except TimeoutError:
            raise StoreUnavailableError(
                f"the store did not answer within {_READ_LIMIT:g} seconds"
            ) from None

    async def read(self) -> Any:
        """Return what the application answers."""
        found = self._answer()
        return await found if inspect.isawaitable(found) else found

    async def tag(self, found: object, token: str) -> str:
        """Return the token of the answer *found*, which was read when the counter was at *token*.

        A version ahead of the counter was written by a process that has not raised the counter, and
        may have died meanwhile: so this call raises it, and the polls of that version wait. Version
        0 of a key without a counter is that of data that nothing has published yet.

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
            return token  # older than the data: the client is answered once more
