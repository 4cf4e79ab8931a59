"""A consumer group: who belongs to it, and who has come to the present rebalance."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any


class Group:
    """Members and generations; knows nothing of time."""

    def __init__(self) -> None:
        self.generation = 0
        self.members: list[str] = []  # in the order they came; the first one leads
        self.joined: set[str] = set()
        self.rebalance: Awaitable[dict[str, Any]] | None = None  # what those who joined wait for

    @property
    def everybody_joined(self) -> bool:
        """Whether nobody is missing from the rebalance."""
        return self.joined.issuperset(self.members)

    def join(self, member: str) -> None:
        """Come to the rebalance."""
        if member not in self.members:
            self.members.append(member)
        self.joined.add(member)

    def remove(self, member: str) -> None:
        """Leave the group."""
        self.members.remove(member)
        self.joined.discard(member)

    def begin_generation(self) -> dict[str, Any]:
        """Go on with those who joined."""
        self.members = [member for member in self.members if member in self.joined]
        self.joined.clear()
        self.rebalance = None
        self.generation += 1
        return {"generation": self.generation, "members": list(self.members)}
