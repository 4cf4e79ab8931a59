"""The state of a shard as one value in Spark's state store. Rank 5: no Spark.

The value is two concatenated Arrow streams: operations and events. Arrow holds data and no code, so
that reading an untrusted checkpoint runs no code.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Final

import pyarrow as pa

from aiowheel.jobs.operations.shard import Shard
from aiowheel.jobs.spark.checkpoint import refuse_other_version
from aiowheel.jobs.spark.packs import pack, unpack
from aiowheel.rules import Event, Operation

#: Stored beside the bytes; a checkpoint with another version is refused.
STATE_VERSION: Final = 2
#: The value in the state store, as a Spark schema.
STATE_DDL: Final = "version int, frontier bigint, data binary"

_OPERATIONS = pa.schema(
    [
        pa.field("waiting", pa.bool_()),  # false: yet to be created
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
    """Return *shard* as a value of `STATE_DDL`."""
    waiting = shard.waiting()
    operations = [(True, *row) for row in waiting] + [(False, *row) for row in shard.operations]
    data = pack(_OPERATIONS, operations) + pack(_EVENTS, shard.events)
    return STATE_VERSION, shard.frontier, data


def load(
    tick: int, value: tuple[Any, ...], over: Collection[tuple[str, int]] = frozenset()
) -> Shard:
    """Restore a shard.

    Args:
        tick: The tick of the wheel, in the unit of the trace.
        value: The value that `dump` returned.
        over: Ids and creation times of operations that are decided and must be dropped.

    Raises:
        AiowheelError: The value has another version.
    """
    version, frontier, data = value
    waiting, created, events = read_state(version, data)
    shard = Shard(tick, int(frontier))
    shard.resume(row for row in waiting if (row.id, row.created) not in over)
    shard.feed(created, events)
    return shard


def read_state(version: int, data: bytes) -> tuple[list[Operation], list[Operation], list[Event]]:
    """Return the pending operations, those yet to be created, and the events in a value.

    Raises:
        AiowheelError: The value has another version.
    """
    refuse_other_version(version, STATE_VERSION)
    source = pa.BufferReader(data)
    rows = unpack(source)
    events = [Event(*row) for row in unpack(source)]
    waiting: list[Operation] = []
    created: list[Operation] = []
    for is_waiting, id_, keys, thresholds, *numbers in rows:
        operation = Operation(id_, tuple(keys), tuple(thresholds), *numbers)
        (waiting if is_waiting else created).append(operation)
    return waiting, created, events


def count_in_state(version: int, data: bytes) -> int:
    """Count the operations in a value that are pending or yet to be created.

    Raises:
        AiowheelError: The value has another version.
    """
    refuse_other_version(version, STATE_VERSION)
    with pa.ipc.open_stream(pa.BufferReader(data)) as reader:
        return int(reader.read_all().num_rows)
