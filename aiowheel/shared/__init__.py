"""One purgatory over many processes: counters in a shared store. Rank 4."""

from aiowheel.errors import EpochChangedError as EpochChangedError
from aiowheel.errors import SharedCountersClosedError as SharedCountersClosedError
from aiowheel.errors import StoreUnavailableError as StoreUnavailableError
from aiowheel.shared._idle_statistics import SharedIdleStatistics as SharedIdleStatistics
from aiowheel.shared._postgres import PostgresCounters as PostgresCounters
from aiowheel.shared._redis import RedisCounters as RedisCounters
from aiowheel.shared._shared_counters import SharedCounters as SharedCounters
from aiowheel.shared._shared_idle import SharedIdle as SharedIdle
from aiowheel.shared._sqlite import SqliteCounters as SqliteCounters
from aiowheel.shared._statistics import SharedStatistics as SharedStatistics
from aiowheel.shared._store import CounterPage as CounterPage
from aiowheel.shared._store import CounterStore as CounterStore
from aiowheel.shared._store import HintListener as HintListener

__all__ = (
    "CounterPage",
    "CounterStore",
    "EpochChangedError",
    "HintListener",
    "PostgresCounters",
    "RedisCounters",
    "SharedCounters",
    "SharedCountersClosedError",
    "SharedIdle",
    "SharedIdleStatistics",
    "SharedStatistics",
    "SqliteCounters",
    "StoreUnavailableError",
)
