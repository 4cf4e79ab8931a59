"""Ways to close a connection that has been silent for too long: those one would write. Rank 5."""

from aiowheel.bench.workloads import silent_protocols as protocols
from aiowheel.bench.workloads import silent_tasks as tasks
from aiowheel.bench.workloads.hall import Doors

DESIGNS: dict[str, Doors] = {
    "protocol": protocols.doors_of(protocols.Connection),
    "cancel and call_later": protocols.doors_of(protocols.Rearmed),
    "note and look": protocols.doors_of(protocols.Noted),
    "handle.touch": protocols.doors_of(protocols.Touched),
    "IdleDetector": protocols.doors_of(protocols.Detected),
    "LimitedProtocol": protocols.doors_of(protocols.Limited),
    "task": tasks.doors_of(tasks.reading(tasks.read_for_ever)),
    "task, asyncio.timeout": tasks.doors_of(tasks.reading(tasks.read_in_timeout)),
    "task, asyncio.wait_for": tasks.doors_of(tasks.reading(tasks.wait_for_read)),
    "task, aiowheel.timeout": tasks.doors_of(tasks.reading(tasks.read_in_our_timeout)),
    "task, idle_guard": tasks.doors_of(tasks.guarded),
}
