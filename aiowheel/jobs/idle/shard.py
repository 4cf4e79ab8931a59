"""The idle detector of one shard of keys, between two micro-batches a few bytes. Rank 5: no Spark.

It replays recorded touches by the rule of `aiowheel.recipes`. What it has to remember is a bag of
touches, so its state is two columns.
"""

import io
from collections.abc import Iterable

import pyarrow as pa

from aiowheel.errors import AiowheelError
from aiowheel.readers import LATEST_TIME
from aiowheel.recipes._idle_trace import IdleEvent, IdleTrace, Touch

#: Of `IdleShard.dump`; one that is unknown here is refused.
STATE_VERSION = 2

_STATE = pa.schema({"t": pa.int64(), "key": pa.string()})
_OPTIONS = pa.ipc.IpcWriteOptions(compression="zstd")


class IdleShard:
    """Takes touches in any order, and tells what fell idle once none is missing.

    `feed` only keeps; `settle` works off what lies at or before a *frontier*, of which the caller
    says that no touch will come any more. What it returns in all does not depend on how the touches
    are cut.

    Args:
        timeout: In the unit of the touches, above 0.
        touches: What `dump` wrote down, read by `load`.
    """

    def __init__(self, timeout: int, touches: list[Touch] | None = None) -> None:
        self._timeout = timeout
        self._touches = touches or []

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
        return events

    def dump(self) -> bytes:
        """Write the state down: Arrow's stream format, compressed."""
        sink = io.BytesIO()
        batch = pa.RecordBatch.from_pydict(
            {"t": [t for t, _ in self._touches], "key": [key for _, key in self._touches]}, _STATE
        )
        with pa.ipc.new_stream(sink, _STATE, options=_OPTIONS) as writer:
            writer.write_batch(batch)
        return sink.getvalue()

    @classmethod
    def load(cls, timeout: int, version: int, state: bytes) -> "IdleShard":
        """Read what `dump` wrote.

        Raises:
            AiowheelError: Another version of this package wrote it.
        """
        if version != STATE_VERSION:
            raise AiowheelError(
                f"the checkpoint holds state of version {version}, this release reads "
                f"{STATE_VERSION}: finish the stream with the release that began it"
            )
        with pa.ipc.open_stream(state) as reader:
            columns = reader.read_all().to_pydict()
        return cls(timeout, list(zip(columns["t"], columns["key"], strict=True)))


def condensed(touches: list[Touch], timeout: int) -> list[Touch]:
    """Drop every touch that tells nothing: its neighbours alone keep the key alive over it.

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
