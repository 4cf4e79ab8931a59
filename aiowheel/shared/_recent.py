"""The last publishes of a process, which it repeats when the store may have lost them. Rank 4.

A server that fails over to a replica keeps its epoch, but may lose the last writes that it had
confirmed. A publish is a maximum, so the process can repeat it safely.
"""

from __future__ import annotations

from collections.abc import Mapping


class RecentPublishes:
    """The publishes of the last *seconds*, up to twice as many; one entry for each key."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._epoch = ""
        self._begun = 0.0
        self._new: dict[str, int] = {}
        self._old: dict[str, int] = {}

    def add(self, epoch: str, values: Mapping[str, int], now: float) -> None:
        """Record *values*, which were written in *epoch* at the time *now*, in seconds."""
        if epoch != self._epoch:
            self._epoch, self._old, self._new = epoch, {}, {}
        if now - self._begun >= self._seconds:
            self._begun = now
            self._old, self._new = self._new, {}
        new = self._new
        for key, value in values.items():
            if new.get(key, -1) < value:
                new[key] = value

    def keys(self, epoch: str) -> list[str]:
        """Return the keys of the publishes of *epoch*; those of a lost history are void."""
        return list(self._old | self._new) if epoch == self._epoch else []

    def value(self, epoch: str, key: str) -> int:
        """Return the greatest published value of a key in *epoch*; -1 if there is none."""
        if epoch != self._epoch:
            return -1
        return max(self._old.get(key, -1), self._new.get(key, -1))

    def drop(self, key: str) -> None:
        """Forget one key."""
        self._new.pop(key, None)
        self._old.pop(key, None)
