"""The designs for closing connections that are silent for too long."""

from benchmarks.workloads import silent_protocols as protocols
from benchmarks.workloads import silent_tasks as tasks
from benchmarks.workloads.server_counts import OpenServer

DESIGNS: dict[str, OpenServer] = {
    "protocol": protocols.server_of(protocols.Connection),
    "cancel and call_later": protocols.server_of(protocols.Rearmed),
    "note and look": protocols.server_of(protocols.Noted),
    "handle.touch": protocols.server_of(protocols.Touched),
    "IdleDetector": protocols.server_of(protocols.Detected),
    "LimitedProtocol": protocols.server_of(protocols.Limited),
    "task": tasks.server_of(tasks.reading(tasks.read_without_limit)),
    "task, asyncio.timeout": tasks.server_of(tasks.reading(tasks.read_in_timeout)),
    "task, asyncio.wait_for": tasks.server_of(tasks.reading(tasks.wait_for_read)),
    "task, aiowheel.timeout": tasks.server_of(tasks.reading(tasks.read_in_our_timeout)),
    "task, idle_guard": tasks.server_of(tasks.guarded),
}
