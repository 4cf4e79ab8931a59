"""Choices made from bytes: equal bytes make equal choices, missing bytes the smallest ones."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")


class Draw:
    """A source of values from *data*; after the end of the data each value is the smallest."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def more(self) -> bool:
        """Return whether bytes are left."""
        return self._at < len(self._data)

    def take(self, count: int) -> bytes:
        """Return the next *count* bytes, padded with zeros."""
        taken = self._data[self._at : self._at + count]
        self._at += count
        return taken.ljust(count, b"\0")

    def rest(self) -> bytes:
        """Return the remaining bytes."""
        rest = self._data[self._at :]
        self._at = len(self._data)
        return rest

    def number(self, least: int, most: int) -> int:
        """Return an integer from *least* to *most*."""
        span = most - least + 1
        size = (span.bit_length() + 7) // 8
        return least + int.from_bytes(self.take(size), "little") % span

    def choice(self, among: Sequence[T]) -> T:
        """Return one of *among*."""
        return among[self.number(0, len(among) - 1)]

    def real(self) -> float:
        """Return any float, infinities and NaN included."""
        value: float = struct.unpack("<d", self.take(8))[0]
        return value

    def text(self, count: int) -> str:
        """Return up to *count* bytes as text."""
        return self.take(min(count, self.number(0, 255))).rstrip(b"\0").decode("latin-1")


def check_reason(error: Exception, *words: str) -> None:
    """Check that the error text contains these words."""
    assert str(error)
    assert all(word in str(error) for word in words)
