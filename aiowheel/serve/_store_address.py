"""Parsing of the address of a store of topics, the value of `--store`. Rank 5."""

from __future__ import annotations

from contextlib import suppress

from aiowheel._asyncpg import SCHEMES
from aiowheel._printable import scheme_only
from aiowheel.errors import BadInputError
from aiowheel.serve._limits import Limits
from aiowheel.serve._memory_topics import MemoryTopics
from aiowheel.serve._postgres_topics import PostgresTopics
from aiowheel.serve._redis_topics import RedisTopics
from aiowheel.serve._shared_store import SharedStore
from aiowheel.serve._sqlite_topics import SqliteTopics
from aiowheel.serve._topic_store import TopicStore

LONGEST_NAME = 1_000  #: characters: a topic's counter has a key of at most 1,024 bytes
_SQLITE = "sqlite:///"
_REDIS = ("redis://", "rediss://", "unix://", "redis+sentinel://", "redis+cluster://")


def topic_store(address: str | None, limits: Limits) -> TopicStore:
    """Return a new store of topics at *address*; None: in the memory of this process.

    Raises:
        BadInputError: *address* is malformed, or `limits.name_length` is too large for a store.
        MissingExtraError: The store needs a package that is not installed.
    """
    if address is None:
        return MemoryTopics(limits)
    if limits.name_length > LONGEST_NAME:
        text = f"name_length must be at most {LONGEST_NAME} with a store"
        raise BadInputError(f"{text}, got {limits.name_length}")
    path = address.removeprefix(_SQLITE)
    if path != address and path and not path.startswith(":") and "\0" not in path:
        with suppress(ValueError):
            return SharedStore(SqliteTopics(path, limits), limits)
    if address.startswith(SCHEMES):
        return SharedStore(PostgresTopics(address, limits), limits)
    if address.startswith(_REDIS):
        try:
            return SharedStore(RedisTopics(address, limits), limits)
        except ValueError as error:  # its text names the flaw, and never the password
            raise BadInputError(f"store: {error}") from None
    legal = "sqlite:///PATH, postgresql://USER@HOST/DATABASE or redis://HOST:PORT/DATABASE"
    raise BadInputError(f"store must be {legal}, got {scheme_only(address)}")
