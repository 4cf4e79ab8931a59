"""The idle detector of one shard of keys, with a small state. Rank 5: no Spark.

The detector replays recorded touches by the rule of `aiowheel.recipes`. It keeps a bag of touches
between micro-batches. Most of them are older than the last micro-batch, so the state has two
values: the *base*, which is rewritten rarely, and the *recent* touches, which are missing in the
base.

The base may keep touches that are no longer needed. They do no harm: such a touch has a later one
of its key, or its key became idle at or before the frontier, and events up to the frontier are not
emitted again.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final

import pyarrow as pa

from aiowheel.jobs.spark.checkpoint import refuse_other_version
from aiowheel.jobs.spark.packs import pack, unpack
from aiowheel.readers import LATEST_TIME
from aiowheel.recipes._idle_trace import IdleEvent, IdleTrace, Touch

#: The version of the state that `IdleShard.changes` writes; any other version is refused.
STATE_VERSION: Final = 3
#: The values of the state, as Spark schemas.
STATE: Final = {
    "touches": "version int, touches binary",
    "recent": "version int, touches binary, frontier bigint",
}

_BASE, _RECENT = STATE
_TOUCHES = pa.schema({"t": pa.int64(), "key": pa.string()})
_FEW: Final = 256  # below so many touches, a separate value saves nothing
_NOTHING: Final = -1  # the frontier of a new shard


class IdleShard:
    """A detector that takes touches in any order and finds idle keys up to a frontier.

    `feed` only stores touches; `settle` processes those at or before a *frontier*. The caller
    guarantees that no touch at or before the frontier comes later. The events do not depend on how
    the touches are divided into batches.

    Args:
        timeout: In the unit of the touches, above 0.
        base: Touches of the stored base, which need not be written again.
        recent: The other stored touches.
        frontier: The time up to which the events of these touches have been emitted.
    """

    def __init__(
        self,
        timeout: int,
        base: Iterable[Touch] = (),
        recent: Iterable[Touch] = (),
        frontier: int = _NOTHING,
    ) -> None:
        self._timeout = timeout
        self._frontier = frontier
        self._base = set(base)
        self._recent = set(recent)
        self._touches = [*self._base, *self._recent]
        self._has_events = False

    def __len__(self) -> int:
        """The number of stored touches; 0 when no key is open."""
        return len(self._touches)

    def feed(self, touches: Iterable[Touch]) -> None:
        """Store touches, each later than the last frontier."""
        self._touches.extend(touches)

    def settle(self, frontier: int) -> list[IdleEvent]:
        """Return the events up to and including *frontier*.

        Returns:
            ``(fire, key)`` by fire time, then by key; fire times are later than the last frontier.

        Cost: a sort of the touches, some microseconds each.
        """
        trace = IdleTrace(self._timeout)
        self._touches.sort()
        ahead = [touch for touch in self._touches if touch[0] > frontier]
        events = list(trace.replay(self._touches[: len(self._touches) - len(ahead)]))
        events += trace.close_until(min(frontier, LATEST_TIME))  # no event is later
        self._touches = trace.last_touches() + condensed(ahead, self._timeout)
        events = [event for event in events if event[0] > self._frontier]
        self._has_events |= bool(events)
        self._frontier = max(self._frontier, frontier)
        return events

    def next_fire(self) -> int | None:
        """Return a lower bound of the next event, if no touch comes; None when no key is open."""
        return min(t for t, _ in self._touches) + self._timeout if self._touches else None

    def changes(self) -> dict[str, tuple[Any, ...] | None]:
        """Return the values that differ from the stored ones; None deletes a value.

        An unchanged shard has none. A shard with a few new touches writes the recent touches only;
        when these exceed a quarter of the base, it writes the base anew.
        """
        if not self._touches:
            return {_BASE: None, _RECENT: None}
        touches = set(self._touches)
        recent = touches - self._base
        if len(recent) > max(_FEW, len(self._base) // 4) or 2 * len(touches) < len(self._base):
            return {_BASE: (STATE_VERSION, _written(touches)), _RECENT: None}
        if recent == self._recent and not self._has_events:
            return {}
        return {_RECENT: (STATE_VERSION, _written(recent), self._frontier)}

    @classmethod
    def load(cls, timeout: int, values: Mapping[str, tuple[Any, ...]]) -> "IdleShard":
        """Restore a shard from the values that `changes` returned.

        Args:
            timeout: In the unit of the touches.
            values: The last value of each name, without deleted ones.

        Raises:
            AiowheelError: The values have another version.
        """
        touches: dict[str, list[Touch]] = {}
        frontier = _NOTHING
        for name, (version, state, *settled) in values.items():
            refuse_other_version(version, STATE_VERSION)
            touches[name] = [(t, key) for t, key in unpack(state)]
            frontier = max([frontier, *map(int, settled)])
        return cls(timeout, touches.get(_BASE, ()), touches.get(_RECENT, ()), frontier)


def _written(touches: set[Touch]) -> bytes:
    return pack(_TOUCHES, sorted(touches), compression="zstd")


def condensed(touches: list[Touch], timeout: int) -> list[Touch]:
    """Remove touches without effect: those whose neighbours alone keep the key alive.

    A key that is touched all the time keeps two touches, and at most two for each stretch of
    *timeout*, for any number of rows. Later touches cannot change the effect.

    Args:
        touches: Sorted by time.
        timeout: In the unit of the touches.
    """
    kept: dict[str, list[int]] = {}
    for t, key in touches:
        times = kept.get(key)
        if times is None:
            kept[key] = [t]
        elif len(times) > 1 and t - times[-2] <= timeout:
            times[-1] = t
        else:
            times.append(t)
    return [(t, key) for key, times in kept.items() for t in times]
