"""A shard as one value: what the state store keeps between two micro-batches. Rank 5: no Spark.

Two Arrow streams, one behind the other: operations and events. Arrow holds data and no code, so a
checkpoint of somebody else can be read without running anything.
"""

from __future__ import annotations

from typing import Any, Final

import pyarrow as pa

from aiowheel.errors import AiowheelError
from aiowheel.jobs.operations.shard import Shard
from aiowheel.jobs.spark.packs import pack, unpack
from aiowheel.rules import Event, Operation

#: Kept beside the bytes; a checkpoint of another version is refused, not misread.
STATE_VERSION: Final = 2
#: The value in the state store, as Spark writes schemas.
STATE_DDL: Final = "version int, frontier bigint, data binary"

_OPERATIONS = pa.schema(
    [
        pa.field("waiting", pa.bool_()),  # or yet to be created
        pa.field("id", pa.string()),
        pa.field("keys", pa.list_(pa.string())),
        pa.field("thresholds", pa.list_(pa.int64())),
        pa.field("wanted", pa.int64()),
        pa.field("created", pa.int64()),
        pa.field("deadline", pa.int64()),
    ]
)
_EVENTS = pa.schema(
    [pa.field("key", pa.string()), pa.field("time", pa.int64()), pa.field("value", pa.int64())]
)


def dump(shard: Shard) -> tuple[int, int, bytes]:
    """Put *shard* into a value of `STATE_DDL`."""
    waiting = shard.waiting()
    operations = [(True, *row) for row in waiting] + [(False, *row) for row in shard.operations]
    data = pack(_OPERATIONS, operations) + pack(_EVENTS, shard.events)
    return STATE_VERSION, shard.frontier, data


def load(tick: int, value: tuple[Any, ...]) -> Shard:
    """Make the shard again.

    Raises:
        AiowheelError: The value is of another version.
    """
    version, frontier, data = value
    waiting, created, events = read_state(version, data)
    shard = Shard(tick, int(frontier))
    shard.resume(waiting)
    shard.feed(created, events)
    return shard


def read_state(version: int, data: bytes) -> tuple[list[Operation], list[Operation], list[Event]]:
    """The operations that wait, those yet to be created, and the events in a value.

    Raises:
        AiowheelError: The value is of another version.
    """
    if version != STATE_VERSION:
        raise AiowheelError(
            f"the checkpoint holds state of version {version}, this release reads {STATE_VERSION}: "
            "finish the stream with the release that began it"
        )
    source = pa.BufferReader(data)
    rows = unpack(source)
    events = [Event(*row) for row in unpack(source)]
    waiting: list[Operation] = []
    created: list[Operation] = []
    for is_waiting, id_, keys, thresholds, *numbers in rows:
        operation = Operation(id_, tuple(keys), tuple(thresholds), *numbers)
        (waiting if is_waiting else created).append(operation)
    return waiting, created, events
