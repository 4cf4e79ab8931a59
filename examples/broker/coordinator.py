"""Consumer groups: joins that wait for each other, and sessions that end in silence."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from typing import Any

from aiowheel import Purgatory, Timer
from examples.broker.delayed import DelayedHeartbeat, DelayedJoin
from examples.broker.group import Group


class Coordinator:
    """The coordinator of the consumer groups.

    Args:
        timer: The timer of all timeouts.
        rebalance_timeout: Seconds that joined members wait for the others.
        session_timeout: Seconds without a heartbeat after which a member is removed.
    """

    def __init__(self, timer: Timer, rebalance_timeout: float, session_timeout: float) -> None:
        self.joins = Purgatory("join", timer=timer)
        self.heartbeats = Purgatory("heartbeat", timer=timer)
        self._rebalance_timeout = rebalance_timeout
        self._session_timeout = session_timeout
        self._groups: defaultdict[str, Group] = defaultdict(Group)

    async def join(self, name: str, member: str) -> dict[str, Any]:
        """Join, or join again; the answer comes when the rebalance is over."""
        group = self._groups[name]
        group.join(member)
        self._expect_heartbeat(name, member)
        rebalance = group.rebalance
        if rebalance is None:
            operation = DelayedJoin(group, self._rebalance_timeout)
            rebalance = self.joins.watch(operation, [name])
            if not operation.is_completed():
                group.rebalance = rebalance
        else:
            self.joins.check_and_complete(name)
        # Many members wait for one rebalance: a disconnected one must not cancel it.
        answer = await asyncio.shield(rebalance)
        if member not in answer["members"]:
            return {"error": "UNKNOWN_MEMBER_ID"}
        return {"error": "NONE", **answer}

    def leave(self, name: str, member: str) -> dict[str, Any]:
        """Leave the group; this may complete a rebalance that waited for the member."""
        # The session first: its expiration would start a rebalance of the other members.
        self.heartbeats.cancel_for_key((name, member))
        self._remove(name, member)
        return {"error": "NONE"}

    def heartbeat(self, name: str, member: str) -> dict[str, Any]:
        """Extend the session; return whether the member must join again."""
        group = self._groups[name]
        if member not in group.members:
            return {"error": "UNKNOWN_MEMBER_ID"}
        self._expect_heartbeat(name, member)
        return {"error": "NONE" if group.rebalance is None else "REBALANCE_IN_PROGRESS"}

    def _expect_heartbeat(self, name: str, member: str) -> None:
        key = (name, member)
        self.heartbeats.cancel_for_key(key)
        session = DelayedHeartbeat(self._session_timeout, lambda: self._remove(name, member))
        self.heartbeats.try_complete_else_watch(session, [key])

    def _remove(self, name: str, member: str) -> None:
        group = self._groups[name]
        if member not in group.members:  # a rebalance has removed it already
            return
        group.remove(member)
        if group.members and group.rebalance is None:
            group.rebalance = self.joins.watch(DelayedJoin(group, self._rebalance_timeout), [name])
        self.joins.check_and_complete(name)
