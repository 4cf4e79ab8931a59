"""Keys for tests of keyed collections."""

from __future__ import annotations


class RenamedKey:
    """A key whose name, by which it is compared, may change."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __hash__(self) -> int:
        return hash(self.name)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RenamedKey) and self.name == other.name
