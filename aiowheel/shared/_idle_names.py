"""The names and values of the counters of idle keys. Rank 4.

Each key has one counter: the time of its last touch or discard, in milliseconds of the store's
clock, doubled; a discard adds one. The greater value is therefore the later call, whichever process
made it and in whatever order the writes arrive. A checksum spreads the keys over partitions.
"""

from __future__ import annotations

from zlib import crc32

from aiowheel.shared._store import LONGEST_KEY, checked_key

PARTITIONS = tuple(f"{number:02x}" for number in range(64))
_AROUND = len(":xx:")  # the partition and its separators, between name and key


class IdleNames:
    """The names of the counters of one `SharedIdle`.

    Attributes:
        prefix: The prefix of the keys' counters.
        control: The prefix of the counters of leases and seats.
    """

    def __init__(self, name: str) -> None:
        self.prefix = f"{name}:"
        self.control = f"{name}!"
        self._part = slice(len(name) + 1, len(name) + 3)
        self._key = slice(len(name) + _AROUND, None)
        self._longest = LONGEST_KEY - len(name) - _AROUND

    def checked(self, key: object) -> str:
        """Return *key* if its counter can be stored.

        Raises:
            TypeError: *key* is not a string.
            ValueError: *key* is empty or too long, or has a NUL or half a surrogate pair.
        """
        return checked_key(key, self._longest)

    def counter(self, key: str) -> str:
        """Return the name of the counter of *key*."""
        part = PARTITIONS[crc32(key.encode()) % len(PARTITIONS)]
        return f"{self.prefix}{part}:{key}"

    def part(self, counter: str) -> str:
        """Return the partition of a counter whose name has the prefix."""
        return counter[self._part]

    def key(self, counter: str) -> str:
        """Return the key of a counter whose name has the prefix."""
        return counter[self._key]


def value_at(now_ms: int, before: int, *, discard: bool) -> int:
    """Return the value of a touch or a discard; at least *before*, the process's last value."""
    least = max(2 * now_ms + discard, before)
    return least + ((least ^ discard) & 1)


def time_of(value: int) -> int:
    """Return the time of a value, in milliseconds of the store's clock."""
    return value >> 1


def is_discard(value: int) -> bool:
    """Return whether a value is that of a discard."""
    return bool(value & 1)
