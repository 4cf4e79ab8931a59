"""The idle detector of one shard of keys, between two micro-batches a few bytes. Rank 5: no Spark.

It replays recorded touches by the rule of `aiowheel.recipes`. What it has to remember is a bag of
touches. Most of them are older than the last micro-batch, so the state has two values: the *base*,
which is rewritten rarely, and the *recent* touches, which the base does not have.

Touches of the base that are over stay in it. They do no harm: a touch that is no longer needed has
a later one of its key, or its key has fallen idle at or before the frontier, and events up to the
frontier of the recent touches are out already.
"""

import io
from collections.abc import Iterable, Mapping
from typing import Any, Final

import pyarrow as pa

from aiowheel.errors import AiowheelError
from aiowheel.readers import LATEST_TIME
from aiowheel.recipes._idle_trace import IdleEvent, IdleTrace, Touch

#: Of `IdleShard.changes`; one that is unknown here is refused.
STATE_VERSION: Final = 3
#: The values of the state, as Spark writes their schemas.
STATE: Final = {
    "touches": "version int, touches binary",
    "recent": "version int, touches binary, frontier bigint",
}

_BASE, _RECENT = STATE
_TOUCHES = pa.schema({"t": pa.int64(), "key": pa.string()})
_OPTIONS = pa.ipc.IpcWriteOptions(compression="zstd")
_FEW: Final = 256  # touches: to keep them apart saves nothing
_NOTHING: Final = -1  # the frontier before the first one


class IdleShard:
    """Takes touches in any order, and finds what fell idle once none is missing.

    `feed` only keeps; `settle` works off what lies at or before a *frontier*, of which the caller
    says that no touch will come any more. What it returns in all does not depend on how the touches
    are cut.

    Args:
        timeout: In the unit of the touches, above 0.
        base: Touches that are written down, and that need not be written again.
        recent: Other touches that are written down.
        frontier: Up to where the events of these touches are out.
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
        """How many touches it remembers; 0 when no key is open."""
        return len(self._touches)

    def feed(self, touches: Iterable[Touch]) -> None:
        """Take touches in, each later than the last frontier."""
        self._touches.extend(touches)

    def settle(self, frontier: int) -> list[IdleEvent]:
        """Find what fell idle up to and including *frontier*.

        Returns:
            ``(fire, key)`` by fire time, then by key; fire times lie above the last frontier.

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
        """No event lies before this time, unless touches come; None when no key is open."""
        return min(t for t, _ in self._touches) + self._timeout if self._touches else None

    def changes(self) -> dict[str, tuple[Any, ...] | None]:
        """Write down the values that are not as `load` has read them; None for one that goes.

        A shard that nothing happened to has none. One that is touched on some keys writes those of
        the recent touches, and all of them when they have become a quarter of the base.
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
        """Read what `changes` wrote.

        Args:
            timeout: In the unit of the touches.
            values: The last value of each name; one that has gone is missing.

        Raises:
            AiowheelError: Another version of this package wrote it.
        """
        touches: dict[str, list[Touch]] = {}
        frontier = _NOTHING
        for name, (version, state, *settled) in values.items():
            if version != STATE_VERSION:
                raise AiowheelError(
                    f"the checkpoint holds state of version {version}, this release reads "
                    f"{STATE_VERSION}: finish the stream with the release that began it"
                )
            with pa.ipc.open_stream(bytes(state)) as reader:
                columns = reader.read_all().to_pydict()
            touches[name] = list(zip(columns["t"], columns["key"], strict=True))
            frontier = max([frontier, *map(int, settled)])
        return cls(timeout, touches.get(_BASE, ()), touches.get(_RECENT, ()), frontier)


def _written(touches: set[Touch]) -> bytes:
    """Touches in Arrow's stream format, compressed."""
    sink = io.BytesIO()
    ordered = sorted(touches)
    batch = pa.RecordBatch.from_pydict(
        {"t": [t for t, _ in ordered], "key": [key for _, key in ordered]}, _TOUCHES
    )
    with pa.ipc.new_stream(sink, _TOUCHES, options=_OPTIONS) as writer:
        writer.write_batch(batch)
    return sink.getvalue()


def condensed(touches: list[Touch], timeout: int) -> list[Touch]:
    """Drop every touch that changes nothing: its neighbours alone keep the key alive over it.

    So a key that is touched all the time costs two touches, and a stretch of *timeout* at most
    two, however many rows there were. Touches that come later cannot part what is closed up.

    Args:
        touches: By time.
        timeout: In their unit.
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
