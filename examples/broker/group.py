"""A consumer group: its members, and those that joined the current rebalance."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any


class Group:
    """The members and generations of a group, without timeouts."""

    def __init__(self) -> None:
        self.generation = 0
        self.members: list[str] = []  # in the order of joining; the first one leads
        self.joined: set[str] = set()
        self.rebalance: Awaitable[dict[str, Any]] | None = None  # joined members wait for it

    @property
    def all_joined(self) -> bool:
        """Whether all members have joined the rebalance."""
        return self.joined.issuperset(self.members)

    def join(self, member: str) -> None:
        """Join the rebalance."""
        if member not in self.members:
            self.members.append(member)
        self.joined.add(member)

    def remove(self, member: str) -> None:
        """Leave the group."""
        self.members.remove(member)
        self.joined.discard(member)

    def begin_generation(self) -> dict[str, Any]:
        """Reduce the group to the joined members and return the new generation."""
        self.members = [member for member in self.members if member in self.joined]
        self.joined.clear()
        self.rebalance = None
        self.generation += 1
        return {"generation": self.generation, "members": list(self.members)}
