"""The interface of a store of shared counters, and the legal keys and values. Rank 4.

A counter only grows: every write is a maximum, so a write may be repeated, reordered or merged with
others, and a message about it is only a hint.
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple, Protocol, cast
from weakref import WeakValueDictionary

from aiowheel._arguments import checked_str, safe_repr

#: The longest key, in bytes of UTF-8: PostgreSQL indexes no more than 2,700 bytes.
LONGEST_KEY = 1024
#: The greatest value: what SQLite and PostgreSQL store in 64 bits.
GREATEST_VALUE = 2**63 - 1
_NAME = re.compile("[a-z][a-z0-9_]{0,39}")


class HintListener(Protocol):
    """The receiver of hints; a store calls it in the event loop in which it was opened."""

    def hint(self, epoch: str, values: Mapping[str, int]) -> None:
        """Report that under *epoch* each of these counters has reached its value, or more."""
        ...

    def gap(self) -> None:
        """Report that hints may have been lost before now, and that later ones will arrive.

        A store calls it after it has subscribed again, not when it loses the connection.
        """
        ...


def hint_values(found: object) -> dict[str, int] | None:
    """Return the values of a hint; None if *found* is no object of legal keys and values."""
    if not isinstance(found, dict):
        return None
    values = cast("dict[object, object]", found)
    try:
        return {checked_key(key): checked_value("value", each) for key, each in values.items()}
    except (TypeError, ValueError):
        return None


def deliver_hint(listener: HintListener, epoch: str, text: str) -> None:
    """Report the hint with the values *text*, as JSON.

    A malformed hint is reported as a gap: others than aiowheel may write to the channel of a
    server.
    """
    try:
        values = hint_values(json.loads(text))
    except (ValueError, RecursionError):
        values = None
    if values is None:
        listener.gap()
    else:
        listener.hint(epoch, values)


class CounterPage(NamedTuple):
    """One page of a listing of counters.

    Attributes:
        epoch: The history that the page was read from.
        values: Counters and their values, in no promised order.
        after: The argument *after* of `CounterStore.scan` for the next page; None if this page is
            the last one.
    """

    epoch: str
    values: dict[str, int]
    after: str | None


class CounterStore(Protocol):
    """Counters that many processes share; each process has its own object for them.

    A store raises `StoreUnavailableError` for temporary failures, such as a lost connection: the
    caller then repeats the call. Any other exception is final for that call.

    The history of the counters has a name, the epoch: a text without a colon. A store that has lost
    counters must have another epoch. Every call that writes therefore proposes a new random epoch,
    which a store without an epoch takes. With a constant proposal, two histories would have the
    same name.
    """

    async def open(self, listener: HintListener) -> None:
        """Subscribe: every write that begins after this call reaches *listener*, or a gap does.

        Hints for writes of this object count as well. A store that was closed may be opened again,
        also in another event loop.

        Raises:
            StoreUnavailableError: The store does not answer.
        """
        ...

    async def raise_to(self, values: Mapping[str, int]) -> str:
        """Raise each counter to its value unless it is higher already, then send a hint.

        The write is atomic and has been made when the call returns.

        Returns:
            The epoch of the write.
        """
        ...

    async def add_one(self, keys: Collection[str]) -> str:
        """Add one to each counter, from 0 where it has no value, then send a hint.

        Two calls at the same time count as two. When a call raises `StoreUnavailableError`, the
        caller repeats it, and a counter may have grown by more than one.

        Returns:
            The epoch of the write.
        """
        ...

    async def read(self, keys: Collection[str]) -> tuple[str, dict[str, int]]:
        """Return the epoch, and the values of those counters that have one.

        A read sees every write that had returned, in any process, before the read began.
        """
        ...

    async def scan(self, prefix: str, after: str = "", limit: int = 1000) -> CounterPage:
        """Return one page of the counters whose keys begin with *prefix*.

        A counter that has a value from the first page to the last is on a page, once or more often.
        A page may have no counters although pages follow.

        Args:
            prefix: The prefix of the keys; the empty text lists all counters.
            after: "" for the first page, then the attribute `after` of the previous page.
            limit: About how many counters a page has.
        """
        ...

    async def compare_and_raise(
        self, changes: Mapping[str, tuple[int | None, int | None]]
    ) -> tuple[str, set[str]]:
        """Change those counters that have the values that the caller expects, then send a hint.

        Each comparison is atomic with its change: of several processes that expect the same value,
        one changes the counter. When a call raises `StoreUnavailableError`, the changes may have
        been made.

        Args:
            changes: For each counter the expected value and a greater new value. The expected value
                None stands for a counter without a value. The new value None removes the counter.

        Returns:
            The epoch of the write, and the keys of the counters that were changed.
        """
        ...

    async def now_ms(self) -> int:
        """Return the time in milliseconds since 1970, by one clock for all processes."""
        ...

    async def forget(self, keys: Collection[str]) -> None:
        """Remove the counters; the epoch stays."""
        ...

    async def aclose(self) -> None:
        """Close the connections; idempotent."""
        ...


def new_epoch() -> str:
    """Return a new random name for a history."""
    return secrets.token_hex(8)


def page_of(epoch: str, rows: Iterable[tuple[str, int]], prefix: str, limit: int) -> CounterPage:
    """Return a page of *rows*, which are at most *limit* counters in the order of their keys.

    Keys with the prefix are adjacent in that order, so the first key without it ends the listing.
    """
    values: dict[str, int] = {}
    for key, value in rows:
        if not key.startswith(prefix):
            return CounterPage(epoch, values, None)
        values[key] = value
    return CounterPage(epoch, values, next(reversed(values)) if len(values) == limit else None)


def checked_key(key: object, longest: int = LONGEST_KEY) -> str:
    """Return *key* as a plain `str` if a store can hold it and it has at most *longest* bytes.

    A member of a `StrEnum` may have another text as its `str`.

    Raises:
        TypeError: *key* is not a string.
        ValueError: *key* is empty or too long, or has a NUL or half a surrogate pair.
    """
    text = checked_str("key", key)
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        size = 0
    if not 0 < size <= longest or "\0" in text:
        raise ValueError(
            f"key must be 1 to {longest} bytes of UTF-8 without NUL, got {safe_repr(text)}"
        )
    return text if type(text) is str else str.__str__(text)


def checked_value(name: str, value: object) -> int:
    """Return *value* as a plain `int` if a store can hold it.

    Raises:
        TypeError: *value* is not an int, or is a bool.
        ValueError: *value* is negative or has more than 63 bits.
    """
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{name} must be an int from 0 to 2**63 - 1, got {safe_repr(value)}")
    if not 0 <= value <= GREATEST_VALUE:
        raise ValueError(f"{name} must be from 0 to 2**63 - 1, got {safe_repr(value)}")
    return value if type(value) is int else int.__int__(value)


def checked_store(store: object, name: str = "store") -> CounterStore:
    """Return *store* if it is an object with the calls of a `CounterStore`.

    Raises:
        TypeError: *store* is something else; the text has the *name* of the argument.
    """
    if isinstance(store, type) or not callable(getattr(store, "raise_to", None)):
        raise TypeError(f"{name} must be a CounterStore, got {safe_repr(store)}")
    return cast("CounterStore", store)


def checked_name(name: object) -> str:
    """Return *name* if it can be part of the names of tables, channels and keys of a server.

    Raises:
        TypeError: *name* is not a string.
        ValueError: *name* is not 1 to 40 lower-case letters, digits and underscores with a letter
            first.
    """
    text = checked_str("name", name)
    if not _NAME.fullmatch(text):
        raise ValueError(
            "name must be 1 to 40 lower-case letters, digits and underscores, a letter first, "
            f"got {safe_repr(name)}"
        )
    return text


class StoreUser(Protocol):
    """An object that opens and closes a store."""

    @property
    def closed(self) -> bool:
        """Whether closing has begun."""
        ...


#: By the `id` of the store; each user has a reference to its store.
_users: WeakValueDictionary[int, StoreUser] = WeakValueDictionary()


def claim_store(store: CounterStore, user: StoreUser) -> None:
    """Record that *user* uses *store*; a second user would take the hints of the first one.

    Raises:
        RuntimeError: Another user has not closed the store.
    """
    other = _users.get(id(store))
    if other is not None and not other.closed:
        raise RuntimeError(
            f"this {type(store).__name__} is in use: each {type(user).__name__} needs a store "
            "object of its own"
        )
    _users[id(store)] = user
